"""Bugs of the commit call: answers taken for more than they are, fences left out, and clean-up that comes too soon."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from pyiceberg.exceptions import CommitFailedException, ServiceUnavailableError
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    SetPropertiesUpdate,
    update_table_metadata,
)

from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.transaction import IcebergTransaction
from lakesink_catalog.commit import batch_commit as commit
from lakesink_catalog.commit.batch_commit import FencedCommit
from lakesink_catalog.commit.decision import Decision
from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_catalog.commit.request import Request, build_request
from lakesink_catalog.commit.table_change import Change
from lakesink_catalog.manifests.merging import ManifestMerger
from lakesink_catalog.read.view import view_table
from lakesink_protocol.identity import Batch
from lakesink_protocol.ledger import next_entry
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import Commit
from proof.mutants.mutant import Focus, Patches, mutant

REBASES = 4


@mutant(
    "P2: the ledger is asked once, before the loop; an attempt asks no more.",
    seen_in="check-then-append in most hand-written foreachBatch sinks",
    focus=Focus(actions=("twin",) * 6),
    scenario="a driver comes back before its commit",
)
def check_outside_the_attempt(patches: Patches) -> None:
    """Each attempt goes to the newest head, whoever has committed meanwhile."""

    def decide(self: FencedCommit, batch: Batch) -> Any:
        found = real(self, batch)
        return found if isinstance(found.verdict, Commit) else replace(found, verdict=Commit(0))

    real = patches.put(FencedCommit, "decide", decide)
    patches.put(commit, "still_usable", lambda _decision, _prepared: True)


@mutant(
    "P1: a conflict is resolved within the call, by the same snapshot on the new head.",
    seen_in="PyIceberg's Transaction, which re-bases an append and commits again by itself",
    focus=Focus(actions=("twin",) * 6),
    scenario="two drivers in the same call",
)
def rebase_of_the_library_left_on(patches: Patches) -> None:
    """As a library does that knows of appends, and nothing of batches."""

    def send(self: FencedCommit, decision: Decision, batch: Batch, prepared: PreparedBatch, asked: Request) -> Any:
        try:
            return real(self, decision, batch, prepared, asked)
        except CommitFailedException:
            return _rebase(self, decision, batch, prepared)

    real = patches.put(FencedCommit, "send", send)


@mutant(
    "P5: a conflict is taken for proof that nothing of ours landed: cleaned up, and written again.",
    seen_in="Iceberg #12818, #13352: the transport sends twice, and our own first try makes the second a conflict",
    focus=Focus(("sent twice by the transport",)),
    scenario="the transport sends twice",
)
def conflict_taken_as_rejected(patches: Patches) -> None:
    """The files go, be they referenced or not."""

    def send(self: FencedCommit, decision: Decision, batch: Batch, prepared: PreparedBatch, asked: Request) -> Any:
        try:
            return real_send(self, decision, batch, prepared, asked)
        except CommitFailedException as error:
            raise _Rejected(decision.table.io) from error

    def commit_batch(self: FencedCommit, batch: Batch, prepared: PreparedBatch, *rest: Any) -> Any:
        try:
            return real_commit(self, batch, prepared, *rest)
        except _Rejected as rejected:
            _delete(rejected.io, [path for path, _ in prepared.files])
            return None

    real_send = patches.put(FencedCommit, "send", send)
    real_commit = patches.put(FencedCommit, "commit", commit_batch)


@mutant(
    "P5: 503 is taken for a request that was not carried out, which may be made anew.",
    seen_in="PyIceberg, for which 503 is no unknown outcome; whatever retries by status",
    focus=Focus(("answer lost",)),
    scenario="503 after the commit",
)
def unavailable_taken_as_rejected(patches: Patches) -> None:
    """The same files under a new snapshot id, and nobody looks first."""

    def send(self: FencedCommit, decision: Decision, batch: Batch, prepared: PreparedBatch, asked: Request) -> Any:
        try:
            return real(self, decision, batch, prepared, asked)
        except ServiceUnavailableError:
            snapshot_id = self.effects.new_snapshot_id()
            manifests = tuple(replace(manifest, snapshot_id=snapshot_id) for manifest in prepared.manifests)
            return _rebase(self, decision, batch, replace(prepared, snapshot_id=snapshot_id, manifests=manifests))

    real = patches.put(FencedCommit, "send", send)


@mutant(
    "P5: no answer is taken for a good one.",
    seen_in="the protocol's own model: unknown = landed loses rows",
    focus=Focus(("request lost",)),
    scenario="the request is lost",
)
def unknown_taken_as_landed(patches: Patches) -> None:
    """What the request would have made of the table is taken for what it has made."""

    def send(self: FencedCommit, decision: Decision, batch: Batch, prepared: PreparedBatch, asked: Request) -> Any:
        try:
            return real(self, decision, batch, prepared, asked)
        except (CommitFailedException, ValueError):
            raise
        except Exception:  # noqa: BLE001 - the bug
            table = decision.table
            return update_table_metadata(table.metadata, asked.updates, metadata_location=table.metadata_location)

    real = patches.put(FencedCommit, "send", send)


@mutant(
    "P6: what a batch wrote is deleted when its commit fails, although it may have landed, or land later.",
    seen_in="Iceberg #6778, DuckDB, ClickHouse, Hive; Spark calls abort() with all messages after a failed commit()",
    focus=Focus(("answer lost", "load failed"), seed=4),
    scenario="the catalog is gone after the commit",
)
def abort_deletes(patches: Patches) -> None:
    """Tidy, and wrong."""

    def commit_batch(self: IcebergSink, transaction: IcebergTransaction, prepared: PreparedBatch) -> Any:
        try:
            return real(self, transaction, prepared)
        except Exception:
            _delete(transaction.decision.table.io, [path for path, _ in prepared.files])
            raise

    real = patches.put(IcebergSink, "commit", commit_batch)


@mutant(
    "P6: an attempt removes the manifest lists of those before it; one of them may still land.",
    seen_in="Iceberg #13443, #4673, #9406; PyIceberg's Transaction on its last attempt",
    focus=Focus(("request late", "request lost")),
    scenario="an earlier attempt lands late",
)
def earlier_manifests_cleaned(patches: Patches) -> None:
    """Each new request first tidies after the last one."""
    written: dict[int, tuple[FencedCommit, list[str]]] = {}

    def ask(self: FencedCommit, decision: Decision, *rest: Any) -> Any:
        made = real(self, decision, *rest)
        _, earlier = written.pop(id(self), (self, []))
        _delete(decision.table.io, earlier)
        lists = [update.snapshot.manifest_list for update in made.updates if isinstance(update, AddSnapshotUpdate)]
        written[id(self)] = self, lists
        return made

    real = patches.put(FencedCommit, "request", ask)


@mutant(
    "P5: a batch without rows moves the ledger and not the head, so that nothing fences it.",
    seen_in="two property-only commits that both land (PyIceberg, as run)",
    focus=Focus(),
    scenario="batches without rows",
)
def empty_batch_as_properties_only(patches: Patches) -> None:
    """No snapshot for no rows."""

    def change(decision: Decision, prepared: PreparedBatch, *rest: Any) -> Change:
        made: Change = real(decision, prepared, *rest)
        previous, key = decision.situation.entry, decision.situation.key
        if prepared.files or previous is None:
            return made
        entry = next_entry(
            decision.situation.batch,
            snapshot_id=previous.snapshot_id,
            sequence_number=previous.sequence_number,
            table_uuid=previous.table_uuid,
        )
        return replace(made, prepared=None, properties={key.ledger_property: entry.to_json()})

    def build(table: Table, change: Change, *rest: Any) -> Request:
        if change.prepared is not None:
            return build_request(table, change, *rest)
        fence = AssertRefSnapshotId(ref=change.branch, snapshot_id=change.head)
        return Request((fence,), (SetPropertiesUpdate(updates=change.properties),), "")

    real = patches.put(commit, "batch_change", change)
    patches.put(commit, "build_request", build)


@mutant(
    "P3: there is no ledger tag: a rollback whose evidence expires is not noticed, a late request not fenced.",
    seen_in="every sink that keeps its marker in the table's properties alone",
    focus=Focus(actions=("roll back", "foreign append", "expire"), seed=8),
    scenario="rolled back, and the evidence expired",
)
def no_tag_fence(patches: Patches) -> None:
    """The tag is neither set nor asserted."""
    without_tag(patches)


def without_tag(patches: Patches) -> None:
    """Commits neither assert the ledger tag nor move it."""

    def change(decision: Decision, *rest: Any) -> Change:
        made: Change = real(decision, *rest)
        tag = decision.situation.key.ledger_tag
        return replace(made, tags=tuple(one for one in made.tags if one.name != tag))

    real = patches.put(commit, "batch_change", change)


class _Rejected(BaseException):
    """Past everything that takes an error for an unknown outcome."""

    def __init__(self, io: FileIO) -> None:
        super().__init__()
        self.io = io


def _rebase(fence: FencedCommit, decision: Decision, batch: Batch, prepared: PreparedBatch) -> TableMetadata:
    """The batch on the newest head, whatever the ledger says of it there."""
    assert isinstance(decision.verdict, Commit)
    for attempt in range(REBASES):
        table = fence.load()
        situation = Situation(view_table(table, fence.key), fence.key, batch, fence.start_uuid)
        merger = ManifestMerger(fence.options.merge, prepared.snapshot_id)
        asked = fence.request(replace(decision, table=table, situation=situation), prepared, merger)
        try:
            return table.catalog.commit_table(table, asked.requirements, asked.updates).metadata
        except CommitFailedException:
            if attempt == REBASES - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _delete(io: FileIO, paths: list[str]) -> None:
    for path in paths:
        with suppress(OSError):
            io.delete(path)


MUTANTS = (
    check_outside_the_attempt,
    rebase_of_the_library_left_on,
    conflict_taken_as_rejected,
    unavailable_taken_as_rejected,
    unknown_taken_as_landed,
    abort_deletes,
    earlier_manifests_cleaned,
    empty_batch_as_properties_only,
    no_tag_fence,
)
