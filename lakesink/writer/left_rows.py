"""The file of rows that a task leaves to the driver, and its reader. An Arrow IPC stream beside the data files.

No snapshot ever references it, so a clean-up of orphan files removes it later.
"""

import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
from pyarrow.fs import LocalFileSystem

from lakesink.writer.filesystem import open_filesystem
from lakesink.writer.plan import WritePlan
from lakesink.writer.refusals import storage_failures
from lakesink_protocol.receipt import LeftRows

_CODEC = pa.ipc.IpcWriteOptions(compression="zstd")
_NAME = r"-{task:05d}-[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}\.arrows"


@dataclass(slots=True)
class LeftRowsFile:
    """The rows that one task leaves; the file is created with the first of them. Ends with `close` or `abandon`."""

    plan: WritePlan
    task: int
    rows: int = 0
    _location: str = ""
    _sink: Any = None
    _writer: Any = None
    _filesystem: Any = None
    _path: str = ""
    _size: int = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows as they came; all have one schema."""
        with storage_failures(self._location or self.plan.data_location):
            if self._writer is None:
                self._open(rows.schema)
            self._writer.write_batch(rows)
        self.rows += rows.num_rows

    def close(self) -> None:
        """Make the file durable."""
        if self._writer is not None:
            with storage_failures(self._location):
                self._writer.close()
                self._size = self._sink.tell()
                self._sink.close()

    def abandon(self) -> None:
        """Remove the file; never raises."""
        if self._sink is not None:
            with suppress(Exception):
                self._sink.close()
                self._filesystem.delete_file(self._path)

    @property
    def left(self) -> LeftRows | None:
        """The closed file; None without rows."""
        return LeftRows(self._location, self.rows, self._size) if self.rows else None

    def _open(self, schema: pa.Schema) -> None:
        plan = self.plan
        self._location = f"{plan.data_location}/{plan.file_stem}-{self.task:05d}-{uuid.uuid4()}.arrows"
        self._filesystem, path_of = open_filesystem(plan.data_location, plan.file_io, plan.catalog_name)
        self._path = path_of(self._location)
        if isinstance(self._filesystem, LocalFileSystem):
            self._filesystem.create_dir(str(PurePosixPath(self._path).parent), recursive=True)
        self._sink = self._filesystem.open_output_stream(self._path, compression=None)
        self._writer = pa.ipc.new_stream(self._sink, schema, options=_CODEC)


def is_left_rows(location: str, folder: str, stem: str, task: int) -> bool:
    """True if a task of this batch can have chosen this location."""
    relative = location.removeprefix(f"{folder}/")
    return relative != location and re.fullmatch(re.escape(stem) + _NAME.format(task=task), relative) is not None


def read_left_rows(source: Any) -> Iterator[pa.RecordBatch]:
    """The rows in an open file; raises pyarrow.ArrowInvalid if it is no such file."""
    with pa.ipc.open_stream(source) as reader:
        yield from reader
