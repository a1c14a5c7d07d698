"""Removes a sink from a table, or restores its ledger entry, by one commit that changes no row.

A removal drops the entry and its tag, and its snapshot records that. The batch marks stay in their snapshots. A new
stream with the same sink id is refused as `LedgerLost` as long as one of these marks is in the branch.

A restoration makes the entry again from the newest marks, if it was lost or replaced by an older one. The next batch is
then judged as if the entry had always been there.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.request import branch_at, tag_at
from lakesink_catalog.commit.unprotected_first import check_has_head
from lakesink_catalog.read.history import sinks
from lakesink_catalog.read.view import view_refs, view_table
from lakesink_catalog.tables.locations import metadata_location
from lakesink_protocol.catalogue import DataState
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.fence import Unseen
from lakesink_protocol.identity import MAIN_BRANCH, NO_BATCH, SinkKey
from lakesink_protocol.ledger import FORGOTTEN, RESTORED, LedgerEntry, mark_of, next_entry
from lakesink_protocol.retry import RetryPolicy
from lakesink_protocol.situation import Situation
from lakesink_protocol.suggest import did_you_mean
from lakesink_protocol.tags import audit_tags
from lakesink_protocol.verdict import SUPPORTED_FORMAT_VERSION
from lakesink_tools.operate.empty_commit import EmptyCommit, unresolved


@dataclass(frozen=True, slots=True)
class Restored:
    """The ledger entry, and the snapshot that restored it; the snapshot is None if the entry was already correct."""

    entry: LedgerEntry
    snapshot_id: int | None


@dataclass(frozen=True, slots=True)
class Restoring:
    """Restores the ledger entry of one sink of one table."""

    load: Callable[[], Table]
    key: SinkKey
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(num_retries=5))
    effects: Effects = field(default_factory=Effects)

    def find(self) -> LedgerEntry:
        """The entry that `run` would set, or the current one if it agrees with the marks; changes nothing.

        Raises `SettingsError` if the marks do not determine the entry, or if the sink was removed.
        """
        return self._wanted(self.load())

    def run(self) -> Restored:
        """Set the entry, if it is missing or contradicts the marks. After `CommitUnresolved`, it can be run again."""
        first = self.load()
        wanted = self._wanted(first)
        if self._is_there(first):
            return Restored(wanted, None)
        done = self._commit.run(first, self._request, self._is_there)
        if isinstance(done, Unseen):
            raise unresolved(f"the ledger entry of {self.key.name!r} again", done)
        table, snapshot_id = done
        entry = view_table(table, self.key).entry
        assert entry is not None
        return Restored(entry, snapshot_id)

    @property
    def _commit(self) -> EmptyCommit:
        return EmptyCommit(self.load, "restore", self.retry, self.effects)

    def _is_there(self, table: Table) -> bool:
        situation = self._situation(table)
        return situation.entry is not None and not situation.entry_contradicted

    def _situation(self, table: Table) -> Situation:
        view = view_table(table, self.key)
        return Situation(view, self.key, NO_BATCH, view.table_uuid)

    def _wanted(self, table: Table) -> LedgerEntry:
        situation = self._situation(table)
        if situation.view.format_version != SUPPORTED_FORMAT_VERSION or not situation.view.branch_exists:
            raise _refused(self.key, "the branch does not exist, or lakesink cannot write this format version")
        if situation.view.entry_damage or _has_unread_marks(situation):
            raise _refused(self.key, "its entry is unreadable, or a newer lakesink wrote it")
        entry = situation.entry
        if entry is not None and entry.table_uuid != situation.view.table_uuid:
            raise _refused(self.key, "its entry belongs to another table", "Use another sink id and a new checkpoint.")
        return entry_of_marks(situation) if entry is None or situation.entry_contradicted else entry

    def _request(self, table: Table, snapshot_id: int) -> tuple[list[TableRequirement], tuple[TableUpdate, ...]]:
        entry = self._wanted(table)
        head = table.metadata.refs[self.key.branch].snapshot_id
        tag = table.metadata.refs.get(self.key.ledger_tag)
        requirements: list[TableRequirement] = [AssertRefSnapshotId(ref=self.key.branch, snapshot_id=head)]
        if tag is None or tag.snapshot_ref_type is SnapshotRefType.TAG:
            tagged = None if tag is None else tag.snapshot_id
            requirements.append(AssertRefSnapshotId(ref=self.key.ledger_tag, snapshot_id=tagged))
        says = {RESTORED: self.key.ledger_property}
        updates: list[TableUpdate] = [
            AddSnapshotUpdate(snapshot=self._commit.snapshot(table, head, snapshot_id, says)),
            branch_at(table, self.key.branch, snapshot_id),
            SetPropertiesUpdate(updates={self.key.ledger_property: entry.to_json()}),
        ]
        if tag is not None and tag.snapshot_ref_type is SnapshotRefType.TAG:  # its snapshot may be rolled back
            updates.append(tag_at(self.key.ledger_tag, entry.snapshot_id, tag.max_ref_age_ms))
        return requirements, tuple(updates)


def _has_unread_marks(situation: Situation) -> bool:
    """True if a newer version wrote a mark: an entry that contradicts the marks does not limit the search for them."""
    if situation.unread_version is not None:
        return True
    without = replace(situation.view, entry=None)
    wrong = situation.entry is not None and situation.entry_contradicted
    return wrong and Situation(without, situation.key, NO_BATCH, without.table_uuid).unread_version is not None


def entry_of_marks(situation: Situation) -> LedgerEntry:
    """The ledger entry that follows from the newest own marks; raises `SettingsError` if they do not determine it."""
    key, marks = situation.key, situation.own_marks
    if not marks:
        raise _refused(key, "the branch shows no batch of this sink")
    if situation.forgotten:
        raise _refused(key, "`lakesink forget` removed it", "Use another sink id.")
    newest, snapshot = marks[0]
    moved = next((mark for mark, _ in marks if mark.batch_id == mark.ledger_batch_id), None)
    if moved is None or moved.batch_id != newest.ledger_batch_id:
        raise _refused(key, f"the snapshot of its batch {newest.ledger_batch_id} has expired")
    own = mark_of(snapshot.summary)
    if own is None or own.key != key:
        raise _refused(key, "a cherry-pick restored its newest batch")
    return next_entry(
        moved,
        snapshot_id=snapshot.snapshot_id,
        sequence_number=snapshot.sequence_number or 0,
        table_uuid=situation.view.table_uuid,
    )


def _refused(key: SinkKey, why: str, action: str = "") -> SettingsError:
    return SettingsError(
        "RESTORE_REFUSED",
        f"The ledger entry of {key.name!r} for branch {key.branch[:60]!r} cannot be restored: {why}.",
        data=DataState.UNCHANGED,
        action=action or "lakesink status and lakesink log show every sink; --branch and --txn select one.",
    )


_HOW_TO_NAME = (
    "lakesink status shows every sink; --txn names an application id; --tags removes audit tags of a forgotten sink."
)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A finished removal; `records` is the folder of the sink's prepared records, which stays.

    `branch` has the new snapshot as its head: the sink's branch, or the main branch if the sink's does not exist.
    """

    snapshot_id: int
    branch: str
    records: str
    audit_tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Forgetting:
    """Removes a sink from a table; `with_audit_tags` also its audit tags, whose snapshots can then expire."""

    load: Callable[[], Table]
    key: SinkKey
    with_audit_tags: bool = False
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(num_retries=5))
    effects: Effects = field(default_factory=Effects)

    def find(self) -> Table:
        """The current table; raises `SettingsError` if the sink is unknown or the format version is unsupported."""
        table = self.load()
        self._check(table)
        return table

    def run(self) -> Forgotten:
        """Remove the sink. After `CommitUnresolved`, it can be run again."""
        tags: dict[str, int] = {}

        def build(table: Table, snapshot_id: int) -> tuple[list[TableRequirement], tuple[TableUpdate, ...]]:
            nonlocal tags
            tags = self._tags(table)
            return self._request(table, snapshot_id, tags)

        done = self._commit.run(self.find(), build, lambda table: not self._is_known(table))
        if isinstance(done, Unseen):
            raise unresolved(f"forgotten {self.key.name!r}", done)
        return self._forgotten(*done, tags)

    @property
    def _commit(self) -> EmptyCommit:
        return EmptyCommit(self.load, "forget", self.retry, self.effects)

    def _check(self, table: Table) -> None:
        if not self._is_known(table):
            raise _unknown(table, self.key)
        if table.metadata.format_version != SUPPORTED_FORMAT_VERSION:
            raise _unsupported(table, self.key)
        check_has_head(table, self._branch(table))

    def _is_known(self, table: Table) -> bool:
        return self.key.ledger_property in table.properties or bool(self._tags(table))

    def _tags(self, table: Table) -> dict[str, int]:
        """Tags to remove, with their snapshots. A branch with such a name stays: it is another user's data."""
        refs = view_refs(table)
        ledger_tag = refs.get(self.key.ledger_tag)
        own = {self.key.ledger_tag: ledger_tag} if ledger_tag else {}
        audit = audit_tags(self.key, refs) if self.with_audit_tags else {}
        return {name: snapshot.snapshot_id for name, snapshot in {**own, **audit}.items()}

    def _forgotten(self, table: Table, snapshot_id: int, tags: Iterable[str]) -> Forgotten:
        folder = f"{metadata_location(table)}/{self.key.record_folder}"
        audit = tuple(sorted(name for name in tags if name != self.key.ledger_tag))
        return Forgotten(snapshot_id, self._branch(table), folder, audit)

    def _branch(self, table: Table) -> str:
        return self.key.branch if self.key.branch in table.metadata.refs else MAIN_BRANCH

    def _request(
        self, table: Table, snapshot_id: int, tags: Mapping[str, int]
    ) -> tuple[list[TableRequirement], tuple[TableUpdate, ...]]:
        self._check(table)
        branch, refs = self._branch(table), table.metadata.refs
        head = refs[branch].snapshot_id if branch in refs else None
        requirements: list[TableRequirement] = [AssertRefSnapshotId(ref=branch, snapshot_id=head)]
        says = {FORGOTTEN: self.key.ledger_property}
        updates: list[TableUpdate] = [
            AddSnapshotUpdate(snapshot=self._commit.snapshot(table, head, snapshot_id, says)),
            branch_at(table, branch, snapshot_id),
        ]
        if self.key.ledger_property in table.properties:
            updates.append(RemovePropertiesUpdate(removals=[self.key.ledger_property]))
        for name, there in tags.items():
            requirements.append(AssertRefSnapshotId(ref=name, snapshot_id=there))
            updates.append(RemoveSnapshotRefUpdate(ref_name=name))
        return requirements, tuple(updates)


def _unknown(table: Table, key: SinkKey) -> SettingsError:
    known = [state.sink for state in sinks(table) if (state.branch, state.kind) == (key.branch, key.kind.value)]
    return SettingsError(
        "SINK_UNKNOWN",
        f"The table has no ledger entry of {key.name!r} for branch {key.branch!r}.",
        action=" ".join([*filter(None, [did_you_mean(key.name, known)]), _HOW_TO_NAME]),
    )


def _unsupported(table: Table, key: SinkKey) -> SettingsError:
    return SettingsError(
        "UNSUPPORTED",
        f"The table has format version {table.metadata.format_version}; lakesink writes version "
        f"{SUPPORTED_FORMAT_VERSION}.",
        data="Nothing was changed in the table.",
        action=f"lakesink cannot write this table, so the entry for {key.name!r} is harmless. If its tag prevents the"
        f" expiry of a snapshot, drop the tag {key.ledger_tag} with the engine that writes this version.",
    )
