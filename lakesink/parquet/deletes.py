"""Writes files of position deletes: one for each data file that loses rows.

`write_deletes` is the boundary for another form: positions by data file in, delete files out.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from lakesink.parquet.filesystem import many_at_once
from lakesink.parquet.parquet import parquet_writer
from lakesink.parquet.partitions import Partition
from lakesink.parquet.positions import in_order
from lakesink.parquet.single_value import encode_value
from lakesink.parquet.statistics import split_offsets
from lakesink.rows.plan import ParquetOptions
from lakesink.rows.schema import FIELD_ID_KEY, Primitive
from lakesink.rows.task_errors import footer_disagrees, storage_failures
from lakesink_protocol.change import Content, ContentFile

FILE_PATH, POS = 2147483546, 2147483545
"""Iceberg's field ids of the columns of a file of position deletes."""
_LONG = Primitive("long")
_TYPE = {"delete-type": "position"}
_PATHS, _POSITIONS = "file_path", "pos"
_ENCODINGS = {_POSITIONS: "DELTA_BINARY_PACKED"}
"""Ascending numbers: a seventh of the bytes of a dictionary, and of the time to write it."""

Create = Callable[[str], Any]
"""Opens a new location for writing."""


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """The rows of one data file that are deleted: at least one."""

    data_file: str
    spec_id: int
    partition: Partition
    positions: BitMap64


def write_deletes(deleted: Sequence[DeletedRows], folder: str, stem: str, create: Create) -> list[ContentFile]:
    """Write one file of position deletes for each data file; raises WriteError.

    A name is unique and starts with `stem`; the files lie in `folder`, a location without a trailing slash.
    """
    return list(many_at_once(partial(_write, folder=folder, stem=stem, create=create), deleted, folder))


def deletes_schema() -> pa.Schema:
    """The columns of a file of position deletes; the path is a dictionary, because it is the same in all rows."""
    path = pa.field(_PATHS, pa.dictionary(pa.int32(), pa.string()), nullable=False, metadata=_id(FILE_PATH))
    return pa.schema([path, pa.field(_POSITIONS, pa.int64(), nullable=False, metadata=_id(POS))])


def _id(field_id: int) -> dict[str, str]:
    return {FIELD_ID_KEY: str(field_id)}


def _write(rows: DeletedRows, folder: str, stem: str, create: Create) -> ContentFile:
    location = f"{folder}/{stem}-{uuid.uuid4()}-deletes.parquet"
    count = len(rows.positions)
    assert count
    paths = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), pa.array([rows.data_file]))
    table = pa.table([paths, in_order(rows.positions)], schema=deletes_schema())
    with storage_failures(location), create(location) as sink:
        with parquet_writer(sink, deletes_schema(), ParquetOptions(), [_PATHS], _ENCODINGS) as writer:
            writer.add_key_value_metadata(_TYPE)
            writer.write_table(table, row_group_size=count)
        size = int(sink.tell())
    footer = writer.writer.metadata
    if footer.num_rows != count:
        raise footer_disagrees(location, count, footer.num_rows)
    return _described(rows, location, size, footer)


def _described(rows: DeletedRows, location: str, size: int, footer: pq.FileMetaData) -> ContentFile:
    count = len(rows.positions)
    path = rows.data_file.encode()
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    return ContentFile(
        path=location,
        spec_id=rows.spec_id,
        partition=rows.partition,
        record_count=count,
        file_size_bytes=size,
        column_sizes={
            field_id: sum(group.column(place).total_compressed_size for group in groups)
            for place, field_id in enumerate((FILE_PATH, POS))
        },
        value_counts={FILE_PATH: count, POS: count},
        null_value_counts={FILE_PATH: 0, POS: 0},
        nan_value_counts={},
        # Equal, complete bounds of the path tell readers that the file names one data file.
        lower_bounds={FILE_PATH: path, POS: encode_value(_LONG, rows.positions.min())},
        upper_bounds={FILE_PATH: path, POS: encode_value(_LONG, rows.positions.max())},
        split_offsets=split_offsets(footer),
        content=Content.POSITION_DELETES,
        referenced_data_file=rows.data_file,
    )
