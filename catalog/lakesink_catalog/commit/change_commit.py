"""Commits a change that belongs to no batch: a compaction, or a command that changes the state of a sink and no row.

No assertion could fence a commit that only changes properties. So each of them has a snapshot, and asserts the branch's
head and the tags: a concurrent commit of the sink makes it fail.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.old_metadata import delete_old_metadata
from lakesink_catalog.commit.outcomes import is_final
from lakesink_catalog.commit.request import Merge, build_request, snapshot_time_ms, unmerged
from lakesink_catalog.commit.table_change import Change
from lakesink_catalog.snapshots import snapshots_by_id
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.events import ChangeUnknown
from lakesink_protocol.fence import GivenUp, Unseen, check_sent, fenced
from lakesink_protocol.redact import describe
from lakesink_protocol.retry import RetryPolicy

Make = Callable[[Table, int], Change | None]
"""The change of the loaded table, with this id of its snapshot; None if it needs none. A `SettingsError` refuses it."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The table that shows a change, and the change as it was sent last; None if the table needed none."""

    table: Table
    change: Change | None


@dataclass(frozen=True, slots=True)
class ChangeCommit:
    """One change, attempted until the table shows it.

    Attributes:
        name: The command, for the log.
        retry: Without retries, any error before the request, and a conflict, are raised.
        merge_of: What merges manifests in the snapshot with this id.
    """

    load: Callable[[], Table]
    name: str
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(num_retries=5))
    effects: Effects = field(default_factory=Effects)
    merge_of: Callable[[int], Merge] = lambda _: unmerged

    def run(self, first: Table, make: Make, is_done: Callable[[Table], bool] = lambda _: True) -> Applied | Unseen:
        """Attempt the change until the table shows it.

        Args:
            first: The table to change; another table under the same name is left alone.
            make: Makes the change of an attempt.
            is_done: Checks the requested state, once the snapshot is in the table.
        """
        attempts = _Attempts(self, first, make, is_done, self.effects.new_snapshot_id())
        return fenced(attempts, self.retry, self.effects)


@dataclass(slots=True)
class _Attempts:
    """Each attempt loads the table and sees the outcome of the one before; a final load sees that of the last one."""

    commit: ChangeCommit
    first: Table
    make: Make
    is_done: Callable[[Table], bool]
    snapshot_id: int
    _on: Table | None = None
    _change: Change | None = None

    def attempt(self, _number: int) -> Applied | None:
        effects = self.commit.effects
        with effects.turn(self.first, effects.emit):
            table = self.commit.load()
            if self._shows(table):
                return self._applied(table)
            if table.metadata.table_uuid != self.first.metadata.table_uuid:
                raise GivenUp("another table has its name")
            change = self.make(table, self.snapshot_id)
            if change is None:
                return Applied(table, None)
            time_ms = snapshot_time_ms(table, effects.now_ms(), effects.emit)
            request = build_request(
                table, change, time_ms, effects.emit, effects.at_once, self.commit.merge_of(self.snapshot_id)
            )
            self._on, self._change = table, change
            table.catalog.commit_table(table, request.requirements, request.updates)
        return None

    def look(self, _number: int) -> Applied | None:
        table = self.commit.load()
        return self._applied(table) if self._shows(table) else None

    def unsure(self, number: int, error: Exception) -> str:
        known, sent = self.first.catalog.properties, self._change is not None
        if isinstance(error, SettingsError) or (not sent and is_final(error)):
            raise error
        if not self.commit.retry.num_retries and (not sent or isinstance(error, CommitFailedException)):
            raise error
        check_sent(error, sent=sent, known=known)
        trouble = describe(error, known)
        self.commit.effects.emit(ChangeUnknown(self.commit.name, number, trouble))
        return trouble

    def _shows(self, table: Table) -> bool:
        return snapshots_by_id(table.metadata).get(self.snapshot_id) is not None and self.is_done(table)

    def _applied(self, table: Table) -> Applied:
        if self._on is not None:
            delete_old_metadata(self._on, table.metadata, self.commit.effects.emit)
        return Applied(table, self._change)
