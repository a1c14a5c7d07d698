"""Commits that change the state of a sink but no row: an empty snapshot moves the head and records the change.

No assertion could fence a commit that only changes properties. This commit asserts the branch's head and the tags, so a
concurrent commit of the sink makes it fail.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
)

from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.outcomes import is_final
from lakesink_catalog.commit.request import branch_at, snapshot_on, snapshot_time_ms
from lakesink_catalog.commit.summary import carried_totals
from lakesink_catalog.manifests.lists import manifests_under
from lakesink_protocol.errors import CommitUnresolved, SettingsError
from lakesink_protocol.events import ChangeUnknown
from lakesink_protocol.fence import Unseen, check_sent, fenced
from lakesink_protocol.identity import MAIN_BRANCH, SinkKey
from lakesink_protocol.redact import describe
from lakesink_protocol.retry import RetryPolicy


@dataclass(frozen=True, slots=True)
class EmptyCommit(ABC):
    """One change of one sink of one table; another table under the same name is refused."""

    load: Callable[[], Table]
    key: SinkKey
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(num_retries=5))
    effects: Effects = field(default_factory=Effects)
    name: ClassVar[str]  # the command, for the log
    mark: ClassVar[str]  # under which the snapshot's summary names the ledger property

    @abstractmethod
    def changes(self, table: Table) -> tuple[Sequence[TableRequirement], Sequence[TableUpdate]]:
        """What one attempt asserts and changes beside the branch; its `SettingsError` ends the attempts."""

    @abstractmethod
    def is_done(self, table: Table) -> bool:
        """True if the table, which has the new snapshot, is in the requested state."""

    def branch(self, table: Table) -> str:
        """The branch that gets the snapshot: that of the sink, or the main branch if there is none."""
        return self.key.branch if self.key.branch in table.metadata.refs else MAIN_BRANCH

    def commit(self, first: Table, what: str) -> tuple[Table, int, Sequence[TableUpdate]]:
        """Attempt the commit until the table shows it; returns that table, the new snapshot, and what changed.

        Raises a `CommitUnresolved` if the table does not show it, with the change in words.
        """
        attempts = _Attempts(self, first, self.effects.new_snapshot_id())
        found = fenced(attempts, self.retry, self.effects)
        if isinstance(found, Unseen):
            raise CommitUnresolved.of("COMMIT_UNRESOLVED.empty", what=what, trouble=found.trouble)
        return found, attempts.snapshot_id, attempts.changes


@dataclass(slots=True)
class _Attempts:
    """Each attempt loads the table and sees the outcome of the one before; a final load sees that of the last one."""

    change: EmptyCommit
    first: Table
    snapshot_id: int
    changes: Sequence[TableUpdate] = ()
    _sent: bool = False

    def attempt(self, _number: int) -> Table | None:
        effects = self.change.effects
        with effects.turn(self.first, effects.emit):
            table = self.change.load()
            if self._shows(table):
                return table
            requirements, self.changes = self.change.changes(table)
            branch = self.change.branch(table)
            snapshot = self._snapshot(table, branch)
            uuid = AssertTableUUID(uuid=self.first.metadata.table_uuid)
            head = AssertRefSnapshotId(ref=branch, snapshot_id=snapshot.parent_snapshot_id)
            moved = AddSnapshotUpdate(snapshot=snapshot), branch_at(table, branch, self.snapshot_id)
            self._sent = True
            table.catalog.commit_table(table, (uuid, head, *requirements), (*moved, *self.changes))
        return None

    def _snapshot(self, table: Table, branch: str) -> Snapshot:
        """An empty snapshot with the head's manifests; its summary records the change."""
        head = table.snapshot_by_name(branch)
        summary = {**carried_totals(head.summary if head else None), self.change.mark: self.change.key.ledger_property}
        effects, parent_id = self.change.effects, head.snapshot_id if head else None
        time_ms = snapshot_time_ms(table, effects.now_ms(), effects.emit)
        return snapshot_on(table, parent_id, self.snapshot_id, manifests_under(table.io, head), summary, time_ms)

    def look(self, _number: int) -> Table | None:
        table = self.change.load()
        return table if self._shows(table) else None

    def unsure(self, number: int, error: Exception) -> str:
        known = self.first.catalog.properties
        if isinstance(error, SettingsError) or (not self._sent and is_final(error)):
            raise error
        check_sent(error, sent=self._sent, known=known)
        trouble = describe(error, known)
        self.change.effects.emit(ChangeUnknown(self.change.name, number, trouble))
        return trouble

    def _shows(self, table: Table) -> bool:
        return table.metadata.snapshot_by_id(self.snapshot_id) is not None and self.change.is_done(table)
