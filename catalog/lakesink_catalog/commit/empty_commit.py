"""Commits that change what a table says of a sink, and no row: an empty snapshot moves a head and says so.

A commit that only changed properties would be fenced by nothing; this one asserts the branch's head and the tags, so
that it meets no commit of the sink unseen.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AssertTableUUID, TableRequirement, TableUpdate

from lakesink_catalog.commit.fence import Surroundings
from lakesink_catalog.commit.request import snapshot_time_ms
from lakesink_catalog.commit.summary import carried_totals
from lakesink_catalog.manifests.write import manifests_under, write_list
from lakesink_protocol.errors import CommitUnresolved, SettingsError
from lakesink_protocol.fence import Unseen, fenced
from lakesink_protocol.redact import describe
from lakesink_protocol.retry import RetryPolicy

logger = logging.getLogger("lakesink")

Build = Callable[[Table, int], tuple[list[TableRequirement], tuple[TableUpdate, ...]]]
"""Requirements and updates of one attempt, for the table as loaded and the id of the snapshot to come."""


@dataclass(frozen=True, slots=True)
class EmptyCommit:
    """One such commit, attempted until the table shows it.

    Attributes:
        load: Loads the table afresh, past any cache.
        name: The command, for the log.
        retry: Bounds of the attempts.
        surroundings: Clock, sleep and chance.
    """

    load: Callable[[], Table]
    name: str
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(num_retries=5))
    surroundings: Surroundings = field(default_factory=Surroundings)

    def run(self, first: Table, build: Build, is_done: Callable[[Table], bool]) -> tuple[Table, int] | Unseen:
        """Attempt it until the table shows it.

        Args:
            first: The table that is meant; another one under its name is refused.
            build: Builds an attempt.
            is_done: The table shows what was wanted, once the snapshot is there.

        Returns:
            The table that shows it, and the snapshot's id.

        Raises:
            SettingsError: What `build` raises.
        """
        attempts = _Attempts(self, first, build, is_done, self.surroundings.new_snapshot_id())
        return fenced(attempts, self.retry, self.surroundings)

    def snapshot(self, table: Table, head: int | None, snapshot_id: int, says: Mapping[str, str]) -> Snapshot:
        """An empty one, with the head's manifests; its summary is where the change is logged."""
        parent = table.metadata.snapshot_by_id(head) if head is not None else None
        sequence_number = getattr(table.metadata, "last_sequence_number", 0) + 1  # version 1 has none
        return Snapshot(
            snapshot_id=snapshot_id,
            parent_snapshot_id=head,
            sequence_number=sequence_number,
            timestamp_ms=snapshot_time_ms(table, self.surroundings.now_ms()),
            manifest_list=write_list(
                table,
                manifests_under(table.io, parent),
                snapshot_id=snapshot_id,
                parent_id=head,
                sequence_number=sequence_number,
            ),
            summary=Summary(Operation.APPEND, **carried_totals(parent.summary if parent else None), **says),
            schema_id=table.metadata.current_schema_id,
        )


@dataclass(frozen=True, slots=True)
class _Attempts:
    """What became of each attempt is seen by the next one's load, and of the last by one more."""

    commit: EmptyCommit
    first: Table
    build: Build
    is_done: Callable[[Table], bool]
    snapshot_id: int

    def attempt(self, _number: int) -> tuple[Table, int] | None:
        table = self.commit.load()
        if self._shows(table):
            return table, self.snapshot_id
        requirements, updates = self.build(table, self.snapshot_id)
        uuid = AssertTableUUID(uuid=self.first.metadata.table_uuid)
        table.catalog.commit_table(table, (uuid, *requirements), updates)
        return None

    def look(self, _number: int) -> tuple[Table, int] | None:
        table = self.commit.load()
        return (table, self.snapshot_id) if self._shows(table) else None

    def unsure(self, number: int, error: Exception) -> str:
        if isinstance(error, SettingsError):
            raise error
        trouble = describe(error, self.first.catalog.properties)
        logger.warning("lakesink.%s.unknown attempt=%d %s", self.commit.name, number, trouble)
        return trouble

    def _shows(self, table: Table) -> bool:
        return table.metadata.snapshot_by_id(self.snapshot_id) is not None and self.is_done(table)


def unresolved(what: str, unseen: Unseen) -> CommitUnresolved:
    """The error for such a commit that the table was not seen to have."""
    return CommitUnresolved(
        "COMMIT_UNRESOLVED",
        f"The table was not seen to have {what}.",
        data=f"No row was touched and no file deleted. The last trouble: {unseen.trouble}.",
        action="Make the catalog reachable and run the command again: it looks first.",
    )
