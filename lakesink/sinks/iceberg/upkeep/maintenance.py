"""Maintains one branch of one table: looks at its files, rewrites groups of them, and commits each group by itself."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from itertools import accumulate, islice, starmap, zip_longest

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from lakesink.keys.deleted_rows import KnownDeletes
from lakesink.keys.footers import opener
from lakesink.keys.work import RunInExecutors
from lakesink.parquet.filesystem import NewFiles
from lakesink.settings.table_settings import Effective
from lakesink.sinks.iceberg.upkeep import reports
from lakesink.sinks.iceberg.upkeep.choose import MOST_ROWS, Group, Pace
from lakesink.sinks.iceberg.upkeep.columns import Unsuitable
from lakesink.sinks.iceberg.upkeep.health import Health
from lakesink.sinks.iceberg.upkeep.policy import Policy
from lakesink.sinks.iceberg.upkeep.replacing import Lost, Replacement, answered
from lakesink.sinks.iceberg.upkeep.reports import GroupDone, GroupDue, LeftFile, Plan, Report, after
from lakesink.sinks.iceberg.upkeep.rewrite import Rewritten, Work, rewrite, rewrite_in_executor
from lakesink.sinks.iceberg.upkeep.seen import Seen, plan_of
from lakesink_catalog.commit.change_commit import Applied, ChangeCommit
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.request import Merge
from lakesink_catalog.commit.table_change import Change
from lakesink_catalog.manifests.lists import manifests_under
from lakesink_catalog.manifests.live import LiveFiles
from lakesink_catalog.manifests.live_reading import LiveMemory, live_files
from lakesink_catalog.manifests.merging import ManifestMerger, MergeMemory
from lakesink_catalog.read.past import check_branch
from lakesink_catalog.snapshots import head_of
from lakesink_protocol import events
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.fence import Unseen
from lakesink_protocol.identity import MAIN_BRANCH
from lakesink_protocol.ledger import COMPACTED, MAINTENANCE
from lakesink_protocol.redact import describe
from lakesink_protocol.retry import RetryPolicy
from lakesink_protocol.verdict import SUPPORTED_FORMAT_VERSION

ROUNDS = 4
"""Of one run: files of older specs become small ones of the present spec, which then become larger."""
AT_ONCE, ROWS_AT_ONCE, EXECUTORS_FROM_BYTES = 16, 3 * MOST_ROWS, 64 * 2**20
"""Groups and rows of one job (about 4 bytes a row come back, and Spark refuses a gibibyte), and when a job pays."""


@dataclass(slots=True)
class UpkeepMemory:
    """What maintenances of one branch remember from run to run.

    Attributes:
        live: Decoded manifests; a stream shares those of its sink.
        deletes: Delete files that were read; likewise.
        merges: A merge of manifests that is under way; likewise.
        left: Reasons of files that are not tried again while the table's columns stay, by path.
        columns: What these reasons are about, see `Seen.columns`.
        bounds_of: The columns whose bounds the sink wants too, by their ids.
    """

    live: LiveMemory = field(default_factory=LiveMemory)
    deletes: KnownDeletes = field(default_factory=KnownDeletes)
    left: dict[str, str] = field(default_factory=dict)
    columns: tuple[object, ...] = ()
    pace: Pace = field(default_factory=Pace)
    merges: MergeMemory = field(default_factory=MergeMemory)
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
        run_in_executors: None where there is no session.
        effective_of: The settings in force for a table with these properties.
    """

    load: Callable[[], Table]
    branch: str = MAIN_BRANCH
    policy: Policy = field(default_factory=Policy)
    effects: Effects = field(default_factory=Effects)
    memory: UpkeepMemory = field(default_factory=UpkeepMemory)
    says: Mapping[str, str] = field(default_factory=dict)
    batch_id: int = -1
    run_in_executors: RunInExecutors | None = None
    effective_of: Callable[[Mapping[str, str]], Effective] = lambda found: Effective.of({}, found)

    def look(self) -> Plan:
        """What a run would do; writes nothing.

        Raises:
            CatalogError: The table or the branch cannot be loaded, or a manifest cannot be read.
            SettingsError: `where` is no condition on partitions, or a table property is malformed.
        """
        seen = self.see()
        health, (groups, left) = seen.health(), seen.choose(self.memory.left)
        expected = reduce(lambda found, group: after(found, group, seen.target_bytes), groups, health)
        due = (GroupDue(seen.partition(one.files[0]), len(one.files), one.bytes, one.rows) for one in groups)
        return Plan(tuple(due), tuple(starmap(LeftFile, left.items())), health, expected)

    def run(self, progress: Callable[[GroupDone], None] = lambda _: None) -> Report:
        """Rewrite what is due, group by group, until the budget ends. Without one, merge manifests too.

        A group that fails or loses a race is left, and the others go on. Another error ends the run. It is in the
        report, unless nothing was tried before: then it is raised, as by `look`.
        """
        pace, is_limited = self.memory.pace, self.policy.budget is not None
        if is_limited and not self.policy.gate and not pace.is_due():
            return Report(Health(), Health(), (), (), reports.REST)
        seen, ended = self.see(), ""
        before = seen.health()
        run = _Run(self, seen, progress, self.effects.monotonic_ms(), before)
        try:
            ended = run.all_groups()
            merged = not is_limited and ended != reports.TURN and run.merge_manifests()
            health = self.see().health() if run.done or run.left or merged else before
        except Exception as error:
            if isinstance(error, CancelledError) or not (ended or run.done or run.left):
                raise
            run.leave([run.seen.table.metadata_location], error)
            ended, health = reports.FAILED, run.expected
        if run.done or run.left or ended == reports.NOTHING_DUE:
            pace.note(done=bool(run.done), failed=bool(run.left), min_files=self.policy.min_input_files)
        there = {run.seen.table.metadata_location, *(file.path for file in run.seen.live.data)}
        reasons = {**run.stays, **self.memory.left, **run.left}
        left = tuple(LeftFile(path, why) for path, why in reasons.items() if path in there)  # else others were quicker
        return Report(before, health, tuple(run.done), left, ended)

    def see(self) -> Seen:
        """The table as it is now; raises as `look` does."""
        table = self.load()
        if table.metadata.format_version != SUPPORTED_FORMAT_VERSION:
            name, version = ".".join(table.name()), table.metadata.format_version
            raise CatalogError.of("UNSUPPORTED", table=name, format_version=version)
        check_branch(table, self.branch)  # a commit would move a tag
        budget = self.policy.budget
        most = None if budget is None else self.memory.pace.bytes_in(budget.total_seconds())
        effective = self.effective_of(table.properties)
        plan = plan_of(table, effective, self.batch_id)
        spreads = self.run_in_executors is not None and budget is None  # a job takes long to start, between batches
        seen = Seen(table, self.of_head(table), plan, self.policy, effective, most, is_spread=spreads)
        self.memory.see(seen)
        return seen

    def change_commit(self, seen: Seen) -> ChangeCommit:
        """Commits a change of this table, and merges manifests on the way; all that is due if there is no budget."""
        policy, merges, effects = seen.effective.merge, self.memory.merges, self.effects
        if self.policy.budget is None:  # nothing waits for this commit: no merge is spread over several
            policy, merges = replace(policy, entries_per_commit=policy.most_entries), MergeMemory(merges.layouts)

        @cache
        def merge_of(snapshot_id: int) -> Merge:
            return ManifestMerger(policy, snapshot_id, merges, effects.emit, effects.at_once).merge

        return ChangeCommit(self.load, "maintenance", RetryPolicy(num_retries=0), effects, merge_of)

    def of_head(self, table: Table) -> LiveFiles:
        """The live files of the branch in a loaded table."""
        at_once, memory = self.effects.at_once, self.memory
        head, bounds_of = head_of(table, self.branch), memory.bounds_of
        return live_files(table, head, memory.live, bounds_of=bounds_of, at_once=at_once, equality=True)


@dataclass(slots=True)
class _Run:
    """One run. Reasons of files are by path."""

    of: Maintenance
    seen: Seen
    progress: Callable[[GroupDone], None]
    began_ms: int
    expected: Health  # after the groups that are done, about
    done: list[GroupDone] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)  # not tried again in this run
    stays: Mapping[str, str] = field(default_factory=dict)  # due in the last round, and not tried
    due: deque[Group] = field(default_factory=deque)  # not tried in this round
    is_lost: bool = False  # the last try, to another writer

    def all_groups(self) -> str:
        """Replace groups until none is due; returns why the run ended."""
        of, budget, ended = self.of, self.of.policy.budget, reports.NOTHING_DUE
        for number in range(ROUNDS):
            if number:
                self.seen = of.see()
            groups, self.stays = self.seen.choose({**of.memory.left, **self.left})
            if not groups:
                break
            self.due.extend(groups)
            is_spread = self.seen.is_spread and sum(group.bytes for group in groups) >= EXECUTORS_FROM_BYTES
            while self.due:
                rows = accumulate(group.rows for group in islice(self.due, AT_ONCE if is_spread else 1))
                tries = [self.due.popleft() for _ in range(max(1, sum(one <= ROWS_AT_ONCE for one in rows)))]
                seconds = (of.effects.monotonic_ms() - self.began_ms) / 1000 + of.memory.pace.seconds(tries[0])
                if budget is not None and seconds > budget.total_seconds():
                    ended = reports.BUDGET  # a smaller one may be
                    continue
                self.is_lost = False
                self._replace(tries, of.run_in_executors if is_spread else None)
                if self.is_lost and self._is_another_at_work():
                    return reports.TURN
            if ended == reports.BUDGET:
                break
        if ended == reports.BUDGET and not self.done:
            of.memory.pace.hope()
        return ended

    def _replace(self, groups: Sequence[Group], run: RunInExecutors | None) -> None:
        """Rewrite groups, in executors at the same time, and commit one after the other."""
        of, table, works = self.of, self.seen.table, list[tuple[Group, Work]]()
        storage = NewFiles(lambda location: table.io.new_output(location).create(), table.io.delete)
        began_ms, beside = of.effects.monotonic_ms(), of.effects.beside
        for group in groups:
            with self._leaving(group):
                works.append((group, self.seen.work(group, of.memory.deletes)))
        with self._leaving(Group(tuple(file for group, _ in works for file in group.files))):
            answers = [] if run is None else run(rewrite_in_executor, [work for _, work in works])
            for (group, work), answer in zip_longest(works, answers):
                with self._leaving(group):
                    new = answered(answer, table, work) if run else rewrite(work, opener(table), storage, beside)
                    self._commit(group, work, new, began_ms)

    @contextmanager
    def _leaving(self, group: Group) -> Iterator[None]:
        """Leave the group if an error ends its try; without the files that must stay, it is tried again."""
        try:
            yield
        except CancelledError:  # the query was stopped
            raise
        except Exception as error:  # noqa: BLE001 - the table is right without it
            self.is_lost |= isinstance(error, Lost)
            named = self.leave([file.path for file in group.files], error)
            self.of.memory.left |= {path: why for path, why in named.items() if not why.startswith("failed:")}
            rest = tuple(file for file in group.files if named and file.path not in named)
            if len(rest) > 1:  # one alone is a group of the next round, if it is due
                self.due.appendleft(replace(group, files=rest))

    def leave(self, paths: Iterable[str], error: Exception) -> Mapping[str, str]:
        """Report why these files stay, or those that the error names; returns the reasons of the latter."""
        table = self.seen.table
        if not isinstance(error, Unsuitable):
            error = Unsuitable(f"failed: {describe(error, {**table.catalog.properties, **table.io.properties})}")
        left = error.files or dict.fromkeys(paths, str(error))
        self.left |= left
        failed = events.GroupLost if isinstance(error, Lost) else events.GroupFailed
        self.of.effects.emit(failed(".".join(table.name()), len(left), str(error).removeprefix("failed: ")))
        return error.files

    def _commit(self, group: Group, work: Work, new: Rewritten, began_ms: int) -> None:
        of, seen = self.of, self.seen
        new.check(work)
        of.effects.emit(events.GroupRewritten(of.batch_id))
        says = {COMPACTED: "maintenance", **of.says}
        replacement = Replacement(
            of.change_commit(seen), of.branch, of.of_head, of.memory.deletes, says, group.files, work, new
        )
        applied = replacement.run(seen.table)
        change = applied.change
        assert change is not None, "a group has files"
        self.seen = replace(seen, table=applied.table, live=replacement.live)
        self.expected = after(self.expected, group, seen.target_bytes)
        done = GroupDone(
            snapshot_id=change.snapshot_id,
            partition=seen.partition(group.files[0]),
            **replacement.counts,
            seconds=(of.effects.monotonic_ms() - began_ms) / 1000,
        )
        self.done.append(done)
        if not seen.is_spread:
            of.memory.pace.see(group, done.seconds)
        numbers = done.files, done.into, done.rows, done.dropped, done.carried
        of.effects.emit(events.GroupReplaced(".".join(seen.table.name()), done.snapshot_id, *numbers))
        self.progress(done)

    def merge_manifests(self) -> bool:
        """Merge manifests in commits of their own, until no merge is due; true if one was."""
        of, merged, commit = self.of, False, self.of.change_commit(self.seen)

        def make(table: Table, snapshot_id: int) -> Change | None:
            head = head_of(table, of.branch)
            under = manifests_under(table.io, table.snapshot_by_id(head)) if head is not None else []
            fewer = commit.merge_of(snapshot_id)(table, under, head)
            says = {COMPACTED: "maintenance", **of.says}
            return Change(of.branch, head, snapshot_id, says=says) if len(fewer) < len(under) else None

        with suppress(CommitFailedException):  # the next run merges them
            while isinstance(done := commit.run(self.seen.table, make), Applied) and done.change is not None:
                merged = True
            if isinstance(done, Unseen):
                raise Unsuitable(f"unknown: {done.trouble}")
        return merged

    def _is_another_at_work(self) -> bool:
        """True if another process has replaced groups since this run began."""
        metadata, own = self.of.load().metadata, {one.snapshot_id for one in self.done}
        known = {one.snapshot_id for one in self.seen.table.metadata.snapshots}
        new = (one for one in metadata.snapshots if one.snapshot_id not in own | known)
        return any(one.summary and MAINTENANCE in one.summary.additional_properties for one in new)
