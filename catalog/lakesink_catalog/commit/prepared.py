"""The prepared batch of one table: its pre-commit, durable between the receipts and the commit.

The records are files under the table's metadata location, see `lakesink_catalog.commit.record`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyiceberg.io import FileIO

from lakesink_catalog.commit.premises import Premises
from lakesink_catalog.commit.prepared_changes import PreparedChanges
from lakesink_catalog.commit.record import MAX_RECORD_BYTES, PreparedRecords, batch_identity
from lakesink_catalog.connect.catalog_failures import translate_storage_errors
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.manifests.copying import AtOnce
from lakesink_catalog.manifests.write import ManifestRecord
from lakesink_protocol.change import SchemaChange
from lakesink_protocol.events import Listener
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.ledger import LedgerEntry
from lakesink_protocol.quality import Quality

SNAPSHOT_IDS = range(2**31, 2**63)
"""Below this range, Trino needs a cast. With an id above it, readers show an empty table."""


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """One table's part of a prepared batch: everything that a commit attempt needs.

    Attributes:
        snapshot_id: Id of the new snapshot, chosen once for all attempts.
        premises: Schema and specs of the files.
        follows: Ledger entry at the time of the prepare; None if there was none.
        accepted: The accept as the user wrote it; empty if none.
        manifests: One for each partition spec.
        files: Path and size in bytes of every data file.
        schema_change: The schema change that the batch brings; None if it brings none.
        changes: The changes of rows by key; None if the batch only appends.
        partitions: Number of distinct partitions.
        begun_ms: Wall clock before the first of these files was created.
        without_inputs: Number of missing input files that an operator accepted.
        recovered: True if an earlier run prepared the batch. Not part of the record.
    """

    table_uuid: str
    branch: str
    snapshot_id: int
    schema_id: int
    premises: Premises
    follows: LedgerEntry | None
    accepted: str
    manifests: tuple[ManifestRecord, ...]
    files: tuple[tuple[str, int], ...]
    rows: int
    partitions: int
    begun_ms: int
    without_inputs: int
    recovered: bool = False
    quality: Quality = field(default_factory=Quality)
    schema_change: SchemaChange | None = None
    changes: PreparedChanges | None = None

    @property
    def payload(self) -> dict[str, Any]:
        """JSON form for the prepared record."""
        return {
            "table_uuid": self.table_uuid,
            "branch": self.branch,
            "snapshot_id": self.snapshot_id,
            "schema_id": self.schema_id,
            "premises": self.premises.to_json(),
            "follows": None if self.follows is None else self.follows.document,
            "accepted": self.accepted,
            "manifests": [manifest.to_json() for manifest in self.manifests],
            "files": [list(file) for file in self.files],
            "rows": self.rows,
            "partitions": self.partitions,
            "begun_ms": self.begun_ms,
            "without_inputs": self.without_inputs,
            "quality": self.quality.to_json(),
            "schema_change": None if self.schema_change is None else self.schema_change.to_json(),
            "changes": None if self.changes is None else self.changes.to_json(),
        }

    def is_there(self, io: FileIO, at_once: AtOnce) -> bool:
        """True if every data file, every manifest and every keys file exists and has its size."""
        manifests = ((manifest.path, manifest.length_bytes) for manifest in self.manifests)
        keys = ((file.path, file.size_bytes) for file in self.changes.keys_files) if self.changes else ()
        files = [*manifests, *self.files, *keys]
        return translate_storage_errors(io.properties, lambda: all(at_once(partial(_is_there, io), files)))


@dataclass(slots=True)
class TableLog(PreparedRecords):
    """Prepared records of one sink beside its table, see `PreparedRecords`.

    `folder` is ``<metadata location>/lakesink/<sink id>/<branch>``.
    """

    io: FileIO
    folder: str
    key: SinkKey
    max_age_ms: int
    now_ms: Callable[[], int]
    emit: Listener = LISTENERS
    _last_landed: str | None = field(default=None, init=False)

    def _identity(self, batch: Batch) -> dict[str, Any]:
        key = self.key
        return {"sink": key.name, "kind": key.kind.value, "branch": key.branch, **batch_identity(batch)}

    def _read(self, path: str) -> bytes | None:
        def read() -> bytes | None:
            try:
                with self.io.new_input(path).open() as stream:
                    return stream.read(MAX_RECORD_BYTES)
            except FileNotFoundError:
                return None

        return translate_storage_errors(self.io.properties, read)

    def _write(self, path: str, data: bytes) -> None:
        def write() -> None:
            with self.io.new_output(path).create(overwrite=True) as stream:
                stream.write(data)

        translate_storage_errors(self.io.properties, write)

    def _remove(self, path: str) -> None:
        self.io.delete(path)


def _is_there(io: FileIO, file: tuple[str, int]) -> bool:
    path, size = file
    try:
        return len(io.new_input(path)) == size
    except FileNotFoundError:
        return False
