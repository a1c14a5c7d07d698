"""Maintains one branch of one table: looks at its files, rewrites groups of them, and commits each group by itself."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from pyiceberg.table import Table

from lakesink.keys.deleted_rows import KnownDeletes
from lakesink.keys.footers import opener
from lakesink.parquet.filesystem import NewFiles
from lakesink.sinks.iceberg.upkeep.choose import Group, Pace
from lakesink.sinks.iceberg.upkeep.columns import Unsuitable
from lakesink.sinks.iceberg.upkeep.health import Health
from lakesink.sinks.iceberg.upkeep.policy import Policy
from lakesink.sinks.iceberg.upkeep.proof import PROOF
from lakesink.sinks.iceberg.upkeep.replacing import Lost, Replacement, deleted_in
from lakesink.sinks.iceberg.upkeep.reports import (
    BUDGET,
    NOTHING_DUE,
    REST,
    TURN,
    GroupDone,
    GroupDue,
    LeftFile,
    Plan,
    Report,
    after,
)
from lakesink.sinks.iceberg.upkeep.rewrite import rewrite
from lakesink.sinks.iceberg.upkeep.seen import Seen
from lakesink_catalog.commit.change_commit import ChangeCommit
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.manifests.live import LiveFiles
from lakesink_catalog.manifests.live_reading import LiveMemory, live_files
from lakesink_catalog.read.past import head_of
from lakesink_protocol import events
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.identity import MAIN_BRANCH
from lakesink_protocol.ledger import COMPACTED, MAINTENANCE
from lakesink_protocol.redact import describe
from lakesink_protocol.retry import RetryPolicy
from lakesink_protocol.suggest import did_you_mean
from lakesink_protocol.verdict import SUPPORTED_FORMAT_VERSION

ROUNDS = 4
"""Of one run: files of older specs become small ones of the present spec, which then become larger."""


@dataclass(slots=True)
class UpkeepMemory:
    """What maintenances of one branch remember from run to run.

    Attributes:
        live: Decoded manifests; a stream shares those of its sink.
        deletes: Delete files that were read; likewise.
        left: Reasons of files that are not tried again while the table's columns stay, by path.
        columns: What these reasons are about, see `Seen.columns`.
        bounds_of: The columns whose bounds the sink wants too, by their ids.
    """

    live: LiveMemory = field(default_factory=LiveMemory)
    deletes: KnownDeletes = field(default_factory=KnownDeletes)
    left: dict[str, str] = field(default_factory=dict)
    columns: tuple[object, ...] = ()
    pace: Pace = field(default_factory=Pace)
    bounds_of: Collection[int] = ()

    def see(self, seen: Seen) -> None:
        """Forget what is not about this head."""
        paths = {file.path for file in seen.live.data} if seen.columns == self.columns else set()
        self.columns = seen.columns
        self.left = {path: why for path, why in self.left.items() if path in paths}
        self.deletes.retain({file.path for file in seen.live.deletes})


@dataclass(slots=True)
class Maintenance:
    """The maintenance of one branch of one table.

    Attributes:
        says: What the summary of each snapshot says beside its counts.
        batch_id: The batch after which a stream maintains its table, for failpoints.
    """

    load: Callable[[], Table]
    branch: str = MAIN_BRANCH
    policy: Policy = field(default_factory=Policy)
    effects: Effects = field(default_factory=Effects)
    memory: UpkeepMemory = field(default_factory=UpkeepMemory)
    says: Mapping[str, str] = field(default_factory=dict)
    batch_id: int = -1

    def look(self) -> Plan:
        """What a run would do; writes nothing.

        Raises:
            CatalogError: The table or the branch cannot be loaded, or a manifest cannot be read.
            SettingsError: `where` is no condition on partitions, or a table property is malformed.
        """
        seen = self.see()
        seen.plan(self.batch_id)
        groups, left = seen.choose(self.memory.left)
        expected = health = seen.health()
        for group in groups:
            expected = after(expected, group, seen.target_bytes)
        due = (GroupDue(seen.partition(one.files[0]), len(one.files), one.bytes, one.rows) for one in groups)
        return Plan(tuple(due), _listed(left), health, expected)

    def run(self, progress: Callable[[GroupDone], None] = lambda _: None) -> Report:
        """Rewrite what is due, group by group, until the budget ends.

        A group that fails or loses a race is left, and the others go on. Raises as `look` does; what was done stays.
        """
        if not self.memory.pace.is_due():
            return Report(Health(), Health(), (), (), REST)
        run = _Run(self, self.see(), progress, self.effects.monotonic_ms())
        before = run.seen.health()
        ended = run.all_groups()
        seen = self.see() if run.done else run.seen
        if run.done or run.left:
            self.memory.pace.note(done=bool(run.done))
        left = {**seen.choose(self.memory.left)[1], **run.left}
        return Report(before, seen.health() if run.done else before, tuple(run.done), _listed(left), ended)

    def see(self) -> Seen:
        """The table as it is now; raises as `look` does."""
        table = self.load()
        if table.metadata.format_version != SUPPORTED_FORMAT_VERSION:
            name, version = ".".join(table.name()), table.metadata.format_version
            raise CatalogError.of("UNSUPPORTED", table=name, format_version=version)
        if self.branch != MAIN_BRANCH and head_of(table, self.branch) is None:  # a commit would move a tag
            near, name = did_you_mean(self.branch, table.metadata.refs), ".".join(table.name())
            raise CatalogError.of("BRANCH_MISSING.looked_for", table=name, branch=self.branch[:60], near=near)
        budget = self.policy.budget
        most = None if budget is None else self.memory.pace.bytes_in(budget.total_seconds())
        seen = Seen(table, self.of_head(table), self.policy, most)
        self.memory.see(seen)
        return seen

    def of_head(self, table: Table) -> LiveFiles:
        """The live files of the branch in a loaded table."""
        at_once, memory = self.effects.at_once, self.memory
        head, bounds_of = head_of(table, self.branch), memory.bounds_of
        return live_files(table, head, memory.live, bounds_of=bounds_of, at_once=at_once, equality=True)


def _listed(left: Mapping[str, str]) -> tuple[LeftFile, ...]:
    return tuple(LeftFile(path, why) for path, why in left.items())


@dataclass(slots=True)
class _Run:
    """One run.

    Attributes:
        left: Reasons of files that this run does not try again, by path.
    """

    of: Maintenance
    seen: Seen
    progress: Callable[[GroupDone], None]
    began_ms: int
    done: list[GroupDone] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)

    def all_groups(self) -> str:
        """Replace groups until none is due; returns why the run ended."""
        ended = NOTHING_DUE
        for number in range(ROUNDS):
            if number:
                self.seen = self.of.see()
            groups, _ = self.seen.choose({**self.of.memory.left, **self.left})
            for group in groups:
                if not self._is_in_budget(group):
                    ended = BUDGET  # a smaller one may be
                elif not self._try(group) and self._is_another_at_work():
                    return TURN
            if not groups or ended == BUDGET:
                break
        if ended == BUDGET and not self.done:
            self.of.memory.pace.hope()
        return ended

    def _is_in_budget(self, group: Group) -> bool:
        budget, elapsed_ms = self.of.policy.budget, self.of.effects.monotonic_ms() - self.began_ms
        return budget is None or elapsed_ms / 1000 + self.of.memory.pace.seconds(group) <= budget.total_seconds()

    def _try(self, group: Group) -> bool:
        """Replace a group, or leave it; False if another writer was quicker."""
        of, table = self.of, self.seen.table
        name, count = ".".join(table.name()), len(group.files)
        try:
            done = self._replace(group)
        except Exception as error:  # noqa: BLE001 - the table is right without it
            trouble = describe(error, {**table.catalog.properties, **table.io.properties})
            why = str(error) if isinstance(error, Unsuitable) else f"failed: {trouble}"
            if isinstance(error, Unsuitable) and error.files and not why.startswith(PROOF):
                of.memory.left |= error.files
                of.effects.emit(events.GroupFailed(name, len(error.files), why))
                rest = tuple(file for file in group.files if file.path not in error.files)
                if len(rest) > 1:  # one alone is a group of the next round, if it is due
                    return self._try(replace(group, files=rest))
            else:
                self.left |= dict.fromkeys((file.path for file in group.files), why)
                failed = events.GroupLost if isinstance(error, Lost) else events.GroupFailed
                of.effects.emit(failed(name, count, why.removeprefix("failed: ")))
            return not isinstance(error, Lost)
        self.done.append(done)
        of.memory.pace.see(group, done.seconds)
        numbers = done.files, done.into, done.rows, done.dropped, done.carried
        of.effects.emit(events.GroupReplaced(name, done.snapshot_id, *numbers))
        self.progress(done)
        return True

    def _replace(self, group: Group) -> GroupDone:
        of, seen, table, began_ms = self.of, self.seen, self.seen.table, self.of.effects.monotonic_ms()
        deleted = deleted_in(table, group.files, seen.live, of.memory.deletes)
        work = seen.work(group, deleted.positions, seen.plan(of.batch_id))
        storage = NewFiles(lambda location: table.io.new_output(location).create(), table.io.delete)
        new, origins = rewrite(work, opener(table), storage)
        of.effects.emit(events.GroupRewritten(of.batch_id))
        commit = ChangeCommit(of.load, "maintenance", RetryPolicy(num_retries=0), of.effects)
        says = {COMPACTED: "maintenance", **of.says}
        replacement = Replacement(
            commit, of.branch, of.of_head, of.memory.deletes, says, group.files, work, new, origins
        )
        applied = replacement.run(table)
        change = applied.change
        assert change is not None, "a group has files"
        self.seen = replace(seen, table=applied.table, live=replacement.live)
        return GroupDone(
            snapshot_id=change.snapshot_id,
            parent_id=change.head or 0,
            partition=seen.partition(group.files[0]),
            **replacement.counts,
            seconds=(of.effects.monotonic_ms() - began_ms) / 1000,
        )

    def _is_another_at_work(self) -> bool:
        """True if another process has replaced groups since this run began."""
        metadata, own = self.of.load().metadata, {one.snapshot_id for one in self.done}
        known = {one.snapshot_id for one in self.seen.table.metadata.snapshots}
        new = (one for one in metadata.snapshots if one.snapshot_id not in own | known)
        return any(one.summary and MAINTENANCE in one.summary.additional_properties for one in new)
