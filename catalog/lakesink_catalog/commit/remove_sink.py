"""Removes a sink from a table: one commit drops its ledger entry and its ledger tag, and its snapshot records that.

The batch marks of the sink stay in its snapshots. A new stream with the same sink id is refused as `LedgerLost` as long
as one of these marks is in the branch.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pyiceberg.table import Table
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from lakesink_catalog.commit.empty_commit import EmptyCommit, unresolved
from lakesink_catalog.commit.fence import Effects
from lakesink_catalog.commit.request import branch_at
from lakesink_catalog.commit.unprotected_first import check_has_head
from lakesink_catalog.read.history import sinks
from lakesink_catalog.read.view import view_refs
from lakesink_catalog.tables.locations import metadata_location
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.fence import Unseen
from lakesink_protocol.identity import MAIN_BRANCH, SinkKey
from lakesink_protocol.ledger import FORGOTTEN
from lakesink_protocol.retry import RetryPolicy
from lakesink_protocol.suggest import did_you_mean
from lakesink_protocol.tags import audit_tags
from lakesink_protocol.verdict import SUPPORTED_FORMAT_VERSION

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
