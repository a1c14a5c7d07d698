"""Writes one part of the file sink."""

from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileSystem, LocalFileSystem

from lakesink.parquet.filesystem import local_path, open_by_fsspec, scheme_of
from lakesink.parquet.parquet import parquet_writer
from lakesink.rows.plan import ParquetOptions
from lakesink.rows.task_errors import footer_disagrees, storage_failures
from lakesink.sinks.durable import make_folder, sync_file, sync_folder
from lakesink.sinks.staged.part_receipt import Part


class OpenPart:
    """A part that is being written, at a unique location; ends with `close` or `abandon`.

    The rows' schema is one that `check_part_schema` has accepted.
    """

    def __init__(self, location: str, schema: pa.Schema, codec: str) -> None:
        self.location = location
        self._rows = 0
        self._filesystem, self._path = file_system(location)
        with storage_failures(location):
            if isinstance(self._filesystem, LocalFileSystem):
                make_folder(Path(self._path).parent)
            self._sink = self._filesystem.open_output_stream(self._path, compression=None)
        self._writer: Any = None
        try:
            with storage_failures(location):  # the first bytes are written here
                self._writer = parquet_writer(self._sink, schema, ParquetOptions(compression_codec=codec))
        except BaseException:  # any exception must end the open stream; it is raised again
            self.abandon()
            raise

    @property
    def size_bytes(self) -> int:
        """Bytes written so far, as compressed."""
        return int(self._sink.tell())

    def write(self, rows: pa.Table) -> None:
        """Append rows; raises WriteError if the storage fails."""
        with storage_failures(self.location):
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._rows += rows.num_rows

    def close(self) -> Part:
        """Finish the part; raises WriteError if its content differs from what was written."""
        with storage_failures(self.location):
            self._writer.close()
            written = self._writer.writer.metadata.num_rows
            if written != self._rows:
                raise footer_disagrees(self.location, self._rows, written)
            size = self.size_bytes
            self._sink.close()
            if isinstance(self._filesystem, LocalFileSystem):
                sync_file(Path(self._path))  # a marker that survives a power failure must not name a lost part
                sync_folder(Path(self._path).parent)
        return Part(PurePosixPath(self.location).name, self._rows, size)

    def abandon(self) -> None:
        """Remove a part that was never closed; never raises.

        The stream is closed first: a Parquet writer that is closed or released would still write a valid, shorter file.
        """
        with suppress(Exception):  # a storage client raises any class, and the task's own error must be raised
            self._sink.close()
        if self._writer is not None:
            self._writer.is_open = False
        with suppress(Exception):  # a failed removal leaves an unreferenced file
            self._filesystem.delete_file(self._path)


def file_system(location: str) -> tuple[FileSystem, str]:
    """The file system of a part, and its path there."""
    if scheme_of(location) == "file":
        return LocalFileSystem(), local_path(location)
    filesystem, path_of = open_by_fsspec(location)
    return filesystem, path_of(location)
