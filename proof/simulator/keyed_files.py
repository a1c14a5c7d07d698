"""Data files and files of position deletes of simulated tables with a key: true Parquet, in memory.

Whoever locates a row must find it in the file, so these files are not told by a list of their rows alone. A reader here
shares no code with the product.
"""

import io
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakesink_protocol.change import Content, ContentFile
from proof.changes import RowChange
from proof.content import CHANGES, ID

FILE_PATH, POS = 2147483546, 2147483545
"""Field ids of Iceberg for the columns of a file of position deletes."""
_ID_FIELD = "PARQUET:field_id"
Partition = tuple[bytes | None, ...]
_KEY_ID = CHANGES.names.index(ID) + 1

ROWS = pa.schema(
    [field.with_metadata({_ID_FIELD: str(at)}).with_nullable(at != _KEY_ID) for at, field in enumerate(CHANGES, 1)]
)
DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={_ID_FIELD: str(FILE_PATH)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={_ID_FIELD: str(POS)}),
    ]
)


@dataclass(frozen=True, slots=True)
class Partitioning:
    """A partition spec: by zone, or none."""

    spec_id: int
    by_zone: bool

    def partition_of(self, zone: int) -> Partition:
        """The partition of a zone."""
        return (long(zone),) if self.by_zone else ()

    def groups(self, rows: Iterable[RowChange]) -> list[list[RowChange]]:
        """Rows in groups of one partition."""
        found: dict[Partition, list[RowChange]] = defaultdict(list)
        for row in rows:
            found[self.partition_of(row.zone)].append(row)
        return list(found.values())


def data_file(path: str, rows: Sequence[RowChange], partitioning: Partitioning) -> tuple[ContentFile, bytes]:
    """A data file of rows of one partition, with the bounds of the key."""
    columns = [
        [row.row[0] for row in rows],
        [row.row[1] for row in rows],
        *([getattr(row, name) for row in rows] for name in ("key", "sequence", "zone")),
    ]
    content = _parquet(pa.table([pa.array(column, pa.int64()) for column in columns], schema=ROWS))
    keys = columns[_KEY_ID - 1]
    lower, upper = ({_KEY_ID: long(end(keys))} for end in (min, max))
    at = partitioning.spec_id, partitioning.partition_of(rows[0].zone)
    return ContentFile(path, *at, len(rows), len(content), {}, {}, {}, {}, lower, upper, ()), content


def delete_file(
    path: str, positions: Mapping[str, Iterable[int]], spec_id: int, partition: Partition
) -> tuple[ContentFile, bytes]:
    """A file of position deletes of one or several data files, of one spec and partition."""
    rows = sorted((file, at) for file, every in positions.items() for at in every)
    files = [file for file, _ in rows]
    content = _parquet(pa.table([files, [at for _, at in rows]], schema=DELETES))
    lower, upper = ({FILE_PATH: end(files).encode()} for end in (min, max))
    made = ContentFile(path, spec_id, partition, len(rows), len(content), {}, {}, {}, {}, lower, upper, ())
    only = files[0] if len(positions) == 1 else ""
    return replace(made, content=Content.POSITION_DELETES, referenced_data_file=only), content


def rows_in(content: bytes) -> list[RowChange]:
    """The rows of a data file, by position."""
    table = _table(content)
    columns = [table[name].to_pylist() for name in CHANGES.names]
    return [RowChange((partition, offset), *rest) for partition, offset, *rest in zip(*columns, strict=True)]


def whole_rows(content: bytes) -> list[dict[str, Any]]:
    """The rows of any Parquet file, with all their columns."""
    found: list[dict[str, Any]] = _table(content).to_pylist()
    return found


def positions_in(content: bytes) -> dict[str, set[int]]:
    """The deleted positions in a file of position deletes, by data file."""
    table = _table(content)
    found: dict[str, set[int]] = defaultdict(set)
    for file, at in zip(table["file_path"].to_pylist(), table["pos"].to_pylist(), strict=True):
        found[file].add(at)
    return found


def rows_in_file(content: bytes) -> int:
    """How many rows a Parquet file has; none if it is torn."""
    try:
        return int(pq.read_metadata(io.BytesIO(content)).num_rows)
    except pa.ArrowInvalid:
        return 0


def long(value: int) -> bytes:
    """A LONG as Iceberg writes it in bounds and partitions."""
    return struct.pack("<q", value)


@lru_cache(maxsize=256)
def _table(content: bytes) -> pa.Table:
    return pq.ParquetFile(io.BytesIO(content)).read(use_threads=False)


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="none", store_schema=False)
    return sink.getvalue()
