"""Proves for each batch that the rows that its table lacks are dead letters: rows read = rows here + letters there.

And for each replay that the table got one row for each letter that was assigned to it, and for each batch of changes
that its changelog has each of them. No dead letter and no change may be of a batch that the table never got.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from pyiceberg.table import Table

from lakesink.rows.letters import SUFFIX, is_replay_of, letters_key
from lakesink.sinks.iceberg.side.begun_replays import assigned_letters, begun_replays, lost_letters
from lakesink.sinks.iceberg.side.side_batches import (
    KeyOf,
    SideBatch,
    all_batches,
    in_snapshots,
    left_behind,
    states_letters,
    way_back,
)
from lakesink.task.changelog import changelog_key
from lakesink_catalog.read.landed import Landed, newest_batch
from lakesink_catalog.read.past import PastCommit, retained
from lakesink_catalog.tables.tables import load_table
from lakesink_catalog.words import counted
from lakesink_protocol.errors import Reason
from lakesink_protocol.identity import SinkKey, SinkKind
from lakesink_protocol.ledger import Mark
from lakesink_protocol.measures import DEAD_LETTERS
from lakesink_protocol.quality import LETTERS_TABLE, REPLAYS_TABLE
from lakesink_protocol.redact import shown
from lakesink_protocol.row_changes import CHANGELOG_TABLE
from lakesink_tools.audit.finding import Code, Finding, Note, listed
from lakesink_tools.past.records import runs

_KEEPS = {Code.DEAD_LETTERS_DIFFER: "dead letters", Code.CHANGELOG_DIFFERS: "changes"}
_NOTES = {Code.DEAD_LETTERS_DIFFER: "letters", Code.CHANGELOG_DIFFERS: "changelog"}
SideOf = Callable[[str], Table | None]
"""A table by its name; None if there is none."""


@dataclass(frozen=True, slots=True)
class SidesOfSink:
    """The side tables of one sink, compared with the sink's own table in both directions.

    Attributes:
        table: As the audit reads it.
        table_now: Loads it again: a running stream has committed since.
        rolled_back: The table was, behind the last batch: see `of_rollback`.
    """

    key: SinkKey
    subject: str
    batches: Sequence[PastCommit]
    table: Table
    side_of: SideOf
    table_now: Callable[[], Table]
    rolled_back: bool

    def of_letters(self) -> Iterator[Finding | Note]:
        """Compare what the batches say about their dead letters with the tables that have them."""
        usual: dict[str, list[PastCommit]] = {".".join(self.table.name()) + SUFFIX: []}
        for name, stated in {**usual, **_by_table(self.batches, LETTERS_TABLE)}.items():
            side, code = self.side_of(name), Code.DEAD_LETTERS_DIFFER
            if side is not None:
                rows = {one.known_mark: one.counts[DEAD_LETTERS] for one in stated}
                landed = Landed(self.table, self.key)
                yield from self._compared(side, letters_key, rows, code, partial(states_letters, landed, side))
                yield from self._of_begun(side)
            elif stated:
                batches = counted(len(stated), "batch")
                said = f"There is no table {shown(name, 60)}, which had the dead letters of {batches}."
                yield Finding(code, self.subject, said)

    def _of_begun(self, letters: Table) -> Iterator[Finding]:
        """Letters that are missing of replays that the table lacks: they were rolled back, and the replays were not."""
        found = begun_replays(self.table.catalog, self.table_now(), letters, self.key.branch)
        replays, begun = found or (self.table, [])
        own = [one for one in begun if is_replay_of(one.key.name, self.key)]
        with_files = load_table(self.table.catalog, ".".join(letters.name())) if own else letters
        for one in own:
            lost = lost_letters(with_files, assigned_letters(replays, one))
            if lost:
                name, said = shown(".".join(letters.name()), 60), f"{counted(lost, 'letter')} of replay {one.batch_id}"
                told = f"{name} lacks {said}, which the table does not have. {way_back(replays, begun) or ''}"
                yield Finding(Code.REPLAYS_DIFFER, self.subject, told.strip(), (str(one.batch_id),))

    def of_changelogs(self) -> Iterator[Finding | Note]:
        """Compare the changes that the batches count with the changelogs that have them."""
        for name, named in _by_table(self.batches, CHANGELOG_TABLE).items():
            counts = {one.known_mark: one.changes.changes for one in named if one.changes is not None}
            rows = {mark: changes for mark, changes in counts.items() if changes}
            side, batches, code = self.side_of(name), counted(len(rows), "batch"), Code.CHANGELOG_DIFFERS
            if side is None:
                yield Finding(code, self.subject, f"There is no table {shown(name, 60)}, the changelog of {batches}.")
                continue
            found = list(self._compared(side, changelog_key, rows, code))
            if not any(isinstance(one, Finding) for one in found):
                total = counted(sum(rows.values()), "change")
                yield Note("changelog", self.subject, f"{shown(name, 60)} has the {total} of {batches}.")
            yield from found

    def _compared(
        self,
        side: Table,
        key_of: KeyOf,
        rows: Mapping[Mark, int],
        code: Code,
        is_taken: Callable[[str, int], bool] = lambda *_: True,
    ) -> Iterator[Finding | Note]:
        """Check that the side table has the `rows` that each batch states. One that is not taken has a note only."""
        name, keeps = shown(".".join(side.name()), 60), _KEEPS[code]
        writes = cache(lambda query_id: key_of(self.key, query_id, str(self.table.metadata.table_uuid)).name)
        batches = {(one.known_mark.query_id, one.batch_id) for one in self.batches}
        stated = {(mark.query_id, mark.batch_id): count for mark, count in rows.items()}
        passed_over = [one for one in batches - stated.keys() if not is_taken(*one)]
        compared = [(one, stated.get(one, 0)) for one in batches.difference(passed_over)]
        there = retained(side).batches()
        differing, expired = _differing(
            ((writes(query), batch, _exactly(count)) for (query, batch), count in compared), there
        )
        passed, _ = _differing(((writes(query), batch, _exactly(0)) for query, batch in passed_over), there)
        if passed:
            said = f"{name} has {keeps} of batches {_listed(passed)}, which state others or none: no replay takes them."
            yield Note(_NOTES[code], self.subject, said)
        if differing:
            said = f"Batches {_listed(differing)} have other {keeps} in {name} than they state."
            yield Finding(code, self.subject, said, tuple(map(str, differing)))
        if expired:
            said = f"{name} no longer shows the commit of the {keeps} of {counted(expired, 'batch')}."
            yield Note(_NOTES[code], self.subject, said)
        if not self.rolled_back and left_behind(side, key_of, self.key, self.table):
            yield from self._left(side, key_of, code)

    def _left(self, side: Table, key_of: KeyOf, code: Code) -> Iterator[Finding | Note]:
        """Batches that the table lacks. Those that follow its last one may be between the two commits just now."""
        name, table = shown(".".join(side.name()), 60), self.table_now()
        left, newest = left_behind(side, key_of, self.key, table), newest_batch(table, self.key)
        coming = [one for one in left if newest is None or one.is_after(newest)]
        stayed = [one for one in left if one not in coming and self._was_left_out(one)]
        lost = [one for one in left if one not in coming and one not in stayed]
        if stayed:
            said = f"An operator left batches out whose {_KEEPS[code]} stay in {name}: {in_snapshots(stayed)}."
            yield Finding(code, self.subject, said, tuple(str(one.batch_id) for one in stayed), accepted=True)
        if lost:
            said = f"The table never got batches that {name} has {_KEEPS[code]} of: {in_snapshots(lost)}."
            back = way_back(side, lost) or "Later snapshots have other batches, so that no rollback takes these out."
            yield Finding(code, self.subject, f"{said} {back}", tuple(str(one.batch_id) for one in lost))
        if coming:
            said = f"{name} is ahead of the table, until the query goes on: {in_snapshots(coming)}."
            yield Note(_NOTES[code], self.subject, said)

    def _was_left_out(self, one: SideBatch) -> bool:
        """The batch was rolled back, and an operator let the query go on behind it."""
        later = (batch.known_mark for batch in self.batches if batch.sequence_number > one.after)
        return next((mark.accepted for mark in later), "").startswith(f"{Reason.ROLLED_BACK.value}:")


def of_rollback(key: SinkKey, subject: str, table: Table) -> Iterator[Finding]:
    """What side tables still have of batches that were rolled back: the query cannot write these again before."""
    from lakesink.sinks.iceberg.side.side_rollback import left_of  # noqa: PLC0415 - all of a sink, after rollbacks only

    for left in left_of(table, key):
        yield Finding(Code[left.kind.code], subject, f"{left.said} {left.step}", tuple(map(str, left.batches)))


def of_first_batches(table: Table, side_of: SideOf) -> Iterator[Note]:
    """Dead letters of sinks that the table does not know: a driver died between the two commits of a first batch."""
    side = side_of(".".join(table.name()) + SUFFIX)
    if side is None:
        return
    kinds = {(one.key.name.rsplit(".", 2)[0], bool(one.query_id)) for one in all_batches(side)}
    for name, queries in sorted(kinds):
        key = SinkKey(name, kind=SinkKind.STREAM if queries else SinkKind.TXN)
        left = left_behind(side, letters_key, key, table)
        if left:
            again = "start its query again" if key.kind is SinkKind.STREAM else "append it again as it was"
            letters, batch = shown(".".join(side.name()), 60), left[0].batch_id
            said = f"{letters} has dead letters of batch {batch}, which the table does not have yet: {again}."
            yield Note("first batch", key.label, said)


def of_replays(key: SinkKey, subject: str, batches: Iterable[PastCommit], side_of: SideOf) -> Iterator[Finding | Note]:
    """Compare the rows of replays with the letters that were assigned to them."""
    for table, stated in _by_table(batches, REPLAYS_TABLE).items():
        found = side_of(table)
        if found is None:
            said = f"There is no table {shown(table, 60)}, which assigned the letters of {_replays(len(stated))}."
            yield Finding(Code.REPLAYS_DIFFER, subject, said)
            continue
        of_replays = [(key.name, one.batch_id, _letters_of(one)) for one in stated]
        differing, expired = _differing(of_replays, retained(found).batches())
        if differing:
            said = f"Replays {_listed(differing)} added other rows than letters are assigned in {shown(table, 60)}."
            yield Finding(Code.REPLAYS_DIFFER, subject, said, tuple(map(str, differing)))
        if expired:
            yield Note("replays", subject, f"{shown(table, 60)} no longer shows the commit of {_replays(expired)}.")


def _by_table(batches: Iterable[PastCommit], name: str) -> Mapping[str, list[PastCommit]]:
    """The batches whose summaries name a table under this property, by that table."""
    found = defaultdict(list)
    for batch in batches:
        if table := batch.text(name):
            found[table].append(batch)
    return found


def _exactly(count: int) -> range:
    """This number alone."""
    return range(count, count + 1)


def _letters_of(replay: PastCommit) -> range:
    """How many letters a replay can have: one for each row, or for each change, but two changes can be one event's."""
    if replay.changes is None:
        return _exactly(replay.rows)
    changes = replay.changes.changes
    return range(-(-changes // 2), changes + 1)


def _differing(stated: Iterable[tuple[str, int, range]], found: Iterable[PastCommit]) -> tuple[list[int], int]:
    """Batches with other numbers of rows in the other table than stated, and how many its snapshots no longer show."""
    known = {(batch.application, batch.batch_id): batch for batch in found}
    differing, expired = [], 0
    for name, batch_id, rows in stated:
        batch = known.get((name, batch_id))
        expired += 0 not in rows and batch is None
        if batch is not None and (batch.rows if batch.is_counted else 0) not in rows:
            differing.append(batch_id)
    return sorted(differing), expired


def _listed(batches: Sequence[int]) -> str:
    return listed(runs(batches))


def _replays(count: int) -> str:
    return counted(count, "replay")
