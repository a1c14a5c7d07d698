"""Where the rows of a batch came from: its source's offsets, through all tables between, back to the first source.

A batch records the offsets at its end, and the batch before it those at its beginning. If a source is another table of
lakesink, its offsets name batches, and the same question is asked of them. A fingerprint covers both ends, so most
answers can be proven from the tables alone.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, islice
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.table import Table

from lakesink.checkpoint.folder import Checkpoint
from lakesink.read.follow import batches_between
from lakesink.read.position import Position
from lakesink.read.steps import Follows, SinkBatches, owner_of_changelog
from lakesink.rows.letters import REPLAYS_SUFFIX, letters_key
from lakesink.rows.side_rows import APPLICATION, application_of
from lakesink.task.changelog import changelog_key
from lakesink_catalog.read.earlier import past_under
from lakesink_catalog.read.history import keys_of_ledger
from lakesink_catalog.read.past import PastCommit
from lakesink_catalog.read.view import view_table
from lakesink_catalog.snapshots import head_of
from lakesink_protocol.errors import CatalogError, LakesinkError
from lakesink_protocol.identity import MAIN_BRANCH, SinkKey, SinkKind
from lakesink_protocol.ledger import Mark, mark_of
from lakesink_protocol.quality import REPLAY
from lakesink_tools.past.as_of import Question, choose, look_back
from lakesink_tools.past.batch_input import Known, input_of
from lakesink_tools.past.lean import load_to_read
from lakesink_tools.past.listing import tables_in
from lakesink_tools.past.source_ranges import BatchesRange, FirstRange, KafkaRange

MOST_TABLES = 1_000


def owner_of(catalog: Catalog, application: SinkKey) -> tuple[str, SinkKey, str] | None:
    """The table, the sink and the query whose rows an application writes; None if none is found.

    Looks at the first 1,000 tables of the catalog.
    """
    for name, trouble in islice(tables_in(catalog), MOST_TABLES):
        if trouble is not None:
            continue
        try:
            table = load_to_read(catalog, name)
        except LakesinkError:
            continue
        uuid = str(table.metadata.table_uuid)
        for key, query_id in _queries(table):
            if application.name in (changelog_key(key, query_id, uuid).name, letters_key(key, query_id, uuid).name):
                return name, key, query_id
    return None


def _queries(table: Table) -> Iterator[tuple[SinkKey, str]]:
    """Every stream with its queries, as far as the table shows them."""
    marks = (mark_of(snapshot.summary) for snapshot in table.metadata.snapshots)
    found = {(mark.key, mark.query_id) for mark in marks if mark is not None}
    for key in keys_of_ledger(table):
        entry = view_table(table, key).entry
        found |= {(key, entry.query_id)} if entry is not None else set()
    return (one for one in found if one[0].kind is SinkKind.STREAM)


def batches_of_letters(
    replays: Table, letters: Table, application: str, numbers: Collection[int]
) -> set[tuple[str, int]]:
    """The digest of the application that wrote the letters, see `application_of`, and the batch.

    Args:
        replays: The table that assigns letters to replays.
        letters: The table of dead letters.
        application: That which replays.
        numbers: Of the replays.
    """
    assigned = EqualTo(term=Reference("application"), value=literal(application))
    wanted = {
        letter
        for batch in replays.scan(assigned, ("letter_id", "replay")).to_arrow_batch_reader()
        for letter, replay in _rows(batch, "letter_id", "replay")
        if replay in numbers
    }
    return {
        (letter[:APPLICATION], batch_id)
        for batch in letters.scan(selected_fields=("letter_id", "batch_id")).to_arrow_batch_reader()
        for letter, batch_id in _rows(batch, "letter_id", "batch_id")
        if letter in wanted
    }


def _rows(batch: pa.RecordBatch, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(batch.column(name).to_pylist() for name in names), strict=True)


MOST_TABLES_DEEP = 16
_EXPIRED = "LAKESINK_BATCH_EXPIRED"


@dataclass(frozen=True, slots=True)
class Upstream:
    """Batches of another table that were read.

    Attributes:
        why: Why they, or a part of them, cannot be told; empty if they can.
    """

    table: str
    hops: tuple["Hop", ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Hop:
    """Batches of one query in one table that follow each other, and what they read together.

    Attributes:
        run: The batches, oldest first.
        why: What is not known, and what would help.
        note: What else to know of the snapshot that was chosen; empty for most.
    """

    table: str
    run: tuple[PastCommit, ...]
    known: Known
    sources: tuple[FirstRange | Upstream, ...] = ()
    why: tuple[str, ...] = ()
    note: str = ""

    @property
    def mark(self) -> Mark:
        """Of the first batch: all are of its sink and query."""
        return self.run[0].known_mark

    @property
    def rows(self) -> int:
        """Rows of all batches."""
        return sum(batch.rows for batch in self.run)

    def hops(self) -> Iterator["Hop"]:
        """This one, and all behind it, each once, however often it was read."""
        ahead, seen = [self], set[int]()
        while ahead:
            hop = ahead.pop()
            if id(hop) in seen:
                continue
            seen.add(id(hop))
            yield hop
            behind = [one for source in hop.sources if isinstance(source, Upstream) for one in source.hops]
            ahead += reversed(behind)

    def kafka(self) -> list[KafkaRange]:
        """Every range of Kafka behind it."""
        return [one for hop in self.hops() for one in hop.sources if isinstance(one, KafkaRange)]

    def troubles(self) -> list[str]:
        """What is not known of it and of all behind it, each once."""
        found: list[str] = []
        for hop in self.hops():
            found += [*hop.why, *(one.why for one in hop.sources if isinstance(one, Upstream) and one.why)]
        return list(dict.fromkeys(found))


@dataclass(slots=True)
class Lineage:
    """Follows batches back through the tables of one catalog. Only reads.

    Attributes:
        checkpoints: By query id: they have beginnings, files, and offsets that did not fit into a summary.
    """

    catalog: Catalog
    checkpoints: Mapping[str, Checkpoint] = field(default_factory=dict)
    _tables: dict[str, Table] = field(default_factory=dict, init=False)
    _followed: dict[tuple[Position | None, Position], Upstream] = field(default_factory=dict, init=False)

    def of(self, name: str, batch_id: int, sink: str | None, branch: str) -> Hop:
        """The batch, and everything behind it.

        Raises:
            CatalogError: The catalog or the table is unusable, or the batch is not there, or not there any more.
            SettingsError: The identifier is malformed, or the sink is not the only one.
        """
        table = self._load(name)
        batch, note = _asked(table, name, Question(batch_id, sink=sink, branch=branch))
        return self._hop(table, name, [batch], 0, note)

    def _load(self, name: str) -> Table:
        if name not in self._tables:
            self._tables[name] = load_to_read(self.catalog, name)
        return self._tables[name]

    def _hop(self, table: Table, name: str, run: Sequence[PastCommit], depth: int, note: str = "") -> Hop:
        mark, hop = run[0].known_mark, partial(Hop, name, tuple(run), note=note)
        if not mark.adds_rows:
            return hop(Known.PROVEN)
        if run[0].is_replay:
            return hop(Known.LETTERS, (self._of_replays(run, depth + 1),))
        if mark.key.kind is SinkKind.TXN:
            owner = owner_of(self.catalog, mark.key)
            if owner is None:
                why = f"{mark.key.name} in {name} is no stream of this catalog: its batches do not say what they read."
                return hop(Known.UNKNOWN, why=(why,))
            return hop(Known.SAME_BATCH, (self._of_owner(*owner, run, depth + 1),))
        found = input_of(table, name, run, self.checkpoints)
        sources = (self._upstream(one, depth + 1) if isinstance(one, BatchesRange) else one for one in found.ranges)
        return hop(found.known, tuple(sources), tuple(found.why))

    def _of_owner(self, name: str, key: SinkKey, query_id: str, run: Sequence[PastCommit], depth: int) -> Upstream:
        """A changelog and dead letters have the batches of their stream."""
        wanted = {batch.batch_id for batch in run}

        def read() -> Iterable[PastCommit]:
            return _batches_of(self._load(name), name, key, query_id, wanted)

        return self._behind(name, read, depth)

    def _of_replays(self, run: Sequence[PastCommit], depth: int) -> Upstream:
        """The batches that put the letters aside, in the table of dead letters."""
        replays = run[0].replays_table
        letters = replays.removesuffix(REPLAYS_SUFFIX)

        def read() -> Iterable[PastCommit]:
            table = self._load(letters)
            numbers = {replay.batch_id for replay in run}
            wanted = batches_of_letters(self._load(replays), table, run[0].application, numbers)
            past = past_under(table, letters, head_of(table, MAIN_BRANCH))
            found = {(application_of(one.mark.key), one.batch_id): one for one in past.commits if one.mark is not None}
            for application, batch_id in sorted(wanted - found.keys()):
                raise CatalogError.of("BATCH_EXPIRED.not_there", batch_id=batch_id, writer=application, table=letters)
            return [batch for place, batch in found.items() if place in wanted]

        return self._behind(letters, read, depth)

    def _upstream(self, read: BatchesRange, depth: int) -> Upstream:
        """The batches of a table that were read; each range is followed once."""
        place = read.start, read.end
        if place not in self._followed:
            self._followed[place] = self._follow(read, depth)
        return self._followed[place]

    def _follow(self, read: BatchesRange, depth: int) -> Upstream:
        end, name = read.end, read.end.table
        if end.is_before_all:
            return Upstream(name)
        follows = Follows.STREAM if end.query_id else Follows.CHANGELOG
        sink = end.sink if end.query_id else owner_of_changelog(end.sink)
        batches = SinkBatches(sink, end.branch, follows)

        def found() -> Iterable[PastCommit]:
            table = self._load(name)
            start = read.start or batches.beginning(name, str(table.metadata.table_uuid))
            return batches_between(table, name, batches, start, end)[1]

        return self._behind(name, found, depth)

    def _behind(self, name: str, read: Callable[[], Iterable[PastCommit]], depth: int) -> Upstream:
        """The batches of a table that were read; why, if they cannot be told."""
        if depth > MOST_TABLES_DEEP:
            return Upstream(name, why=f"{name} is more than {MOST_TABLES_DEEP} tables away.")
        try:
            return Upstream(name, tuple(self._hop(self._load(name), name, run, depth) for run in _runs(read())))
        except LakesinkError as error:
            return Upstream(name, why=f"The batches of {name} cannot be told: [{error.code}] {error.what}")


def _asked(table: Table, name: str, question: Question) -> tuple[PastCommit, str]:
    """The batch that is asked for, with a note on it. An expired one is found in earlier metadata."""
    try:
        chosen = choose(look_back(table, name, question.branch), question)
    except CatalogError as error:
        if error.code != _EXPIRED:
            raise
        expired = _expired(table, name, question)
        if expired is None:
            raise
        return expired, "Its snapshot has expired: an earlier version of the table's metadata still shows it."
    if chosen.commit.batch_id != question.batch_id:
        raise CatalogError.of(
            "BATCH_EXPIRED.no_snapshot",
            why=chosen.note or f"Batch {question.batch_id} of {name} has no snapshot of its own.",
            table=name,
        )
    return chosen.commit, chosen.note


def _expired(table: Table, name: str, question: Question) -> PastCommit | None:
    def is_it(commit: PastCommit) -> bool:
        mark = commit.mark
        if mark is None or (mark.batch_id, mark.key.branch) != (question.batch_id, question.branch):
            return False
        return question.sink == mark.key.name or (question.sink is None and not mark.key.name.startswith(REPLAY))

    commits = past_under(table, name, head_of(table, question.branch), is_it).commits
    return commits[0] if commits and is_it(commits[0]) else None


def _batches_of(table: Table, name: str, key: SinkKey, query_id: str, wanted: set[int]) -> Iterable[PastCommit]:
    """Batches of a stream by their ids, those of one query, as far as the branch has them."""

    def is_of_it(commit: PastCommit) -> bool:
        return commit.mark is not None and (commit.mark.key, commit.mark.query_id) == (key, query_id)

    def is_oldest(commit: PastCommit) -> bool:
        return is_of_it(commit) and commit.batch_id <= min(wanted)

    commits = past_under(table, name, head_of(table, key.branch), is_oldest).commits
    found = [commit for commit in commits if is_of_it(commit) and commit.batch_id in wanted]
    missing = sorted(wanted - {batch.batch_id for batch in found})
    if missing:
        raise CatalogError.of("BATCH_EXPIRED.not_there", batch_id=missing[0], writer=key.name, table=name)
    return found


def _runs(batches: Iterable[PastCommit]) -> list[list[PastCommit]]:
    """Batches of one query that follow each other; one that an operator skipped has no rows, and is left out."""
    numbered = enumerate(batch for batch in batches if batch.known_mark.adds_rows)

    def run_of(at: tuple[int, PastCommit]) -> tuple[SinkKey, str, int]:
        mark = at[1].known_mark
        return mark.key, mark.query_id, mark.batch_id - at[0]

    return [[batch for _, batch in run] for _, run in groupby(numbered, run_of)]
