"""Removes or restores the ledger entry of a sink, by the table's name."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType

from lakesink_catalog.commit.change_commit import ChangeCommit
from lakesink_catalog.commit.decision import check_has_head
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.table_change import Change, TagMove
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.history import sinks
from lakesink_catalog.read.view import view_refs, view_table
from lakesink_catalog.tables.locations import metadata_location
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.errors import CommitUnresolved, SettingsError
from lakesink_protocol.fence import Unseen
from lakesink_protocol.identity import MAIN_BRANCH, NAME_PATTERN, NO_BATCH, SinkKey, SinkKind
from lakesink_protocol.ledger import FORGOTTEN, RESTORED, LedgerEntry, mark_of, next_entry
from lakesink_protocol.retry import RetryPolicy
from lakesink_protocol.situation import Situation
from lakesink_protocol.suggest import did_you_mean
from lakesink_protocol.tags import audit_tags
from lakesink_protocol.verdict import SUPPORTED_FORMAT_VERSION


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
        done = ChangeCommit(self.load, "restore", self.retry, self.effects).run(first, self._change, self._is_there)
        if isinstance(done, Unseen):
            raise _unresolved(f"the ledger entry of {self.key.name!r} again", done)
        entry = view_table(done.table, self.key).entry
        assert entry is not None
        return Restored(entry, done.change.snapshot_id if done.change else None)

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

    def _change(self, table: Table, snapshot_id: int) -> Change:
        entry, refs = self._wanted(table), table.metadata.refs
        tag, tags = refs.get(self.key.ledger_tag), []
        if tag is None or tag.snapshot_ref_type is SnapshotRefType.TAG:  # its snapshot may be rolled back
            there = (None, None, None) if tag is None else (tag.snapshot_id, entry.snapshot_id, tag.max_ref_age_ms)
            tags.append(TagMove(self.key.ledger_tag, *there))
        return Change(
            self.key.branch,
            refs[self.key.branch].snapshot_id,
            snapshot_id,
            says={RESTORED: self.key.ledger_property},
            properties={self.key.ledger_property: entry.to_json()},
            tags=tuple(tags),
        )


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
        commit = ChangeCommit(self.load, "forget", self.retry, self.effects)
        done = commit.run(self.find(), self._change, lambda table: not self._is_known(table))
        if isinstance(done, Unseen):
            raise _unresolved(f"forgotten {self.key.name!r}", done)
        assert done.change is not None, "there is something to remove"
        folder = f"{metadata_location(done.table)}/{self.key.record_folder}"
        audit = tuple(sorted(tag.name for tag in done.change.tags if tag.name != self.key.ledger_tag))
        return Forgotten(done.change.snapshot_id, self._branch(done.table), folder, audit)

    def _check(self, table: Table) -> None:
        if not self._is_known(table):
            raise _unknown(table, self.key)
        if table.metadata.format_version != SUPPORTED_FORMAT_VERSION:
            raise SettingsError.of(
                "UNSUPPORTED.to_forget",
                format_version=table.metadata.format_version,
                name=self.key.name,
                ledger_tag=self.key.ledger_tag,
            )
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

    def _branch(self, table: Table) -> str:
        return self.key.branch if self.key.branch in table.metadata.refs else MAIN_BRANCH

    def _change(self, table: Table, snapshot_id: int) -> Change:
        self._check(table)
        branch, refs = self._branch(table), table.metadata.refs
        known = self.key.ledger_property in table.properties
        return Change(
            branch,
            refs[branch].snapshot_id if branch in refs else None,
            snapshot_id,
            says={FORGOTTEN: self.key.ledger_property},
            properties={self.key.ledger_property: None} if known else {},
            tags=tuple(TagMove(name, there, None) for name, there in self._tags(table).items()),
        )


def _unresolved(what: str, unseen: Unseen) -> CommitUnresolved:
    """The error for a change that the table does not show."""
    return CommitUnresolved.of("COMMIT_UNRESOLVED.empty", what=what, trouble=unseen.trouble)


def _unknown(table: Table, key: SinkKey) -> SettingsError:
    known = [state.sink for state in sinks(table) if (state.branch, state.kind) == (key.branch, key.kind.value)]
    return SettingsError.of(
        "SINK_UNKNOWN.no_entry",
        name=key.name,
        branch=key.branch,
        near=did_you_mean(key.name, known),
    )


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
