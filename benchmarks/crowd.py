"""W6: several real streams into one table at once, each with a sink of its own, and Spark's compaction beside them.

All run in one driver, on the same two cores, so that commits a second say what the table's commit loop lets through
and what Spark itself takes. Every row must be there once in the end, whoever had to try again.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import lakesink
from benchmarks.oracle import files_fingerprint
from benchmarks.pieces import Pieces, create
from benchmarks.result import Cell, Result, quantile
from benchmarks.session import CATALOG, catalog_properties, iceberg_conf, session
from benchmarks.sinks import Target

CELLS = ((1, False), (2, False), (4, False), (8, False), (4, True))
"""How many sinks, and whether Spark compacts meanwhile."""
COMMITS = 64
"""Of all sinks of a cell together."""
PIECE_ROWS = 100
_OF_A_SINK = 1000
_EVENT = "lakesink.batch."


def measure(folder: Path, say: Callable[[str], None]) -> Result:
    """One crowd after the other."""
    folder.mkdir()
    spark = session(iceberg_conf(folder))
    pieces = Pieces.make(spark, folder / "content", PIECE_ROWS)
    run(spark, folder / "warm-up", pieces, Crowd(1, compacted=False))
    crowds = [Crowd(sinks, compacted) for sinks, compacted in CELLS]
    for crowd in crowds:
        run(spark, folder / crowd.name, pieces, crowd)
        say(f"W6: {crowd.name}: {len(crowd.commits)} commits")
    spark.stop()
    return report(crowds)


@dataclass(frozen=True, slots=True)
class BatchLine:
    """What lakesink logs of a batch.

    Attributes:
        at: When it was done, seconds.
        milliseconds: From its first look at the table to the catalog's answer, without the job that writes files.
        attempts: Commit attempts.
    """

    at: float
    milliseconds: float
    attempts: int

    @classmethod
    def of(cls, record: logging.LogRecord) -> "BatchLine | None":
        """None if it is not about a batch that was committed."""
        event, _, rest = record.getMessage().partition(" ")
        fields = dict(part.partition("=")[::2] for part in rest.split())
        if not event.startswith(_EVENT) or "attempts" not in fields:
            return None
        seconds = float(fields["seconds"]) - float(fields["write_seconds"])
        return cls(record.created, seconds * 1000, int(fields["attempts"]))


@dataclass(slots=True)
class Crowd:
    """Sinks on one table, and what they came to.

    Attributes:
        sinks: How many.
        compacted: True if Spark compacts the table meanwhile.
        commits: Of all sinks, as they were done.
        compactions: That landed.
        given_up: Compactions that Spark gave up.
    """

    sinks: int
    compacted: bool
    commits: list[BatchLine] = field(default_factory=list)
    compactions: int = 0
    given_up: int = 0

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.sinks}{' and compaction' if self.compacted else ''}"


def run(spark: SparkSession, folder: Path, pieces: Pieces, crowd: Crowd) -> None:
    """Run the streams to their ends, and check the table."""
    numbers = [[sink * _OF_A_SINK + number for number in range(COMMITS // crowd.sinks)] for sink in range(crowd.sinks)]
    target = Target(folder, f"bench.{folder.name.replace(' ', '_').replace('-', '_')}", _properties(folder))
    for sink, own in enumerate(numbers):
        incoming = folder / f"incoming-{sink}"
        incoming.mkdir(parents=True)
        for number in own:
            pieces.put(incoming, number)
    create(target, pieces.stream(spark, folder / "incoming-0"))
    with _listening(crowd.commits), _compaction(spark, target, crowd):
        queries = [_start(spark, pieces, target, sink) for sink in range(crowd.sinks)]
        for query in queries:
            query.awaitTermination()
    expected = pieces.expected([number for own in numbers for number in own])
    expected.check(f"lakesink with {crowd.name}", files_fingerprint(target.data_files()))


def _properties(folder: Path) -> dict[str, str]:
    return catalog_properties(folder.parent)


def _start(spark: SparkSession, pieces: Pieces, target: Target, sink: int) -> StreamingQuery:
    return (
        lakesink.stream(
            pieces.stream(spark, target.folder / f"incoming-{sink}", 1),
            target.table,
            sink_id=f"sink-{sink}",
            checkpoint=f"{target.checkpoint}-{sink}",
            catalog=CATALOG,
            catalog_properties=target.properties,
        )
        .trigger(availableNow=True)
        .start()
    )


class _Listener(logging.Handler):
    def __init__(self, lines: list[BatchLine]) -> None:
        super().__init__(logging.INFO)
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        line = BatchLine.of(record)
        if line is not None:
            self.lines.append(line)


@contextmanager
def _listening(lines: list[BatchLine]) -> Iterator[None]:
    """Read lakesink's log, which goes nowhere else meanwhile."""
    logger, listener = logging.getLogger("lakesink"), _Listener(lines)
    level, propagates = logger.level, logger.propagate
    logger.addHandler(listener)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(listener)
        logger.setLevel(level)
        logger.propagate = propagates


@contextmanager
def _compaction(spark: SparkSession, target: Target, crowd: Crowd) -> Iterator[None]:
    """Compact again and again, as long as the block lasts, if the crowd is to have it."""
    done = threading.Event()
    call = (
        f"CALL {CATALOG}.system.rewrite_data_files(table => '{target.table}', options => map('min-input-files', '5'))"
    )

    def compact() -> None:
        while crowd.compacted and not done.wait(0.5):
            crowd.given_up += 1
            with suppress(PySparkException):
                rewritten = spark.sql(call).collect()[0]["rewritten_data_files_count"]
                crowd.given_up -= 1
                crowd.compactions += rewritten > 0

    with ThreadPoolExecutor(1) as thread:
        compacting = thread.submit(compact)
        try:
            yield
        finally:
            done.set()
        compacting.result()


def report(crowds: Sequence[Crowd]) -> Result:
    """Each crowd as a row."""
    heads = ("sinks", "commits", "a second", "p50 ms", "p95 ms", "retries", "compactions")
    raw = {crowd.name: [[line.at, line.milliseconds, line.attempts] for line in crowd.commits] for crowd in crowds}
    return Result("W6", "several sinks on one table, every row there once", heads, tuple(map(_row, crowds)), raw=raw)


def _row(crowd: Crowd) -> tuple[Cell, ...]:
    times, moments = [line.milliseconds for line in crowd.commits], [line.at for line in crowd.commits]
    rate = (len(moments) - 1) / (max(moments) - min(moments))
    retries = sum(line.attempts - 1 for line in crowd.commits)
    compactions = f"{crowd.compactions} done, {crowd.given_up} given up" if crowd.compacted else ""
    percentiles = (round(quantile(times, percent)) for percent in (50, 95))
    return crowd.name, len(times), round(rate, 1), *percentiles, retries, compactions
