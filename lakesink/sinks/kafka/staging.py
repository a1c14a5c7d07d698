"""The staging folder of one sink: parts of rows, and the records of prepared batches.

A part has a unique name and never changes. The parts of a committed batch are needed no longer once a later batch is
committed: then no driver can commit them. They are removed by the names in their prepared record, and no folder is
listed. Parts of failed tasks stay; a rule of the storage can remove files that are older than a few days.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from lakesink.rows.batches import rows_at_once
from lakesink.sinks.record_folder import PreparedDirectory
from lakesink.sinks.staged.part_files import file_system
from lakesink.sinks.staged.part_receipt import Part, part_stem
from lakesink.sinks.staged.prepared import PreparedParts
from lakesink.sinks.storage import open_storage
from lakesink_catalog.commit.record import parse_record
from lakesink_protocol.errors import CatalogError, LakesinkError
from lakesink_protocol.redact import describe, redact

_BYTES_AT_ONCE = 8 * 2**20


@dataclass(frozen=True, slots=True)
class StagingFolder:
    """The folder of one sink in the user's staging folder."""

    root: str
    sink_id: str

    @property
    def folder(self) -> str:
        """Everything of this sink."""
        return f"{self.root}/{self.sink_id}"

    @property
    def parts(self) -> str:
        """The parts."""
        return f"{self.folder}/parts"

    @property
    def prepared(self) -> str:
        """The prepared records."""
        return f"{self.folder}/prepared"

    def part(self, part: Part) -> str:
        """The location of one part."""
        return f"{self.parts}/{part.name}"

    def check_writable(self) -> None:
        """Write and remove a small file; raises CatalogError if that fails."""
        location = f"{self.folder}/probe-{uuid4()}"
        with staging_failures(self.root):
            storage = open_storage(self.folder)
            storage.replace(location, b"lakesink")
            storage.remove(location)

    def has_all(self, parts: Sequence[Part]) -> bool:
        """True if every part exists with its recorded size."""
        with staging_failures(self.root):
            sizes = open_storage(self.folder).sizes([self.part(part) for part in parts]) if parts else []
        return sizes == [part.size_bytes for part in parts]

    def rows(self, parts: Sequence[Part]) -> Iterator[pa.RecordBatch]:
        """The rows of the parts, in their order."""
        for part in parts:
            with staging_failures(self.root):
                filesystem, path = file_system(self.part(part))
                with filesystem.open_input_file(path) as source:
                    parquet = pq.ParquetFile(source)
                    yield from parquet.iter_batches(rows_at_once(parquet, _BYTES_AT_ONCE))


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRows(PreparedParts):
    """A batch that only needs its transaction; `topic` is that of all rows, empty if each row names its own."""

    topic: str


@dataclass(slots=True)
class StagingRecords(PreparedDirectory):
    """The prepared records of one sink; the parts that a record names are removed with it."""

    staging: StagingFolder = field(default=StagingFolder("", ""))

    def _remove(self, path: str) -> None:
        """Remove a record after its parts: if that fails half-way, the record still names the rest."""
        for part in self._parts_of(path):
            with suppress(FileNotFoundError):
                self._opened().remove(self.staging.part(part))
        PreparedDirectory._remove(self, path)  # noqa: SLF001 - a slotted dataclass has no zero-argument super

    def _parts_of(self, path: str) -> tuple[Part, ...]:
        body = parse_record(self._read(path) or b"")
        if body is None:
            return ()
        stem = part_stem(self.staging.sink_id, int(body["batch"]["batch_id"]))
        prepared = [PreparedRows.parse(payload, stem) for payload in body["participants"].values()]
        return tuple(part for found in prepared if found is not None for part in found.parts)


@contextmanager
def staging_failures(root: str) -> Iterator[None]:
    """Convert a storage's exceptions inside the block to a `CatalogError` about the staging folder."""
    try:
        yield
    except LakesinkError:
        raise
    except Exception as error:  # each storage client has its own exception classes
        raise CatalogError.of("STAGING_FAILED", error=describe(error)[:120], root=redact(root)) from error
