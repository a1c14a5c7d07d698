"""Commits that change what a table says of a sink, and no row: an empty snapshot moves a head and says so.

A commit that only changed properties would be fenced by nothing; this one asserts the branch's head and the tags, so
that it meets no commit of the sink unseen.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AssertTableUUID, TableRequirement, TableUpdate

from lakesink_catalog.commit.fence import Surroundings
from lakesink_catalog.commit.request import snapshot_time_ms
from lakesink_catalog.commit.summary import carried_totals
from lakesink_catalog.manifests.write import manifests_under, write_list
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.redact import describe
from lakesink_protocol.retry import RetryPolicy, attempts

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

    def run(self, first: Table, build: Build, is_done: Callable[[Table], bool]) -> tuple[Table | None, int, str]:
        """What became of each attempt is seen by the next one's load, and of the last by one more.

        Args:
            first: The table that is meant; another one under its name is refused.
            build: Builds an attempt.
            is_done: The table shows what was wanted, once the snapshot is there.

        Returns:
            The table that shows it, or None; the snapshot's id; the last trouble.

        Raises:
            SettingsError: What `build` raises.
        """
        snapshot_id = self.surroundings.new_snapshot_id()
        trouble = "the catalog's answer did not show it"
        uuid = AssertTableUUID(uuid=first.metadata.table_uuid)
        for attempt in attempts(self.retry, self.surroundings):
            try:
                table = self.load()
                if table.metadata.snapshot_by_id(snapshot_id) is not None and is_done(table):
                    return table, snapshot_id, ""
                requirements, updates = build(table, snapshot_id)
                table.catalog.commit_table(table, (uuid, *requirements), updates)
            except SettingsError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever a catalog or a store raises is neither yes nor no
                trouble = describe(error, first.catalog.properties)
                logger.warning("lakesink.%s.unknown attempt=%d %s", self.name, attempt, trouble)
        with suppress(Exception):  # a look that fails proves nothing
            table = self.load()
            if table.metadata.snapshot_by_id(snapshot_id) is not None and is_done(table):
                return table, snapshot_id, ""
        return None, snapshot_id, trouble

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
