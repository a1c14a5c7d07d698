"""One scan of a table: its branches, its sinks, and everything that retained snapshots reference."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType

from lakesink_catalog.commit.clock import CLOCK_TOLERANCE_MS
from lakesink_catalog.read.history import SinkState, sinks
from lakesink_catalog.read.landed import newest_batch
from lakesink_catalog.read.past import FIRST_SEQUENCE, Past, PastCommit, Retained, retained
from lakesink_catalog.read.view import view_table
from lakesink_catalog.snapshots import head_of
from lakesink_catalog.tables.tables import find_table
from lakesink_catalog.words import counted
from lakesink_protocol.errors import Reason, SettingsError
from lakesink_protocol.identity import MAIN_BRANCH, SinkKey, SinkKind
from lakesink_protocol.suggest import did_you_mean
from lakesink_tools.audit import contents
from lakesink_tools.audit.checkpoint import Done, compare, present
from lakesink_tools.audit.continuity import Chain, breaks
from lakesink_tools.audit.finding import Code, Finding, Note, awaits_replay, listed, of_changes, of_quality, of_replay
from lakesink_tools.audit.inventory import Entry, Inventory, frontier, replacing, sums
from lakesink_tools.audit.letters import SidesOfSink, of_first_batches, of_replays, of_rollback
from lakesink_tools.past.lean import load_to_read
from lakesink_tools.past.records import key_of

Said = Finding | Note
_TAGGED_BATCH = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class TableScan:
    """One scan."""

    table: Table
    retained: Retained
    known: tuple[SinkState, ...]  # every sink
    states: tuple[SinkState, ...]  # the sinks to audit
    branches: Mapping[str, Past]  # branches by name
    tips: tuple[PastCommit, ...]  # heads, and the commits that together reference everything retained
    inventory: Inventory

    @classmethod
    def at(cls, table: Table, sink: str | None) -> "TableScan":
        """Scan a table; audit only one sink if it is named. Raises an OSError if the storage failed."""
        shown = retained(table)
        known = tuple(sinks(table, shown))
        states = _chosen(known, sink)
        commits, branches = shown.by_id, pasts_of(shown)
        heads = {past.head.snapshot_id for past in branches.values() if past.head is not None}
        tips = tuple(commits[snapshot_id] for snapshot_id in {*heads, *frontier(commits)})
        inventory = Inventory(table.io)
        inventory.read(tips)
        inventory.read(replacing(commits), only_own=True)
        tagged = {ref.snapshot_id for ref in table.metadata.refs.values()} & commits.keys()
        inventory.find_lists(commits[snapshot_id] for snapshot_id in tagged)
        return cls(table, shown, known, states, branches, tips, inventory)

    def entries(self) -> list[Entry]:
        """Every referenced file, once for each stated size and row count."""
        claims: dict[tuple[str, int, int], Entry] = {}
        for manifest in self.inventory.known():
            for entry in manifest.entries:
                claims.setdefault((entry.path, entry.size_bytes, entry.rows), entry)
        return list(claims.values())

    def ledgers(self) -> dict[SinkKey, int]:
        """Last batch of every sink; of a removed sink, as far as the branches still show it."""
        batches = [(key, found[-1]) for past in self.branches.values() for key, found in past.by_sink.items()]
        shown = {key: last.known_mark.ledger_batch_id for key, last in batches if key.branch in self.branches}
        return shown | {key_of(state): -1 if state.batch_id is None else state.batch_id for state in self.known}

    def batches(self, key: SinkKey) -> Sequence[PastCommit]:
        """A sink's batches on its branch, oldest first."""
        past = self.branches.get(key.branch)
        return past.by_sink.get(key, ()) if past is not None else ()

    @property
    def history_kept(self) -> bool:
        """False if snapshots are missing that no expiry has removed, so that nothing is proved by what is there.

        Any change of a table leaves the earlier metadata file in the metadata log, an expiry too. A branch without its
        first snapshots and a table without this log are those of a catalog that makes its metadata anew each time.
        """
        pasts = (self.branches.get(state.branch) for state in self.states)
        whole = all(past is None or past.is_complete for past in pasts)
        return whole or bool(self.table.metadata.metadata_log)

    def of_sinks(self, done: Done | None) -> Iterator[Said]:
        """Check the order of batches, the ledgers and their tags; `done` may show that a checkpoint was rewound."""
        for state in self.states:
            yield from self._of_sink(state, done)
        if self.states != self.known:
            return
        known = {key_of(state) for state in self.known}
        for branch, past in self.branches.items():  # what a retired sink has doubled or left out is still so
            for key in sorted(past.by_sink.keys() - known, key=str):
                if key.branch == branch:
                    yield from breaks(chain_of(past, key, f"{key.name} into {key.branch}, retired"))

    def of_clock(self, now_ms: int) -> Iterator[Finding]:
        """A last change that is ahead of the wall clock: all later changes get the time of this change."""
        ahead_ms = last_change_ms(self.table) - now_ms
        if ahead_ms > CLOCK_TOLERANCE_MS:
            found = f"The table's last change is {ahead_ms // 1000:,} s ahead of this machine's clock."
            yield Finding(Code.CLOCK_AHEAD, "", found)

    def of_contents(self) -> Iterator[Said]:
        """Check manifests, summaries and totals, and files that are referenced twice."""
        yield from contents.disagreeing_manifests(self.inventory)
        yield from contents.doubled_files(self.tips, self.inventory)
        for branch, past in self.branches.items():
            yield from contents.totals(branch, past, self.inventory)
        yield from self._of_summaries()
        own = (batch.snapshot_id for state in self.states for batch in self.batches(key_of(state)))
        yield from contents.added_twice(self.inventory, own)
        yield from contents.damaged(self.inventory)

    def of_checkpoint(self, done: Done) -> Iterator[Said]:
        """Compare Spark's completed batches with the table."""
        found = []
        for state in (state for state in self.states if state.kind == SinkKind.STREAM.value):
            key = key_of(state)
            entry = view_table(self.table, key).entry if state.trouble is None else None
            marks = [batch.known_mark for batch in self.batches(key)]
            found.append(present(_subject(state), done.query_id, marks, entry))
        return compare(done, found)

    def of_side_tables(self) -> Iterator[Said]:
        """Compare rows that batches put aside, and the changes that they count, with the tables that have them."""
        side_of = cache(partial(find_table, self.table.catalog, load=load_to_read))
        if not self.known:
            yield from of_first_batches(self.table, side_of)
        for state in self.states:
            key, subject = key_of(state), _subject(state)
            rolled_back = state.trouble is Reason.ROLLED_BACK
            sides = SidesOfSink(key, subject, self.batches(key), self.table, side_of, self._now, rolled_back)
            yield from sides.of_letters()
            yield from of_replays(key, subject, self.batches(key), side_of)
            yield from sides.of_changelogs()
            if rolled_back:
                yield from of_rollback(key, subject, self._now())

    def _now(self) -> Table:
        return load_to_read(self.table.catalog, ".".join(self.table.name()))

    def of_history(self) -> Iterator[Note]:
        """What the retained history can no longer show."""
        for state in self.states:
            yield from self._reach(state)
            yield from (Note("documents", _subject(state), said) for said in of_quality(state))
            yield from (Note("changes", _subject(state), said) for said in of_changes(state))
        on_branches = {commit.snapshot_id for past in self.branches.values() for commit in past.commits}
        aside = len(self.retained.by_id.keys() - on_branches)
        if aside:
            found = f"{counted(aside, 'retained snapshot')} on no branch: rolled back, or kept by a tag."
            yield Note("aside", "", found)

    def _of_sink(self, state: SinkState, done: Done | None) -> Iterator[Said]:
        key, subject = key_of(state), _subject(state)
        past = self.branches.get(key.branch)
        if past is not None:
            yield from breaks(chain_of(past, key, subject))
        if awaits_replay(state):
            yield Note("replays", subject, of_replay(".".join(self.table.name()), state))
        elif done is not None and self._is_rewound(state, done):
            found = f"The branch was rolled back behind batch {state.batch_id}, and so was the given checkpoint."
            yield Note("rewound", subject, found)
        elif state.trouble is not None:
            found = f"Its next batch would be refused: {state.trouble.value}.{self._rewind(state)}"
            # Another refusal than those that a last batch itself can get is a defect of the verdict.
            yield Finding(Code[state.trouble.name], subject, found)
        elif state.unverifiable:
            why = "Expiry removed the" if self.history_kept else "The catalog keeps no"
            found = f"{why} proof that its last batch, {state.batch_id}, is in the branch: assumed."
            yield Note("unproven", subject, found)
        yield from self._ledger_tag(state)
        yield from self._audit_tags(state)

    def _is_rewound(self, state: SinkState, done: Done) -> bool:
        """The branch was rolled back, and the checkpoint taken back to the newest batch that is in it."""
        key, past = key_of(state), self.branches.get(state.branch)
        entry, newest = view_table(self.table, key).entry, newest_batch(self.table, key)
        if state.trouble is not Reason.ROLLED_BACK or entry is None or entry.query_id != done.query_id:
            return False
        last = max(done.batches, default=-1)
        if newest is None:
            return last == -1 and past is not None and past.is_complete
        return newest.query_id == done.query_id and newest.batch_id - 1 <= last <= newest.batch_id

    def _rewind(self, state: SinkState) -> str:
        """The command that sets a checkpoint back to where the branch was rolled back, if the branch shows it."""
        marks = [batch.known_mark for batch in self.batches(key_of(state))]
        moved = [mark for mark in marks if mark.batch_id == mark.ledger_batch_id]
        past = self.branches.get(state.branch)
        if state.trouble is not Reason.ROLLED_BACK or past is None or state.kind != SinkKind.STREAM.value:
            return ""
        if not moved and not past.is_complete:
            return " The newest batch in the branch is unknown after expiry: find it by the rows."
        newest = moved[-1].batch_id if moved else -1
        there = f"The newest batch in the branch is {newest}" if moved else "No batch is in the branch"
        return f" {there}: lakesink rewind <checkpoint> --to-batch {newest}."

    def _ledger_tag(self, state: SinkState) -> Iterator[Said]:
        name = key_of(state).ledger_tag
        tag = self.table.metadata.refs.get(name)
        if tag is None or tag.snapshot_ref_type is not SnapshotRefType.TAG:
            yield Note("no tag", _subject(state), f"There is no tag {name}: a rollback after expiry is not noticed.")
        elif state.trouble is None and tag.snapshot_id != state.snapshot_id:
            found = f"The tag {name} is at snapshot {tag.snapshot_id}, the ledger at {state.snapshot_id}."
            yield Finding(Code.TAG_ELSEWHERE, _subject(state), found, (name,))

    def _audit_tags(self, state: SinkState) -> Iterator[Finding]:
        """A tag that names a batch must show it, also after a rollback of the batch."""
        key = key_of(state)
        for name, tag in self.table.metadata.refs.items():
            named = _TAGGED_BATCH.match(name.removeprefix(key.audit_tag_prefix))
            commit = self.retained.by_id.get(tag.snapshot_id)
            if not name.startswith(key.audit_tag_prefix) or named is None or commit is None:
                continue
            mark = commit.mark
            if mark is None or mark.key != key or mark.batch_id != int(named[0]):
                shown = "no batch of the sink" if mark is None or mark.key != key else f"batch {mark.batch_id}"
                yield Finding(Code.TAG_ELSEWHERE, _subject(state), f"The tag {name} shows {shown}.", (name,))

    def _of_summaries(self) -> Iterator[Said]:
        """Live files of a tip prove most batches; only for the others their own manifests are read."""
        shown = [sums(self.inventory.entries(tip)) for tip in self.tips]
        doubtful = {state: contents.unshown(self.batches(key_of(state)), shown) for state in self.states}
        self.inventory.read((batch for batches in doubtful.values() for batch in batches), only_own=True)
        for state, batches in doubtful.items():
            yield from contents.disagreeing_summaries(_subject(state), batches, self.inventory)
            yield from contents.broken_sums(_subject(state), self.batches(key_of(state)), self.retained.by_id)
            yield from contents.contradictions(_subject(state), self.batches(key_of(state)), self.retained.by_id)

    def _reach(self, state: SinkState) -> Iterator[Note]:
        """How far back a sink's batches can be listed one by one."""
        past, batches = self.branches.get(state.branch), self.batches(key_of(state))
        if past is None or past.is_complete:
            return
        gone = "have expired" if self.history_kept else "are not kept by the catalog"
        found = "No batch is retained on the branch: only the ledger names the last batch."
        if batches:
            found = f"Batches before {batches[0].batch_id} cannot be listed: their snapshots {gone}."
        of_name = self.retained.batches(state.sink, state.branch)
        older = sorted({batch.batch_id for batch in of_name if batch.in_branch is None})
        kept = f" Tags keep of them {counted(len(older), 'batch')}: {listed(map(str, older))}." if older else ""
        brought = self._expired(past)
        missing = "expired" if self.history_kept else "these"
        left = f" The files of {missing} snapshots in the branch were checked: {brought}." if brought else ""
        yield Note("history", _subject(state), found + kept + left)

    def _expired(self, past: Past) -> str:
        """What the head still references of expired snapshots."""
        gone = [
            counts
            for snapshot_id, counts in sums(self.inventory.entries(past.head) if past.head else ()).items()
            if snapshot_id not in self.retained.by_id
        ]
        files, rows = sum(counts.files or 0 for counts in gone), sum(counts.rows or 0 for counts in gone)
        return f"{counted(files, 'file')} with {counted(rows, 'row')}" if files else ""


def _chosen(states: Sequence[SinkState], sink: str | None) -> tuple[SinkState, ...]:
    found = tuple(state for state in states if sink in (None, state.sink))
    if sink is None or found:
        return found
    raise SettingsError.of(
        "SINK_UNKNOWN.in_table",
        sink=sink[:60],
        near=did_you_mean(sink, {state.sink for state in states}),
    )


def pasts_of(shown: Retained) -> dict[str, Past]:
    """The past of every branch by name; always includes ``main``."""
    refs = shown.table.metadata.refs
    named = [name for name, ref in refs.items() if ref.snapshot_ref_type is SnapshotRefType.BRANCH]
    return {branch: _past_of(shown, branch) for branch in sorted({MAIN_BRANCH, *named})}


def _past_of(shown: Retained, branch: str) -> Past:
    """A branch's past, in which a cherry-pick has the mark of its source, and no source if that is known."""
    commits = []
    for one in shown.ancestry(head_of(shown.table, branch)):
        source = shown.by_id.get(one.picked_from or 0)
        commits.append(one if source is None else one._replace(mark=one.mark or source.mark, picked_from=None))
    oldest = min((one.sequence_number for one in commits), default=0)
    name, uuid = ".".join(shown.table.name()), str(shown.table.metadata.table_uuid)
    return Past(name, uuid, commits[::-1], oldest <= FIRST_SEQUENCE)


def last_change_ms(table: Table) -> int:
    """The time of the table's newest change, by the committer's clock."""
    log = table.metadata.snapshot_log
    return max(table.metadata.last_updated_ms, log[-1].timestamp_ms if log else 0)


def chain_of(past: Past, key: SinkKey, subject: str) -> Chain:
    """A sink's batches on a branch, with what else the branch shows."""
    every = [commit for commit in past.commits if commit.mark is not None]
    marks = [one.mark for one in past.commits if one.is_blind or (one.mark is not None and one.mark.key == key)]
    queries = {mark.query_id for mark in marks if mark is not None}
    epochs = (commit.epoch for commit in past.commits)
    written = frozenset(epoch for epoch in epochs if epoch is not None and epoch[0] in queries)
    return Chain(subject, key, marks, past.is_complete, [one.known_mark for one in every], written)


def _subject(state: SinkState) -> str:
    return f"{key_of(state).label} into {state.branch}"
