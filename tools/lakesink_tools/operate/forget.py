"""Removes or restores the ledger entry of a sink, by the table's name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from lakesink_catalog.commit.request import tag_at
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.connect.first_snapshot import check_has_head
from lakesink_catalog.read.history import sinks
from lakesink_catalog.read.view import view_refs, view_table
from lakesink_catalog.tables.locations import metadata_location
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.identity import NAME_PATTERN, NO_BATCH, SinkKey, SinkKind
from lakesink_protocol.ledger import FORGOTTEN, RESTORED, LedgerEntry, mark_of, next_entry
from lakesink_protocol.situation import Situation
from lakesink_protocol.suggest import did_you_mean
from lakesink_protocol.tags import audit_tags
from lakesink_protocol.verdict import SUPPORTED_FORMAT_VERSION
from lakesink_tools.operate.empty_commit import EmptyCommit


@dataclass(frozen=True, slots=True)
class Restored:
    """The ledger entry, and the snapshot that restored it; the snapshot is None if the entry was already correct."""

    entry: LedgerEntry
    snapshot_id: int | None


@dataclass(frozen=True, slots=True)
class Restoring(EmptyCommit):
    """Restores the ledger entry of one sink of one table."""

    name = "restore"
    mark = RESTORED

    def find(self) -> LedgerEntry:
        """The entry that `run` would set, or the current one if it agrees with the marks; changes nothing.

        Raises `SettingsError` if the marks do not determine the entry, or if the sink was removed.
        """
        return self._wanted(self.load())

    def run(self) -> Restored:
        """Set the entry, if it is missing or contradicts the marks. After `CommitUnresolved`, it can be run again."""
        first = self.load()
        wanted = self._wanted(first)
        if self.is_done(first):
            return Restored(wanted, None)
        table, snapshot_id, _ = self.commit(first, f"the ledger entry of {self.key.name!r} again")
        entry = view_table(table, self.key).entry
        assert entry is not None
        return Restored(entry, snapshot_id)

    def is_done(self, table: Table) -> bool:
        """True if the entry is there and agrees with the marks."""
        situation = self._situation(table)
        return situation.entry is not None and not situation.entry_contradicted

    def changes(self, table: Table) -> tuple[Sequence[TableRequirement], Sequence[TableUpdate]]:
        """Set the entry, and move the ledger tag to its snapshot: that of the tag may be rolled back."""
        entry, name = self._wanted(table), self.key.ledger_tag
        updates: list[TableUpdate] = [SetPropertiesUpdate(updates={self.key.ledger_property: entry.to_json()})]
        tag = table.metadata.refs.get(name)
        if tag is None:
            return [AssertRefSnapshotId(ref=name, snapshot_id=None)], updates
        if tag.snapshot_ref_type is not SnapshotRefType.TAG:
            return [], updates
        updates.append(tag_at(name, entry.snapshot_id, tag.max_ref_age_ms))
        return [AssertRefSnapshotId(ref=name, snapshot_id=tag.snapshot_id)], updates

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


def _refused(key: SinkKey, why: str, first: str = "") -> SettingsError:
    return SettingsError.of("RESTORE_REFUSED", name=key.name, branch=key.branch[:60], why=why, first=first)


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
class Forgetting(EmptyCommit):
    """Removes a sink from a table; `with_audit_tags` also its audit tags, whose snapshots can then expire."""

    with_audit_tags: bool = False
    name = "forget"
    mark = FORGOTTEN

    def find(self) -> Table:
        """The current table; raises `SettingsError` if the sink is unknown or the format version is unsupported."""
        table = self.load()
        self._check(table)
        return table

    def run(self) -> Forgotten:
        """Remove the sink. After `CommitUnresolved`, it can be run again."""
        table, snapshot_id, updates = self.commit(self.find(), f"forgotten {self.key.name!r}")
        removed = {update.ref_name for update in updates if isinstance(update, RemoveSnapshotRefUpdate)}
        folder = f"{metadata_location(table)}/{self.key.record_folder}"
        return Forgotten(snapshot_id, self.branch(table), folder, tuple(sorted(removed - {self.key.ledger_tag})))

    def is_done(self, table: Table) -> bool:
        """True if neither entry nor tags are there."""
        return self.key.ledger_property not in table.properties and not self._tags(table)

    def changes(self, table: Table) -> tuple[Sequence[TableRequirement], Sequence[TableUpdate]]:
        """Remove the entry and the tags."""
        self._check(table)
        tags, has_entry = self._tags(table), self.key.ledger_property in table.properties
        entry = [RemovePropertiesUpdate(removals=[self.key.ledger_property])] if has_entry else []
        return (
            [AssertRefSnapshotId(ref=name, snapshot_id=there) for name, there in tags.items()],
            [*entry, *(RemoveSnapshotRefUpdate(ref_name=name) for name in tags)],
        )

    def _check(self, table: Table) -> None:
        key = self.key
        if self.is_done(table):
            known = [state.sink for state in sinks(table) if (state.branch, state.kind) == (key.branch, key.kind.value)]
            near = did_you_mean(key.name, known)
            raise SettingsError.of("SINK_UNKNOWN.no_entry", name=key.name, branch=key.branch, near=near)
        version = table.metadata.format_version
        if version != SUPPORTED_FORMAT_VERSION:
            tag = key.ledger_tag
            raise SettingsError.of("UNSUPPORTED.to_forget", format_version=version, name=key.name, ledger_tag=tag)
        check_has_head(table, self.branch(table))

    def _tags(self, table: Table) -> dict[str, int]:
        """Tags to remove, with their snapshots. A branch with such a name stays: it is another user's data."""
        refs = view_refs(table)
        ledger_tag = refs.get(self.key.ledger_tag)
        own = {self.key.ledger_tag: ledger_tag} if ledger_tag else {}
        audit = audit_tags(self.key, refs) if self.with_audit_tags else {}
        return {name: snapshot.snapshot_id for name, snapshot in {**own, **audit}.items()}


def forget_sink(
    table: str, catalog: str | None, *, sink: str, branch: str, txn: bool, tags: bool, confirm: Callable[[str], None]
) -> Forgotten:
    """Remove a sink; `txn` is True for an application id of `lakesink.append`, `tags` also removes the audit tags.

    `confirm` is called after the sink was found, and raises if the operator declines.
    """
    key = _sink_key(sink, branch, txn=txn)
    opened = connect(catalog, create=False)
    forgetting = Forgetting(lambda: load_table(opened, table), key, with_audit_tags=tags)
    forgetting.find()
    confirm(f"Will {sink} never again write to branch {branch} of {table}?")
    return forgetting.run()


def restore_sink(
    table: str, catalog: str | None, *, sink: str, branch: str, txn: bool, confirm: Callable[[str], None]
) -> Restored:
    """Restore a lost ledger entry; arguments as in `forget_sink`."""
    opened = connect(catalog, create=False)
    restoring = Restoring(lambda: load_table(opened, table), _sink_key(sink, branch, txn=txn))
    last = restoring.find().batch_id
    confirm(f"Is the stream stopped, and shall the ledger of {sink} end with batch {last}, the newest in {table}?")
    return restoring.run()


def _sink_key(sink: str, branch: str, *, txn: bool) -> SinkKey:
    """The key of the sink that a command names."""
    if NAME_PATTERN.fullmatch(sink):
        return SinkKey(sink, branch, SinkKind.TXN if txn else SinkKind.STREAM)
    raise SettingsError.of("SINK_UNKNOWN.no_id", sink=sink[:60])
