"""Writes one part, and looks for parts."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileSystem, LocalFileSystem

from lakesink.parquet.filesystem import local_path, open_by_fsspec, scheme_of
from lakesink.parquet.parquet import OpenParquet, parquet_writer
from lakesink.rows.plan import ParquetOptions
from lakesink.rows.task_errors import storage_failures
from lakesink.sinks.durable import make_folder, sync
from lakesink.sinks.staged.part_receipt import Part, SinkFolder
from lakesink.sinks.storage import Storage


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
