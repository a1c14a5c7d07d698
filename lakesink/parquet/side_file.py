"""A file of rows that one task leaves beside its data files, for the driver: an Arrow IPC stream with a checked name.

No snapshot references it as data, so a clean-up of orphan files removes it when nothing needs it any more.
"""

import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakesink.parquet.filesystem import NewFiles
from lakesink.rows.plan import WritePlan
from lakesink.rows.task_errors import storage_failures

KEYS, LEFT_ROWS = "keys", "arrows"
"""Ends of names, which say what kind of file it is."""
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)  # a fork would lose threads
_NAME = r"-{task:05d}-[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}\.{suffix}"


@dataclass(slots=True)
class SideFile:
    """The file is created with its first rows. Ends with `close` or `abandon`.

    Attributes:
        digest: Gets every byte; None to digest nothing.
        location: Empty until there are rows.
    """

    plan: WritePlan
    task: int
    suffix: str
    digest: Any = None
    rows: int = 0
    location: str = field(default="", init=False)
    size_bytes: int = 0
    _sink: Any = field(default=None, init=False)
    _writer: Any = field(default=None, init=False)
    _files: Any = field(default=None, init=False)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows; all have one schema."""
        with storage_failures(self.location or self.plan.data_location):
            if self._writer is None:
                self._open(rows.schema)
            self._writer.write_batch(rows)
        self.rows += rows.num_rows

    def close(self) -> None:
        """Make the file durable."""
        if self._writer is not None:
            with storage_failures(self.location):
                self._writer.close()
                self.size_bytes = self._sink.tell()
                self._sink.close()

    def abandon(self) -> None:
        """Remove the file; never raises."""
        if self._sink is not None:
            with suppress(Exception):
                self._sink.close()
                self._files.remove(self.location)

    def _open(self, schema: pa.Schema) -> None:
        plan = self.plan
        self.location = f"{plan.data_location}/{plan.file_stem}-{self.task:05d}-{uuid.uuid4()}.{self.suffix}"
        self._files = NewFiles.at(plan.data_location, plan.file_io, plan.catalog_name)
        self._sink = self._files.create(self.location)
        stream = self._sink if self.digest is None else DigestingStream(self._sink, self.digest)
        self._writer = pa.ipc.new_stream(stream, schema, options=_OPTIONS)


@dataclass(slots=True)
class DigestingStream:
    """Passes bytes to a stream and digests them. The caller closes the stream."""

    stream: Any
    digest: Any
    closed: bool = field(default=False, init=False)

    def write(self, data: bytes) -> int:
        """Write and digest these bytes."""
        self.digest.update(data)
        return int(self.stream.write(data))


def is_side_file(location: str, folder: str, stem: str, task: int, suffix: str) -> bool:
    """True if a task of this batch can have chosen this location for a file of this kind."""
    relative = location.removeprefix(f"{folder}/")
    name = re.escape(stem) + _NAME.format(task=task, suffix=suffix)
    return relative != location and re.fullmatch(name, relative) is not None


def read_side_file(source: Any) -> Iterator[pa.RecordBatch]:
    """The rows in an open file; raises pyarrow.ArrowInvalid if it is no such file."""
    with pa.ipc.open_stream(source) as reader:
        yield from reader
