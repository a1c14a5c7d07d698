"""The logs of prepared batches of the Iceberg sink, and whether what an earlier run left there can be committed.

They also remove keys files that nothing can ask for again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.table import Table

from lakesink.keys.keys_file import is_keys_file
from lakesink.sinks.iceberg.checked_receipts import is_data_file
from lakesink_catalog.commit.decision import Decision, still_usable
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.prepared import PreparedBatch, TableLog
from lakesink_catalog.commit.prepared_changes import PreparedChanges
from lakesink_catalog.commit.recovered import matches_keys_files, matches_manifests
from lakesink_catalog.connect.catalog_failures import translate_storage_errors
from lakesink_catalog.tables.locations import all_under, data_location, is_under, metadata_location
from lakesink_protocol import events
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.redact import redact
from lakesink_protocol.two_phase import Payload


@dataclass(frozen=True, slots=True)
class KeysFiles:
    """The keys files of one sink's batches. Only the prepared record of a batch refers to them, never a snapshot."""

    table: Table
    participant: str
    key: SinkKey
    effects: Effects

    def named_in(self, batch_id: int, payloads: Any) -> Sequence[str]:
        """The keys files in the payloads of a batch, which are not trusted: files with other names are left out."""
        try:
            changes = PreparedChanges.from_json(payloads[self.participant]["changes"])
        except (ValueError, TypeError, KeyError):
            return ()
        folder, stem = data_location(self.table), f"{self.key.name}-{batch_id}"
        return [file.path for file in changes.keys_files if is_keys_file(file.path, folder, stem, file.task)]

    def remove(self, paths: Sequence[str]) -> None:
        """Remove these files; one that stays does no harm."""
        list(self.effects.at_once(self._remove, paths))

    def _remove(self, path: str) -> None:
        try:
            self.table.io.delete(path)
        except Exception as error:  # noqa: BLE001 # the batch has landed, and an orphan cleanup removes the file
            self.effects.emit(events.RecordKept(redact(path), type(error).__name__))


@dataclass(frozen=True, slots=True)
class ReportedLog:
    """The prepared records of a stream; emits an event when a record is durable.

    Attributes:
        keys_files: Those of the stream; None if its rows are only appended.
        check: Called once a batch has landed in all participants.
    """

    records: TableLog
    effects: Effects
    keys_files: KeysFiles | None
    check: Callable[[Batch], None] = lambda _: None

    def find(self, batch: Batch) -> Mapping[str, Payload] | None:
        return self.records.find(batch)

    def put(self, batch: Batch, payloads: Mapping[str, Payload]) -> None:
        self.records.put(batch, payloads)
        self.effects.emit(events.BatchRecorded(batch.batch_id))

    def landed(self, batch: Batch) -> None:
        """Remove the record of the batch before this one, see `TableLog.landed`, and the keys files that it names."""
        spent = self._keys_files_before()
        self.records.landed(batch)
        if self.keys_files is not None:
            self.keys_files.remove(spent)
        self.check(batch)

    def _keys_files_before(self) -> Sequence[str]:
        if self.keys_files is None:
            return ()
        try:
            record = self.records.before()
            return (
                () if record is None else self.keys_files.named_in(record["batch"]["batch_id"], record["participants"])
            )
        except Exception as error:  # noqa: BLE001 # the batch has landed: files that stay do no harm
            self.effects.emit(events.RecordKept(self.records.folder, type(error).__name__))
        return ()


@dataclass(slots=True)
class UnrecordedLog:
    """Keeps no record: a version of an application does not identify rows, so each call writes the rows it received.

    Nothing can ask for the keys files of a call once its batch has landed. `check` is as in `ReportedLog`.
    """

    keys_files: KeysFiles
    check: Callable[[Batch], None] = lambda _: None
    _own: Sequence[str] = field(default=(), init=False)

    def find(self, batch: Batch) -> None:
        """Always None."""

    def put(self, batch: Batch, payloads: Mapping[str, Payload]) -> None:
        """Remember the keys files."""
        self._own = self.keys_files.named_in(batch.batch_id, payloads)

    def landed(self, batch: Batch) -> None:
        """Remove the keys files."""
        self.keys_files.remove(self._own)
        self.check(batch)


def why_unusable(decision: Decision, prepared: PreparedBatch, file_stem: str, effects: Effects) -> str | None:
    """The reason that a prepared batch can no longer be committed; None if it can."""
    table = decision.table
    if not still_usable(decision, prepared):
        return "the ledger, the schema or the specs changed"
    manifests = (manifest.path for manifest in prepared.manifests)
    own = (is_data_file(path, data_location(table), file_stem) for path, _ in prepared.files)
    if not all_under(manifests, metadata_location(table)) or not all(own):
        return "a path is outside the table's locations, or belongs to another batch"
    io = table.io
    if not prepared.is_there(io, effects.at_once):
        return "a file is missing or has another size"
    if not translate_storage_errors(io.properties, lambda: matches_manifests(prepared, io)):
        return "its manifests name other files than it does"
    return _keys_trouble(prepared, table, file_stem, effects)


def _keys_trouble(prepared: PreparedBatch, table: Table, file_stem: str, effects: Effects) -> str | None:
    """The reason that its keys files cannot be used; None if they can, or if there are none."""
    files = () if prepared.changes is None else prepared.changes.keys_files
    folder = data_location(table)
    if not all(is_under(file.path, folder) and is_keys_file(file.path, folder, file_stem, file.task) for file in files):
        return "a keys file is outside the table's location, or belongs to another batch"
    if not translate_storage_errors(
        table.io.properties, lambda: matches_keys_files(prepared, table.io, effects.at_once)
    ):
        return "a keys file is missing, or is not the one that its task wrote"
    return None
