"""Commits that change the state of a sink but no row: an empty snapshot moves the head and records the change.

No assertion could fence a commit that only changes properties. This commit asserts the branch's head and the tags, so a
concurrent commit of the sink makes it fail.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertTableUUID, TableRequirement, TableUpdate

from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.outcomes import is_final
from lakesink_catalog.commit.request import snapshot_on, snapshot_time_ms
from lakesink_catalog.commit.summary import carried_totals
from lakesink_catalog.manifests.lists import manifests_under
from lakesink_protocol.errors import CommitUnresolved, SettingsError
from lakesink_protocol.events import ChangeUnknown
from lakesink_protocol.fence import Unseen, check_sent, fenced
from lakesink_protocol.redact import describe
from lakesink_protocol.retry import RetryPolicy

Build = Callable[[Table, int], tuple[list[TableRequirement], tuple[TableUpdate, ...]]]
"""Requirements and updates of one attempt, from the loaded table and the id of the new snapshot."""


@dataclass(frozen=True, slots=True)
class EmptyCommit:
    """One empty commit, attempted until the table shows it. `name` is the command, for the log."""

    load: Callable[[], Table]
    name: str
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(num_retries=5))
    effects: Effects = field(default_factory=Effects)

    def run(self, first: Table, build: Build, is_done: Callable[[Table], bool]) -> tuple[Table, int] | Unseen:
        """Attempt the commit until the table shows it; returns that table and the id of the new snapshot.

        Args:
            first: The table to change; another table under the same name is refused.
            build: Builds an attempt; the `SettingsError` that it raises ends the attempts.
            is_done: Checks the requested state, once the snapshot is in the table.
        """
        attempts = _Attempts(self, first, build, is_done, self.effects.new_snapshot_id())
        return fenced(attempts, self.retry, self.effects)

    def snapshot(self, table: Table, head: int | None, snapshot_id: int, says: Mapping[str, str]) -> Snapshot:
        """An empty snapshot with the head's manifests; its summary records the change."""
        parent = table.metadata.snapshot_by_id(head) if head is not None else None
        summary = {**carried_totals(parent.summary if parent else None), **says}
        time_ms = snapshot_time_ms(table, self.effects.now_ms(), self.effects.emit)
        return snapshot_on(table, head, snapshot_id, manifests_under(table.io, parent), summary, time_ms)


@dataclass(slots=True)
class _Attempts:
    """Each attempt loads the table and sees the outcome of the one before; a final load sees that of the last one."""

    commit: EmptyCommit
    first: Table
    build: Build
    is_done: Callable[[Table], bool]
    snapshot_id: int
    _sent: bool = False

    def attempt(self, _number: int) -> tuple[Table, int] | None:
        with self.commit.effects.turn(self.first, self.commit.effects.emit):
            table = self.commit.load()
            if self._shows(table):
                return table, self.snapshot_id
            requirements, updates = self.build(table, self.snapshot_id)
            uuid = AssertTableUUID(uuid=self.first.metadata.table_uuid)
            self._sent = True
            table.catalog.commit_table(table, (uuid, *requirements), updates)
        return None

    def look(self, _number: int) -> tuple[Table, int] | None:
        table = self.commit.load()
        return (table, self.snapshot_id) if self._shows(table) else None

    def unsure(self, number: int, error: Exception) -> str:
        known = self.first.catalog.properties
        if isinstance(error, SettingsError) or (not self._sent and is_final(error)):
            raise error
        check_sent(error, sent=self._sent, known=known)
        trouble = describe(error, known)
        self.commit.effects.emit(ChangeUnknown(self.commit.name, number, trouble))
        return trouble

    def _shows(self, table: Table) -> bool:
        return table.metadata.snapshot_by_id(self.snapshot_id) is not None and self.is_done(table)


def unresolved(what: str, unseen: Unseen) -> CommitUnresolved:
    """The error for an empty commit that the table does not show."""
    return CommitUnresolved(
        "COMMIT_UNRESOLVED",
        f"The table does not show that it has {what}.",
        data=f"No row was changed and no file deleted. The last error: {unseen.trouble}.",
        action="Make the catalog reachable and run the command again: it checks the table first.",
    )
