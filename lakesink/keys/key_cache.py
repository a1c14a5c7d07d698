"""Key and sequence columns of data files that are not on the local disk, or lack ids or columns: copied once, and kept.

A data file never changes while it is a table's, so a copy is never out of date: its name says from when on the path was
that of the table's file. Several processes share the folder: a copy appears by a rename, and a scan holds its copies by
hard links, which outlive the removal of a copy by another process.
"""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakesink.keys.data_file import DataFile
from lakesink.keys.footers import Source, footer_of, open_parquet
from lakesink.keys.key_columns import KeyColumn, KeyColumns
from lakesink.keys.locate_errors import file_unreadable, on_local_disk, private_folder, reading
from lakesink.parquet.filesystem import many_at_once
from lakesink.parquet.single_value import decoded_array
from lakesink.rows.schema import FIELD_ID_KEY
from lakesink_protocol.redact import describe

DEFAULT_BYTES = 2**30
_HELD, _PARTIAL, _SUFFIX = "held-", "partial-", ".parquet"
_ABANDONED_SECONDS = 24 * 60 * 60


@dataclass(frozen=True, slots=True)
class KeyCache:
    """A folder of copies with a limit of bytes; the least recently used copies are removed first."""

    folder: str
    most_bytes: int = DEFAULT_BYTES

    @contextmanager
    def held(self, files: Sequence[DataFile], columns: KeyColumns, source: Source) -> Iterator[list[str]]:
        """Local copies of the key columns of these files, in their order; they exist inside the block."""
        with on_local_disk(self.folder):
            root = private_folder(self.folder)
            held = Path(tempfile.mkdtemp(prefix=_HELD, dir=root))
        try:
            hold = partial(self._hold, held=held, columns=columns, source=source)
            with on_local_disk(self.folder):
                copies = list(many_at_once(hold, files, files[0].path))
            yield copies
        finally:
            shutil.rmtree(held, ignore_errors=True)
            with suppress(OSError):
                self._evict(root)

    def forget(self, files: Sequence[DataFile], columns: KeyColumns) -> bool:
        """Remove the copies of these files; returns False if there was none."""
        kept = [Path(self.folder) / _name(file, columns) for file in files]
        found = [copy for copy in kept if copy.exists()]
        for copy in found:
            copy.unlink(missing_ok=True)
        return bool(found)

    def _hold(self, file: DataFile, held: Path, columns: KeyColumns, source: Source) -> str:
        kept = Path(self.folder) / _name(file, columns)
        link = held / kept.name
        if not (_linked(kept, link) and _is_whole(link, file.rows)):
            link.unlink(missing_ok=True)
            with link.open("xb") as sink, reading(file.path, file_unreadable), source.open_input(file.path) as opened:
                parquet = open_parquet(file.path, opened, file.rows)
                with on_local_disk(self.folder, reads_others=True):
                    _copy_columns(parquet, file, columns, source.mapping, sink)
                    sink.flush()
                    os.fsync(sink.fileno())  # a power failure must not leave a footer without its pages
            again = link.with_name(f"{_PARTIAL}{link.name}")
            if _linked(link, again):  # on a disk without hard links, each scan copies anew
                again.replace(kept)
        os.utime(link)  # the copy is the same file: used now
        return str(link)

    def _evict(self, root: Path) -> None:
        """Remove the least recently used copies beyond the limit, and what ended processes held."""
        before = time.time() - _ABANDONED_SECONDS
        copies = []
        for path in root.iterdir():
            with suppress(FileNotFoundError):  # another process removes copies at the same time
                facts = path.stat()
                if path.suffix == _SUFFIX:
                    copies.append((facts.st_mtime, facts.st_size, path))
                elif facts.st_mtime < before:
                    shutil.rmtree(path, ignore_errors=True)
        excess = sum(size for _, size, _ in copies) - self.most_bytes
        for _, size, path in sorted(copies):
            if excess <= 0:
                return
            path.unlink(missing_ok=True)
            excess -= size


def _name(file: DataFile, columns: KeyColumns) -> str:
    kinds = [f"{column.field_id} {column.kind.name}" for column in columns.all]
    constants = [f"{field_id}={value.hex()}" for field_id, value in file.constants]
    described = [file.path, file.since, *kinds, *constants]
    return hashlib.sha256("\0".join(described).encode()).hexdigest() + _SUFFIX


def _linked(copy: Path, link: Path) -> bool:
    try:
        os.link(copy, link)
    except OSError:
        return False
    return True


def _is_whole(copy: Path, rows: int) -> bool:
    """True if the copy has a footer with this number of rows: a copy is torn after a power failure."""
    try:
        return bool(pq.read_metadata(copy).num_rows == rows)
    except (pa.ArrowException, OSError):
        return False


def _copy_columns(
    opened: pq.ParquetFile, file: DataFile, columns: KeyColumns, mapping: Mapping[str, int], sink: Any
) -> None:
    """Copy row groups in the table's types and field ids; a missing column has the partition's value, else NULL."""
    places = footer_of(opened.schema_arrow, mapping).columns
    fields = [pa.field(one.alias, one.arrow, metadata={FIELD_ID_KEY: str(one.field_id)}) for one in columns.all]
    schema = pa.schema(fields)  # optional, because the sequence of an old row can be NULL
    with pq.ParquetWriter(sink, schema, compression="zstd", store_schema=False) as writer:
        for group in range(opened.metadata.num_row_groups):
            arrays = [_read_column(opened, group, places.get(one.field_id), one, file) for one in columns.all]
            writer.write_table(pa.table(arrays, schema=schema))


def _read_column(
    opened: pq.ParquetFile, group: int, place: int | None, column: KeyColumn, file: DataFile
) -> pa.ChunkedArray:
    if place is None:
        rows, constant = opened.metadata.row_group(group).num_rows, dict(file.constants).get(column.field_id)
        value = pa.scalar(None, column.arrow) if constant is None else decoded_array(column.kind, constant)[0]
        return pa.chunked_array([pa.repeat(value, rows)])
    name = opened.schema_arrow.field(place).name
    try:
        found = opened.read_row_group(group, columns=[name])
        return found.column(found.schema.get_field_index(name)).cast(column.arrow)
    except (pa.ArrowException, KeyError) as error:
        raise file_unreadable(file.path, describe(error)) from error
