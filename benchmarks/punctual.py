"""W21: milliseconds from the moment at which a trigger is due until its rows are visible, with maintenance and without.

Two streams of one session have a table each, and run in turn: so many triggers of one, then of the other. A file comes
half an interval before each trigger. Spark's triggers are due at multiples of the interval, so a pause that is too long
makes the next batch late, and counts. Rows are visible when the catalog points to them. The pauses are timed from
outside: on a busy machine, their processor time says what their length does not.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.latency import PATIENCE_SECONDS, visible_pieces, watched
from benchmarks.oracle import WrongRows, files_fingerprint
from benchmarks.pieces import Pieces, create
from benchmarks.result import Cell, Goal, Result, quantile
from benchmarks.session import CATALOG, catalog_properties, iceberg_conf, session
from benchmarks.sinks import LAKESINK, Target
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.ledger import MAINTENANCE

INTERVAL, TRIGGERS, TURNS = 2, 120, 4
"""Seconds between triggers, triggers of each stream, and turns that they are divided into."""
PIECE_ROWS = 2_500
GOAL = 1.3
ON, OFF = "on", "off"


def measure(folder: Path, say: Callable[[str], None], triggers: int = TRIGGERS, interval: int = INTERVAL) -> Result:
    """So many triggers of each stream."""
    (folder / "warehouse").mkdir(parents=True)
    spark = session(iceberg_conf(folder))
    pieces = Pieces.make(spark, folder / "content", PIECE_ROWS)
    streams = [_Stream.make(spark, pieces, folder, maintenance, interval) for maintenance in (OFF, ON)]
    with ExitStack() as stack:
        seen = [stack.enter_context(watched(folder / "catalog.db", one.target.table)) for one in streams]
        for turn in range(TURNS + 1):
            for stream in streams if turn % 2 else reversed(streams):
                stream.run(triggers // TURNS, warms=not turn)
            say(f"W21: turn {turn} of {TURNS}")
    found = {one.maintenance: one.late(moments) for one, moments in zip(streams, seen, strict=True)}
    pauses = [one.pauses for one in streams]
    compactions = [one.compactions for one in streams]
    spark.stop()
    return report(found, pauses, compactions, interval)


@dataclass(slots=True)
class _Stream:
    """One stream.

    Attributes:
        due: When the trigger of each piece was due, on the monotonic clock.
        pauses: Milliseconds of wall and processor of the pause behind each batch.
    """

    maintenance: str
    pieces: Pieces
    rows: DataFrame
    incoming: Path
    target: Target
    interval: int
    count: int = 0
    due: dict[int, float] = field(default_factory=dict)
    pauses: list[tuple[float, float]] = field(default_factory=list)

    @classmethod
    def make(cls, spark: SparkSession, pieces: Pieces, folder: Path, maintenance: str, interval: int) -> "_Stream":
        incoming = folder / maintenance / "incoming"
        incoming.mkdir(parents=True)
        options = {"maintenance": maintenance}
        target = Target(folder / maintenance, f"bench.punctual_{maintenance}", catalog_properties(folder), options)
        rows = pieces.stream(spark, incoming)
        create(target, rows)
        return cls(maintenance, pieces, rows, incoming, target, interval)

    def run(self, triggers: int, *, warms: bool) -> None:
        """Start the query, which runs a batch at once, and feed so many triggers."""
        with patch.object(IcebergSink, "maintain", _timed(IcebergSink.maintain, self.pauses)):
            self._run(triggers, warms=warms)

    def _run(self, triggers: int, *, warms: bool) -> None:
        self._put()
        trigger = f"{self.interval} seconds"
        query = LAKESINK.start(LAKESINK.writer(self.rows, self.target).trigger(processingTime=trigger), self.target)
        self._wait(query)
        for _ in range(triggers):
            due = (int(time.time() / self.interval + 0.5) + 1) * self.interval
            time.sleep(max(0.0, due - self.interval / 2 - time.time()))
            number = self._put()
            if not warms:
                self.due[number] = time.monotonic() + due - time.time()
        self._wait(query)
        query.stop()

    def _put(self) -> int:
        self.pieces.put(self.incoming, self.count)
        self.count += 1
        return self.count - 1

    def _wait(self, query: StreamingQuery) -> None:
        """Until all pieces are in the table, and maintenance has ended."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and query.isActive:
            head = self._table.current_snapshot()
            there = int(head.summary["total-records"] or 0) if head and head.summary else 0
            if there == self.count * self.pieces.rows and not query.status["isTriggerActive"]:
                return
            time.sleep(0.5)
        raise WrongRows(f"{self.count} pieces were not in the table in time: {query.exception() or 'it is too slow'}")

    @property
    def _table(self) -> Table:
        return load_table(connect(CATALOG, self.target.properties), self.target.table)

    def late(self, seen: Mapping[str, float]) -> list[float]:
        """Milliseconds of each trigger, if the table has all pieces."""
        self.pieces.expected(range(self.count)).check(self.maintenance, files_fingerprint(self.target.data_files()))
        visible = visible_pieces(self._table, seen)
        return [(visible[number] - due) * 1000 for number, due in self.due.items()]

    @property
    def compactions(self) -> int:
        """Groups that were replaced."""
        return sum(MAINTENANCE in one.summary.additional_properties for one in self._table.snapshots() if one.summary)


def _timed(maintain: Callable[..., None], pauses: list[tuple[float, float]]) -> Callable[..., None]:
    def timed(sink: IcebergSink, *, at_end: bool = False) -> None:
        began, of_thread = time.perf_counter(), time.thread_time()
        maintain(sink, at_end=at_end)
        pauses.append(((time.perf_counter() - began) * 1000, (time.thread_time() - of_thread) * 1000))

    return timed


def report(
    found: Mapping[str, Sequence[float]],
    pauses: Sequence[Sequence[tuple[float, float]]],
    compactions: Sequence[int],
    interval: int,
) -> Result:
    """Percentiles of both."""
    lines = list[tuple[Cell, ...]]()
    for (name, late), pause, count in zip(found.items(), pauses, compactions, strict=True):
        delays = (round(quantile(late, percent)) for percent in (50, 95, 99, 100))
        wall, cpu = ([round(quantile(times, percent)) for percent in (50, 99)] for times in zip(*pause, strict=True))
        lines.append((name, len(late), *delays, count, *wall, *cpu))
    goals = tuple(
        Goal(f"W21, p{percent} with maintenance", GOAL, _ratio(found, percent), at_least=False) for percent in (50, 99)
    )
    heads = (
        *("maintenance", "triggers", "p50 ms", "p95 ms", "p99 ms", "longest ms", "compactions"),
        *("p50 ms of a pause", "p99 ms", "p50 processor ms of a pause", "p99 processor ms"),
    )
    title = f"milliseconds from a trigger, every {interval} seconds, until its rows are visible"
    raw = {"late": found, "pauses": dict(zip(found, pauses, strict=True))}
    return Result("W21", title, heads, tuple(lines), goals, raw=raw, rounds=TURNS)


def _ratio(found: Mapping[str, Sequence[float]], percent: int) -> float:
    return quantile(found[ON], percent) / quantile(found[OFF], percent)
