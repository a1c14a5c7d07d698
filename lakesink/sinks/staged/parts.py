"""Writes one task's rows into closed parts and a receipt: the file sink's pre-commit in executors.

Rows keep the Arrow schema in which they arrive, if a file of Parquet stores its columns without loss. A part is created
with its first row under a unique name and is never renamed. The task either closes it or removes it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileSystem, LocalFileSystem

from lakesink.parquet.filesystem import local_path, open_by_fsspec, scheme_of
from lakesink.parquet.parquet import OpenParquet, parquet_writer
from lakesink.rows.libraries import check_library
from lakesink.rows.plan import ParquetOptions
from lakesink.rows.task_errors import shown, storage_failures
from lakesink.rows.texts import check_texts
from lakesink.sinks.staged.part_receipt import Part, PartsReceipt, SinkFolder, encode_parts, new_part_name
from lakesink.sinks.storage import Storage, make_folder, sync
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.spark_types import sql_type
from lakesink_protocol.errors import WriteError
from lakesink_protocol.events import FileClosing

ROW_GROUP_BYTES = 128 * 1024 * 1024
"""Arrow memory that a task collects before it writes a row group."""
_TYPES = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_date32,
    pa.types.is_time,
    pa.types.is_timestamp,
)


@dataclass(frozen=True, slots=True)
class PartsWriter:
    """Writes one task's rows; see `lakesink_protocol.two_phase.TaskWriter`. It has no client and no secret.

    Parts' names start with `stem`.
    """

    folder: str
    stem: str
    batch_id: int
    codec: str
    target_file_size_bytes: int

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        """Write one task's rows and return its encoded receipt."""
        parts = _Parts(self, task)
        rows = 0
        try:
            for batch in batches:
                check_texts(batch, rows)
                rows += batch.num_rows
                if batch.num_rows:
                    parts.add(batch)
            closed = parts.close()
        except BaseException:  # any end of the task must remove its open part; it is raised again
            parts.abandon()
            raise
        return encode_parts(PartsReceipt(task, rows, closed))


class OpenPart(OpenParquet):
    """A part that is being written. The rows' schema is one that `check_part_schema` has accepted."""

    def __init__(self, location: str, schema: pa.Schema, codec: str) -> None:
        filesystem, path = file_system(location)
        self._local = Path(path) if isinstance(filesystem, LocalFileSystem) else None

        def create() -> Any:
            if self._local is not None:
                make_folder(self._local.parent)
            return filesystem.open_output_stream(path, compression=None)

        start = partial(parquet_writer, schema=schema, options=ParquetOptions(compression_codec=codec))
        super().__init__(location, create, start, partial(filesystem.delete_file, path))

    def close(self) -> Part:
        """Finish the part; raises WriteError if its content differs from what was written."""
        _, size = self.finish()
        if self._local is not None:
            with storage_failures(self.location):
                sync(self._local)  # a marker that survives a power failure must not name a lost part
                sync(self._local.parent)
        return Part(PurePosixPath(self.location).name, self._rows, size)


@dataclass(slots=True)
class _Parts:
    """A task's parts, of which at most one is open."""

    plan: PartsWriter
    task: int
    _open: OpenPart | None = field(default=None, init=False)
    _closed: list[Part] = field(default_factory=list, init=False)
    _held: list[pa.RecordBatch] = field(default_factory=list, init=False)
    _held_bytes: int = field(default=0, init=False)

    def add(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        if self._held_bytes >= min(ROW_GROUP_BYTES, self.plan.target_file_size_bytes):
            self._flush()

    def close(self) -> tuple[Part, ...]:
        self._flush()
        self._finish()
        return tuple(self._closed)

    def abandon(self) -> None:
        if self._open is not None:
            self._open.abandon()

    def _flush(self) -> None:
        if not self._held:
            return
        rows = pa.Table.from_batches(self._held)
        self._held, self._held_bytes = [], 0
        if self._open is None:
            check_part_schema(rows.schema)
            name = new_part_name(self.plan.stem, self.task)
            self._open = OpenPart(f"{self.plan.folder}/{name}", rows.schema, self.plan.codec)
        self._open.write_row_group(rows)
        if self._open.size_bytes >= self.plan.target_file_size_bytes:
            self._finish()

    def _finish(self) -> None:
        if self._open is not None:
            LISTENERS(FileClosing(self.plan.batch_id))  # the listeners of the driver do not exist in an executor
            self._closed.append(self._open.close())
            self._open = None


def all_there(storage: Storage, folder: SinkFolder, parts: Sequence[Part]) -> bool:
    """True if every part exists with its recorded size."""
    sizes = storage.sizes([folder.part(part) for part in parts])
    return sizes == [part.size_bytes for part in parts]


def file_system(location: str) -> tuple[FileSystem, str]:
    """The file system of a part, and its path there."""
    if scheme_of(location) == "file":
        return LocalFileSystem(), local_path(location)
    filesystem, path_of = open_by_fsspec(location)
    return filesystem, path_of(location)


def check_part_schema(schema: pa.Schema) -> None:
    """Refuse columns that a part does not store, or that readers cannot distinguish, and an old PyArrow."""
    check_library("pyarrow", pa.__version__)
    doubled = [name for name, count in Counter(name.casefold() for name in schema.names).items() if count > 1]
    if not schema.names:
        raise WriteError.of("COLUMNS_AMBIGUOUS.none")
    if doubled:
        raise WriteError.of("COLUMNS_AMBIGUOUS", column=shown(doubled[0]))
    for column in schema:
        for path, kind, why in _unsuitable(column.name, column.type):
            raise WriteError.of(
                "TYPE_UNSUPPORTED.in_files", shown=shown(path), kind=shown(sql_type(kind)), why=why, column=path
            )


def _unsuitable(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType, str]]:
    if pa.types.is_struct(kind):
        if kind.num_fields == 0:
            yield path, kind, "a struct needs at least one field"
        if len({part.name.casefold() for part in kind}) < kind.num_fields:
            yield path, kind, "two of its field names are equal if case is ignored"
        for part in kind:
            yield from _unsuitable(f"{path}.{part.name}", part.type)
    elif pa.types.is_map(kind):
        yield from _unsuitable(f"{path}.key", kind.key_type)
        yield from _unsuitable(f"{path}.value", kind.item_type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _unsuitable(f"{path}.element", kind.value_type)
    elif not any(is_kind(kind) for is_kind in _TYPES):
        yield path, kind, "Parquet files cannot store it without loss"
