"""The staging folder of one sink: parts of rows, and the records of prepared batches.

A part has a unique name and never changes. The parts of a committed batch are needed no longer once a later batch is
committed: then no driver can commit them. They are removed by the names in their prepared record, and no folder is
listed. Parts of failed tasks stay; a rule of the storage can remove files that are older than a few days.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from lakesink.rows.batches import rows_at_once
from lakesink.sinks.record_folder import PreparedDirectory
from lakesink.sinks.staged.ledger import PreparedParts
from lakesink.sinks.staged.part_receipt import Part, SinkFolder, part_stem
from lakesink.sinks.staged.parts import all_there, file_system
from lakesink.sinks.storage import failures_as, open_storage
from lakesink_catalog.commit.record import parse_record
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.redact import describe, redact

_BYTES_AT_ONCE = 8 * 2**20


class StagingFolder(SinkFolder):
    """The folder of one sink in the user's staging folder."""

    def check_writable(self) -> None:
        """Write and remove a small file; raises CatalogError if that fails."""
        location = f"{self.root}/probe-{uuid4()}"
        with failures_as(self._failed):
            storage = open_storage(self.root)
            storage.replace(location, b"lakesink")
            storage.remove(location)

    def has_all(self, parts: Sequence[Part]) -> bool:
        """True if every part exists with its recorded size."""
        with failures_as(self._failed):
            return all_there(open_storage(self.root), self, parts)

    def rows(self, parts: Sequence[Part]) -> Iterator[pa.RecordBatch]:
        """The rows of the parts, in their order."""
        for part in parts:
            with failures_as(self._failed):
                filesystem, path = file_system(self.part(part))
                with filesystem.open_input_file(path) as source:
                    parquet = pq.ParquetFile(source)
                    yield from parquet.iter_batches(rows_at_once(parquet, _BYTES_AT_ONCE))

    def _failed(self, error: Exception) -> CatalogError:
        return CatalogError.of("STAGING_FAILED", error=describe(error)[:120], root=redact(self.directory))


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
        body = parse_record(self._read(path) or b"") or {"participants": {}}
        for payload in body["participants"].values():
            prepared = PreparedRows.parse(payload, part_stem(self.staging.sink_id, int(body["batch"]["batch_id"])))
            for part in prepared.parts if prepared else ():
                with suppress(FileNotFoundError):
                    self._opened().remove(self.staging.part(part))
        PreparedDirectory._remove(self, path)  # noqa: SLF001 - a slotted dataclass has no zero-argument super
