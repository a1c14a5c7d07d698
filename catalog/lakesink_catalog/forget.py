"""Retires a sink: its ledger entry and its ledger tag leave the table, in one commit that moves a head and says so.

A commit that only changed properties would be fenced by nothing; this one asserts the branch's head and the tag, so
that it meets no commit of the sink unseen. The sink's marks stay in its snapshots: whoever streams under its name again
is refused as `LedgerLost`, as long as one of them is in the branch.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from lakesink_catalog.commit import Surroundings
from lakesink_catalog.errors import CommitUnresolved, SettingsError
from lakesink_catalog.history import FORGOTTEN, sinks
from lakesink_catalog.identity import MAIN_BRANCH, SinkKey
from lakesink_catalog.locations import metadata_location
from lakesink_catalog.manifests import manifests_under, write_list
from lakesink_catalog.nearest import did_you_mean
from lakesink_catalog.redact import describe
from lakesink_catalog.request import branch_at, snapshot_time_ms
from lakesink_catalog.retry import RetryPolicy, attempts
from lakesink_catalog.summary import carried_totals
from lakesink_catalog.tags import audit_tags
from lakesink_catalog.verdict import SUPPORTED_FORMAT_VERSION
from lakesink_catalog.view import view_refs, view_table

logger = logging.getLogger("lakesink")

_HOW_TO_NAME = (
    "lakesink status shows every sink; --txn names an application id; --tags removes audit tags of a forgotten sink."
)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was retired.

    Attributes:
        snapshot_id: The snapshot that says so.
        branch: Branch whose head it is: the sink's, or the main one if that is gone.
        records: Folder of the sink's prepared records, which stays.
        audit_tags: Names of the audit tags that went.
    """

    snapshot_id: int
    branch: str
    records: str
    audit_tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Forgetting:
    """Retires one sink of one table.

    Attributes:
        load: Loads the table afresh, past any cache.
        key: The sink.
        with_audit_tags: True to remove its audit tags too, so that expiry may take what they keep.
        retry: Bounds of the attempts.
        surroundings: Clock, sleep and chance.
    """

    load: Callable[[], Table]
    key: SinkKey
    with_audit_tags: bool = False
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(num_retries=5))
    surroundings: Surroundings = field(default_factory=Surroundings)

    def find(self) -> Table:
        """The table as it is, if it knows the sink.

        Raises:
            SettingsError: It knows no such sink, has forgotten it, or has a format version that lakesink cannot write.
        """
        table = self.load()
        self._check(table)
        return table

    def run(self) -> Forgotten:
        """Forget the sink; what became of each attempt is seen by the next one's look, and of the last by one more.

        Raises:
            SettingsError: See `find`.
            CommitUnresolved: Attempts ran out; nothing was deleted, and it can be run again.
        """
        first = self.find()
        snapshot_id = self.surroundings.new_snapshot_id()
        trouble = "the catalog's answer did not show it"
        tags: dict[str, int] = {}
        for attempt in attempts(self.retry, self.surroundings):
            try:
                table = self.load()
                if self._is_done(table, snapshot_id):
                    return self._forgotten(table, snapshot_id, tags)
                tags = self._tags(table)
                requirements, updates = self._request(table, snapshot_id, tags)
                table.catalog.commit_table(
                    table, (AssertTableUUID(uuid=first.metadata.table_uuid), *requirements), updates
                )
            except SettingsError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever a catalog or a store raises is neither yes nor no
                trouble = describe(error, first.catalog.properties)
                logger.warning("lakesink.forget.unknown attempt=%d %s", attempt, trouble)
        with suppress(Exception):  # a look that fails proves nothing
            table = self.load()
            if self._is_done(table, snapshot_id):
                return self._forgotten(table, snapshot_id, tags)
        raise _unresolved(self.key, trouble)

    def _check(self, table: Table) -> None:
        if not self._is_known(table):
            raise _unknown(table, self.key)
        if table.metadata.format_version != SUPPORTED_FORMAT_VERSION:
            raise _unsupported(table, self.key)

    def _is_done(self, table: Table, snapshot_id: int) -> bool:
        return table.metadata.snapshot_by_id(snapshot_id) is not None and not self._is_known(table)

    def _is_known(self, table: Table) -> bool:
        return self.key.ledger_property in table.properties or bool(self._tags(table))

    def _tags(self, table: Table) -> dict[str, int]:
        """Tags to remove, with the snapshots that they show; a branch that bears such a name is somebody's data."""
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
        updates: list[TableUpdate] = [
            AddSnapshotUpdate(snapshot=self._snapshot(table, head, snapshot_id)),
            branch_at(table, branch, snapshot_id),
        ]
        if self.key.ledger_property in table.properties:
            updates.append(RemovePropertiesUpdate(removals=[self.key.ledger_property]))
        for name, there in tags.items():
            requirements.append(AssertRefSnapshotId(ref=name, snapshot_id=there))
            updates.append(RemoveSnapshotRefUpdate(ref_name=name))
        return requirements, tuple(updates)

    def _snapshot(self, table: Table, head: int | None, snapshot_id: int) -> Snapshot:
        """An empty one, with the head's manifests; its summary is where the sink's end is logged."""
        parent = table.metadata.snapshot_by_id(head) if head is not None else None
        sequence_number = view_table(table, self.key).last_sequence_number + 1
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
            summary=Summary(
                Operation.APPEND,
                **carried_totals(parent.summary if parent else None),
                **{FORGOTTEN: self.key.ledger_property},
            ),
            schema_id=table.metadata.current_schema_id,
        )


def _unknown(table: Table, key: SinkKey) -> SettingsError:
    known = [state.sink for state in sinks(table) if (state.branch, state.kind) == (key.branch, key.kind.value)]
    return SettingsError(
        "SINK_UNKNOWN",
        f"The table has no ledger entry of {key.name!r} for branch {key.branch!r}.",
        data="Nothing was changed.",
        action=" ".join([*filter(None, [did_you_mean(key.name, known)]), _HOW_TO_NAME]),
    )


def _unsupported(table: Table, key: SinkKey) -> SettingsError:
    return SettingsError(
        "UNSUPPORTED",
        f"The table has format version {table.metadata.format_version}; lakesink writes version "
        f"{SUPPORTED_FORMAT_VERSION}.",
        data="Nothing was changed.",
        action=f"No stream of lakesink can write this table, so {key.name!r} may stay in it. If its tag keeps a"
        f" snapshot from expiry, drop the tag {key.ledger_tag} with the engine that writes this version.",
    )


def _unresolved(key: SinkKey, trouble: str) -> CommitUnresolved:
    return CommitUnresolved(
        "COMMIT_UNRESOLVED",
        f"The table was not seen to have forgotten {key.name!r}.",
        data=f"No row was touched and no file deleted. The last trouble: {trouble}.",
        action="Make the catalog reachable and run the command again: it looks first.",
    )
