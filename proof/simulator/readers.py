"""A query that reads the stream's table batch by batch, as Spark drives it; what it has is compared with the truth.

It looks at states of the table when these come to be, by a chance of its own: no other draw of a seed depends on it. It
is killed between plan and commit. Who looks after it does what a refusal says.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from pyiceberg.table import Table

from lakesink.read.batch_files import files_of
from lakesink.read.begin import AtBatch, Begin, Beginning, beginning, followed
from lakesink.read.follow import batches_between, newest_position, unread_batches
from lakesink.read.position import Position, parse_offset
from lakesink.read.steps import SinkBatches, behind, up_to
from lakesink_protocol.errors import LakesinkError
from proof.oracle import Broken, Key, Promise, Rows, rows_once
from proof.simulator.catalog import EVENTS, SimulatedCatalog
from proof.simulator.drivers import Stream
from proof.simulator.spark import Offsets
from proof.simulator.store import SimulatedIO
from proof.simulator.truth import Landed, name_of

NAME = ".".join(EVENTS)
LOOKS, DIES, FOLLOWS = 0.15, 0.3, 0.3
"""How likely it looks at a state, dies with a micro-batch that it has read, and is followed at once by its operator."""
MOST_STEPS = 80
_ROLLED_BACK = "LAKESINK_READ_ROLLED_BACK", "LAKESINK_READ_BATCH_CHANGED"
_READ = re.compile(r"(Batch|Replay) (\d+) of .* was read")
_STARTING = re.compile(r"starting-batch=(\d+|latest)")


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One that was committed: the offset at its end, as Spark stores it, and its rows."""

    end: str
    rows: Rows


@dataclass(eq=False)
class Reader:
    """One reading query, and the table that it writes.

    Attributes:
        stream: Whose table it reads.
        chance: Of its own.
        plans_to_newest: A micro-batch after a restart ends at the newest batch, as in Spark 4.1.
        begin: Where a new checkpoint begins.
        sink: The batches that it reads; None before its first start.
        batches: What was committed.
        planned: End of a micro-batch that was planned and not committed; empty if there is none.
        seen: Beginning and rows of that micro-batch, if they were read.
        since: Offsets of the source from which it has to have all rows.
        refused: What it ended with; None if it ended otherwise.
        waits: The table was rolled back behind it, and it waits until the batch is there again.
        done: What became of it, by kind.
        broken: What was found to be wrong.
    """

    stream: Stream
    chance: Random
    plans_to_newest: bool
    begin: Beginning = Begin.EARLIEST
    sink: SinkBatches | None = None
    batches: list[MicroBatch] = field(default_factory=list)
    planned: str = ""
    seen: tuple[Position, Rows] | None = None
    since: Offsets = ()
    refused: LakesinkError | None = None
    waits: bool = False
    done: Counter[str] = field(default_factory=Counter)
    broken: list[Broken] = field(default_factory=list)
    _restarted: bool = True
    _first: Position | None = None

    @classmethod
    def of(cls, stream: Stream) -> "Reader":
        """A reader of a version of Spark, and of all batches or only of those to come."""
        chance = Random(f"reader {stream.world.seed}")
        begin = chance.choice([Begin.EARLIEST, Begin.EARLIEST, Begin.LATEST])
        return cls(stream, chance, plans_to_newest=chance.random() < 0.5, begin=begin)

    def look(self) -> None:
        """The table has a new state."""
        if self.stream.content.changing is None and self.chance.random() < LOOKS:
            self.step()
            if self.refused is not None and self.chance.random() < FOLLOWS:
                self._follow(self.refused)

    def settle(self) -> None:
        """Read all there is, doing what each refusal says. Batches that change rows by key are not for readers."""
        if self.stream.content.changing is not None:
            return
        for _ in range(MOST_STEPS):
            if self.step():
                continue
            if self.refused is None:
                self.broken += self._judge()
                return
            self._follow(self.refused)
        if self._is_ahead():  # the source has no rows for the batches that the refusal waits for
            self.waits = True
            self.broken += self._judge()
            return
        self._fail(Promise.THE_RUN_ENDS, f"a reader is still refused: {self.refused}")

    def _is_ahead(self) -> bool:
        """It has read batches that were rolled back, and the table has fewer ones now."""
        own = [one.asked.batch.batch_id for one in self._own() if one.asked is not None]
        read = [parse_offset(json.loads(one.end)).batch_id for one in self.batches]
        return max(read, default=-1) > max(own, default=-1)

    def step(self) -> bool:
        """Read the next micro-batch, or read again what was planned; False if there is nothing to read."""
        self.refused, self.waits = None, False
        try:
            return self._step(self._table())
        except LakesinkError as error:
            self.refused = error
            self._did(f"reader refused: {error.code}", f"is refused: {error.code}")  # the text may have a UUID
            if error.code in _ROLLED_BACK and self._all_there():
                self._fail(Promise.REFUSALS_ARE_RIGHT, f"a reader is refused: {error}")
            self._die()
            return False
        except FileNotFoundError as error:  # expiry is about to delete the files of a snapshot
            if self.stream.world.calm:
                self._fail(Promise.EVERY_FILE_IS_THERE, f"a reader misses {error}")
            return False

    def _step(self, table: Table) -> bool:
        if self.sink is None:
            self.sink = followed(table, NAME, self.stream.sink_id, self.stream.truth.branch)
        start = self._position(table, self.sink)
        if not self.planned:
            end = self._plan(table, self.sink, start)
            if end == start:
                return False
            self.planned, self._restarted = json.dumps(end.to_offset()), False
        rows = self._read(table, self.sink, start)
        before = self.seen[1] if self.seen is not None and self.seen[0] == start else rows
        if before != rows and ((before - rows) + (rows - before)).keys() - self._moved():
            self._fail(Promise.READERS_SEE_WHOLE_BATCHES, f"{rows} instead of {before} up to {self.planned}")
        self.seen = start, rows
        if not self.stream.world.calm and self.chance.random() < DIES:
            self._die()
            self._did("reader killed", "dies with a micro-batch that is not committed")
            return True
        self.batches.append(MicroBatch(self.planned, rows))
        self._did("micro-batch", f"reads {sorted(rows)} in micro-batch {len(self.batches)}")
        self.planned, self.seen = "", None
        return True

    def _position(self, table: Table, sink: SinkBatches) -> Position:
        """Where it is; until a micro-batch is committed, the options say at each start where it begins."""
        if self.batches:
            return parse_offset(json.loads(self.batches[-1].end))
        if self._first is not None:
            return self._first
        found = self._first = beginning(table, NAME, sink, self.begin)
        own = [one.asked for one in self._own() if one.asked is not None]
        match self.begin:
            case AtBatch(batch_id=batch_id):
                self.since = next(asked.start for asked in reversed(own) if asked.batch.batch_id == batch_id)
            case Begin.LATEST if own:
                self.since = own[-1].end
            case _:
                self.since = (0,) * len(self.stream.source.end)
        return found

    def _die(self) -> None:
        self._restarted, self._first = True, None

    def _plan(self, table: Table, sink: SinkBatches, start: Position) -> Position:
        if self.plans_to_newest and self._restarted:
            return newest_position(table, NAME, sink)
        past, found = unread_batches(table, NAME, sink, start)
        self.waits = found.is_rolled_back
        return behind(past, start, up_to(found.batches, self.chance.choice([1, 3, None]), None))

    def _read(self, table: Table, sink: SinkBatches, start: Position) -> Rows:
        end = parse_offset(json.loads(self.planned))
        past, batches = batches_between(table, NAME, sink, start, end, is_first=not self.batches)
        rows: Rows = Counter()
        for one in files_of(table, past, batches):
            for file in one.data:
                stored = self.stream.server.store.files.get(file.path)
                if stored is None:
                    raise FileNotFoundError(file.path)
                rows += stored.rows or Counter()
        return rows

    # What a refusal tells its operator to do.

    def _follow(self, refused: LakesinkError) -> None:
        action = str(refused.action)
        advices: list[Callable[[], None]] = []
        if "Take the reading query back" in action and (self.batches or self.planned):
            advices.append(lambda: self._take_back(str(refused)))
        if "take the planned batch out" in action:
            advices.append(lambda: self._take_out_the_plan(action))
        if "with this checkpoint and the option" in action:
            advices += [lambda: self._begin_at_the_plan(action), self._begin_anew]
        elif "starting-batch" in action or "start a new checkpoint" in action or "Name a batch" in action:
            advices.append(lambda: self._begin_where_told(action))
        if advices:
            self.chance.choice(advices)()

    def _take_back(self, what: str) -> None:
        """To a micro-batch that ended before the batch or replay that the message names, or to before the first one."""
        told = _READ.search(what)
        assert told is not None, what
        kind, number = told[1], int(told[2])
        while self.batches and not self._ends_before(kind, number):
            self.batches.pop()
        self._take_out_the_plan("")
        self._did("reader taken back", f"is taken back by what it read after {len(self.batches)} micro-batches")

    def _ends_before(self, kind: str, number: int) -> bool:
        end = parse_offset(json.loads(self.batches[-1].end))
        return end.batch_id < number if kind == "Batch" else all(replay < number for _, replay, _ in end.replays)

    def _take_out_the_plan(self, action: str) -> None:
        self.planned, self.seen = "", None
        self._die()
        self.plans_to_newest &= "Spark 4.2" not in action

    def _begin_where_told(self, action: str) -> None:
        """With the batch that the message names, or with any one that the table shows, or with the next one to come."""
        told = _STARTING.search(action)
        retained = {one.snapshot_id for one in self.stream.truth.newest.version.metadata.snapshots}
        own = [one.asked for one in self._own() if one.asked is not None and one.snapshot_id in retained]
        self.begin = AtBatch(self.chance.choice(own).batch.batch_id) if own else Begin.LATEST
        if told is not None:
            self.begin = Begin.LATEST if told[1] == "latest" else AtBatch(int(told[1]))
        elif "To read the new table" in action:
            self.begin = Begin.EARLIEST
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.sink, self.batches = None, []
        self._take_out_the_plan("")
        self._did("reader begun anew", f"begins anew at {self.begin}")

    def _begin_at_the_plan(self, action: str) -> None:
        told = _STARTING.search(action)
        assert told is not None, action
        self.begin = AtBatch(int(told[1]))
        self._die()
        self._did("reader begun at its plan", f"begins with its plan at {self.begin}")

    # What is true.

    def _judge(self) -> list[Broken]:
        if self.sink is None:
            return []
        found: Rows = sum((batch.rows for batch in self.batches), Counter())
        there: Rows = sum((landed.rows for landed in self._own()), Counter())
        if self.waits:
            self._did("reader waits", "waits for a batch that was rolled back")
            if self._all_there():
                self._fail(Promise.NO_ROW_IS_LOST, "a reader waits for what is there")
        early = Counter({key: count for key, count in there.items() if self.waits or key[1] < self.since[key[0]]})
        expected = there - (early - found)
        expected.update({key: min(found[key], 1) - expected[key] for key in self._moved()})
        return rows_once(found, expected)

    def _moved(self) -> set[Key]:
        """Rows that are aside instead of in the table, or no more, since a rollback of batches that it has read.

        The query was started again with other options, and a position knows a batch by its input alone.
        """
        ends = [*(one.end for one in self.batches), *filter(None, [self.planned])]
        read = {parse_offset(json.loads(end)).snapshot_id for end in ends}
        there = {landed.snapshot_id for landed in self._own()}
        return set() if read <= there else self.stream.truth.moved(self._sink)

    def _all_there(self) -> bool:
        """The batches that it stands between are under the head, in this order; where it begins may have moved."""
        if not self.batches and self.begin is not Begin.EARLIEST:
            return False
        ends = [self.batches[-1].end] if self.batches else []
        at = [parse_offset(json.loads(end)) for end in [*ends, *filter(None, [self.planned])]]
        names = [(one.query_id, one.batch_id, one.fingerprint) for one in at if not one.is_before_all]
        there = [name_of(landed.asked) for landed in self._own() if landed.asked is not None]
        return bool(names) and [name for name in there if name in names] == names

    def _own(self) -> Sequence[Landed]:
        """The batches of its sink under the head, oldest first."""
        return [landed for landed in self.stream.truth.newest.path if landed.sink == self._sink]

    @property
    def _sink(self) -> tuple[str, str]:
        """Table and sink id of the batches that it reads."""
        uuid = str(self.stream.truth.newest.version.metadata.table_uuid)
        return uuid, self.stream.sink_id if self.sink is None else self.sink.sink

    def _table(self) -> Table:
        server = self.stream.server
        assert server.current is not None
        io = SimulatedIO(server.store, quiet=True)
        return Table(server.name, server.current.metadata, server.current.location, io, SimulatedCatalog(server))

    def _fail(self, promise: Promise, what: str) -> None:
        self.broken.append(Broken(promise, what))

    def _did(self, what: str, story: str) -> None:
        self.done[what] += 1
        self.stream.world.tell(f"a reader {story}")
