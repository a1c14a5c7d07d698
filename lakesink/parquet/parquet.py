"""Writes one Parquet file and describes it for the receipt. A file is either closed, or abandoned without a footer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakesink.parquet.filesystem import NewFiles
from lakesink.parquet.partitions import Partition
from lakesink.parquet.statistics import Column, FloatCounts, count, file_statistics, split_offsets
from lakesink.rows.plan import ParquetOptions, WritePlan
from lakesink.rows.task_errors import footer_disagrees, storage_failures
from lakesink_protocol.change import ContentFile

ICEBERG_SCHEMA_KEY = "iceberg.schema"
ZSTD_LEVEL = 1
CODECS_WITH_LEVELS = frozenset({"zstd", "gzip", "brotli"})


@dataclass(frozen=True, slots=True)
class FileFormat:
    """The common properties of a task's files; `dictionaries` are Parquet column names, None for all columns.

    Attributes:
        order_id: The sort order that each file has as a whole; 0 for none.
    """

    plan: WritePlan
    schema: pa.Schema
    columns: tuple[Column, ...]
    dictionaries: tuple[str, ...] | None = None
    order_id: int = 0


Start = Callable[[Any], pq.ParquetWriter]


class OpenParquet:
    """A Parquet file that is being written, at a unique location. Not thread-safe; ends with `close` or `abandon`.

    `create` opens its stream, `start` makes the writer of the stream, which writes the first bytes.
    """

    def __init__(self, location: str, create: Callable[[], Any], start: Start, remove: Callable[[], object]) -> None:
        self.location = location
        self._rows = 0
        self._remove = remove
        with storage_failures(location):
            self._sink = create()
        self._writer: Any = None
        try:
            with storage_failures(location):
                self._writer = start(self._sink)
        except BaseException:  # any exception must end the open stream; it is raised again
            self.abandon()
            raise

    @property
    def size_bytes(self) -> int:
        """Bytes written so far, encoded and compressed."""
        return int(self._sink.tell())

    def write_row_group(self, rows: pa.Table) -> None:
        """Append rows as one row group."""
        with storage_failures(self.location):
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._rows += rows.num_rows

    def finish(self) -> tuple[pq.FileMetaData, int]:
        """Footer and size of the finished file; raises WriteError if it has other rows than were written."""
        with storage_failures(self.location):
            self._writer.close()
            size = self.size_bytes
            self._sink.close()
        footer = self._writer.writer.metadata
        if footer.num_rows != self._rows:
            raise footer_disagrees(self.location, self._rows, footer.num_rows)
        return footer, size

    def abandon(self) -> None:
        """Remove a file that was never closed; never raises.

        The stream is closed first: a Parquet writer that is closed or released would still write a valid, shorter file.
        """
        with suppress(Exception):  # a storage client raises any class, and the task's own error must be raised
            self._sink.close()
        if self._writer is not None:
            self._writer.is_open = False
        with suppress(Exception):  # a failed removal leaves an unreferenced file
            self._remove()


class OpenFile(OpenParquet):
    """A data file that is being written."""

    def __init__(self, files: NewFiles, location: str, partition: Partition, file_format: FileFormat) -> None:
        self.partition = partition
        self._format = file_format
        self._counted = {column.leaf.field_id: FloatCounts() for column in file_format.columns if column.is_counted}
        plan = file_format.plan

        def start(sink: Any) -> pq.ParquetWriter:
            writer = parquet_writer(sink, file_format.schema, plan.parquet, file_format.dictionaries)
            writer.add_key_value_metadata({ICEBERG_SCHEMA_KEY: plan.schema_json})
            return writer

        super().__init__(location, partial(files.create, location), start, partial(files.remove, location))

    def write_row_group(self, rows: pa.Table) -> None:
        """Append rows as one row group."""
        has_uuids = any(column.leaf.type.name == "uuid" for column in self._format.columns)
        super().write_row_group(rows.cast(self._format.schema) if has_uuids else rows)  # see `lakesink.rows.schema`
        for column in self._format.columns:
            if column.is_counted:
                self._counted[column.leaf.field_id] += count(rows, column)

    def close(self) -> ContentFile:
        """Finish the file; raises WriteError if its footer has another number of rows than were written."""
        footer, size = self.finish()
        return ContentFile(
            path=self.location,
            spec_id=self._format.plan.spec_id,
            partition=self.partition,
            record_count=self._rows,
            file_size_bytes=size,
            split_offsets=split_offsets(footer),
            sort_order_id=self._format.order_id,
            **asdict(file_statistics(footer, self._format.columns, self._counted)),
        )


def parquet_writer(
    sink: Any,
    schema: pa.Schema,
    options: ParquetOptions,
    dictionaries: Sequence[str] | None = None,
    encodings: Mapping[str, str] | None = None,
) -> pq.ParquetWriter:
    """Arrow's writer of one Parquet file into an open stream; `encodings` are for columns without a dictionary.

    Floating-point columns get no statistics in the footer: these ignore NaN and the sign of zero, and readers would
    skip row groups that match a predicate.
    """
    codec = "none" if options.compression_codec == "uncompressed" else options.compression_codec
    level = ZSTD_LEVEL if codec == "zstd" and options.compression_level is None else options.compression_level
    level = level if codec in CODECS_WITH_LEVELS else None
    leaves = [leaf for field in schema for leaf in _leaf_paths(field.name, field.type)]
    floating = {path for path, kind in leaves if pa.types.is_floating(kind)}  # another column can have the same path
    return pq.ParquetWriter(
        sink,
        schema,
        compression=codec,
        compression_level=level,
        use_dictionary=True if dictionaries is None else list(dictionaries),
        data_page_size=options.page_size_bytes,
        dictionary_pagesize_limit=options.dictionary_size_bytes,
        column_encoding=None if encodings is None else dict(encodings),
        store_decimal_as_integer=True,
        store_schema=False,
        write_statistics=[path for path, _ in leaves if path not in floating],
    )


def _leaf_paths(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaf_paths(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _leaf_paths(f"{path}.key_value.key", kind.key_type)
        yield from _leaf_paths(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaf_paths(f"{path}.list.element", kind.value_type)
    else:
        yield path, kind
