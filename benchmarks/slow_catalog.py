"""W8: what a batch takes when the catalog takes its time over a commit: the latency of one call, or of several.

The catalog is Iceberg's REST reference server behind a proxy that holds every commit request back for so long before it
passes it on; loading a table is not held back.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.oracle import files_fingerprint
from benchmarks.pieces import Pieces, create
from benchmarks.result import Result
from benchmarks.session import CATALOG, iceberg_conf, session
from benchmarks.sinks import ICEBERG, LAKESINK, Sink, Target
from servers.fault_proxy import FaultProxy, HttpFault, Kind, fault_proxy
from servers.rest_reference import rest_reference

BATCHES = {0: 11, 5: 11, 50: 11, 500: 4, 5000: 2}
"""Batches of a stream by the milliseconds of a commit; the first one starts the stream, and is not counted."""
PIECE_ROWS = 1000
SINKS = (LAKESINK, ICEBERG)
_EVERY_COMMIT = range(1, 1000)
_MEASURABLE_MS = 500
"""Less is lost in what batches differ by anyway."""


def measure(folder: Path, say: Callable[[str], None]) -> Result:
    """Small streams one after the other, each sink at each latency."""
    folder.mkdir()
    found = {}
    with rest_reference(folder) as server, fault_proxy(server.uri) as proxy, _session(folder, proxy) as spark:
        slow = SlowCatalog(spark, folder, proxy, Pieces.make(spark, folder / "content", PIECE_ROWS))
        for sink in SINKS:
            slow.batches(sink, 0)
        for milliseconds in BATCHES:
            for sink in SINKS:
                found[milliseconds, sink.name] = slow.batches(sink, milliseconds)
                say(f"W8: {sink.name} at {milliseconds} ms: {statistics.median(found[milliseconds, sink.name].times)}")
    return report(found)


@contextmanager
def _session(folder: Path, proxy: FaultProxy) -> Iterator[SparkSession]:
    own = f"spark.sql.catalog.{CATALOG}"
    shared = {
        name: value
        for name, value in iceberg_conf(folder).items()
        if not name.startswith((f"{own}.jdbc", f"{own}.warehouse"))
    }
    spark = session(shared | {f"{own}.type": "rest", f"{own}.uri": proxy.uri})
    try:
        yield spark
    finally:
        spark.stop()


@dataclass(frozen=True, slots=True)
class Batches:
    """Of one stream.

    Attributes:
        times: Milliseconds of each batch after the first, as Spark has them.
        commits: Commit requests of all batches.
        batches: All of them.
    """

    times: list[int]
    commits: int
    batches: int


@dataclass(slots=True)
class SlowCatalog:
    """Where the streams are.

    Attributes:
        spark: The session.
        folder: Everything is in it.
        proxy: Before the catalog.
        pieces: One is a batch.
    """

    spark: SparkSession
    folder: Path
    proxy: FaultProxy
    pieces: Pieces
    _runs: int = field(default=0)

    def batches(self, sink: Sink, milliseconds: int) -> Batches:
        """Run one stream with every commit held back for so long."""
        self._runs += 1
        place = self.folder / f"run-{self._runs}"
        target = Target(place, f"bench.slow_{self._runs}", {"type": "rest", "uri": self.proxy.uri})
        count = BATCHES[milliseconds]
        rows = self._stream(place / "incoming", count)
        create(target, rows)
        fault = HttpFault(Kind.SLOW, seconds=milliseconds / 1000)
        before = self.proxy.commits
        self.proxy.faults = {before + number: fault for number in _EVERY_COMMIT} if milliseconds else {}
        query = sink.start(sink.writer(rows, target).trigger(availableNow=True), target)
        query.awaitTermination()
        self.proxy.faults = {}
        self.pieces.expected(range(count)).check(sink.name, files_fingerprint(target.data_files()))
        times = {one["batchId"]: one["durationMs"]["triggerExecution"] for one in query.recentProgress}
        return Batches([times[number] for number in range(1, count)], self.proxy.commits - before, count)

    def _stream(self, incoming: Path, count: int) -> DataFrame:
        incoming.mkdir(parents=True)
        for number in range(count):
            self.pieces.put(incoming, number)
        return self.pieces.stream(self.spark, incoming, 1)


def report(found: Mapping[tuple[int, str], Batches]) -> Result:
    """Medians as a table: what the latency adds to a batch, in milliseconds and in latencies of one call."""
    rows = []
    for (milliseconds, name), one in found.items():
        taken = statistics.median(one.times)
        added = taken - statistics.median(found[0, name].times)
        calls = f"{added / milliseconds:.1f}" if milliseconds >= _MEASURABLE_MS else ""
        rows.append((milliseconds, name, round(taken), round(added), calls, round(one.commits / one.batches, 1)))
    raw = {f"{milliseconds}/{name}": one.times for (milliseconds, name), one in found.items()}
    heads = ("ms of a commit", "sink", "ms of a batch", "more", "in commits", "commits a batch")
    return Result("W8", "a batch when every commit is held back", heads, tuple(rows), raw=raw)
