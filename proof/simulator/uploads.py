"""The shipped writers of tasks in a simulated world: what they close is put into its store, where that may fail."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

from lakesink.parquet import filesystem
from lakesink.task.task import ParquetTaskWriter
from proof.oracle import Rows
from proof.simulator.keyed_files import whole_rows
from proof.simulator.store import SimulatedStore, Upload


@dataclass(frozen=True, slots=True)
class _Files:
    """The store as fsspec shows one, as far as writers need it. Nobody waits in it: threads of Arrow call it."""

    store: SimulatedStore

    def open(self, path: str, mode: str) -> Upload:
        assert mode == "wb"
        return Upload(lambda content: self.store.set(path, content))

    def exists(self, path: str) -> bool:
        return path in self.store.files

    def rm(self, path: str) -> None:
        del self.store.files[path]


@contextmanager
def writing_into(store: SimulatedStore) -> Iterator[None]:
    """Inside, the files of tasks in this process go to the store."""
    shipped = filesystem.open_by_fsspec

    def open_store(location: str, file_io: Mapping[str, str] | None = None) -> tuple[FileSystem, filesystem.PathOf]:  # noqa: ARG001 - the one there is
        return PyFileSystem(FSSpecHandler(_Files(store))), str

    filesystem.open_by_fsspec = open_store
    try:
        yield
    finally:
        filesystem.open_by_fsspec = shipped


@dataclass(frozen=True, slots=True)
class UploadingWriter:
    """The shipped writer; its files are there once they were uploaded."""

    store: SimulatedStore
    shipped: ParquetTaskWriter

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        """See `lakesink_protocol.two_phase.TaskWriter`."""
        rows = list(batches)  # others may go on while they are read
        known = {*self.store.files}
        written = self.shipped.write(task, iter(rows))
        new = {path: self.store.files.pop(path).read() for path in [*self.store.files] if path not in known}
        for path, content in new.items():
            self.store.put(path, content, rows_of_file(content) if path.endswith(".parquet") else None)
        return written

    def receipts(self, name: str, written: bytes) -> Mapping[str, bytes]:
        """See `lakesink_protocol.two_phase.RoutingWriter`."""
        return self.shipped.receipts(name, written)


def rows_of_file(content: bytes) -> Rows:
    """The rows of a Parquet file by their places in the source."""
    return Counter((row["partition"], row["offset"]) for row in whole_rows(content))
