"""W5: milliseconds from an event to the table that shows it, at a load that is fixed beforehand.

Files are put before the stream by a clock that waits for nobody: a sink that falls behind pays for it in full. An event
is as old as the moment at which its file was due. It is visible when the catalog points to a metadata file whose
snapshot has it; a thread watches the catalog's row for that.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
from pyiceberg.table import Table
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.oracle import WrongRows, files_fingerprint
from benchmarks.pieces import PIECE, Pieces, create
from benchmarks.result import Cell, Result, quantile
from benchmarks.session import CATALOG, catalog_properties, iceberg_conf, session
from benchmarks.sinks import ICEBERG, LAKESINK, Sink, Target
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table

SECONDS = 15.0
SHARES = (50, 80)
PIECE_ROWS = 25_000
CALIBRATIONS, CALIBRATION_PIECES = 3, 40
PATIENCE_SECONDS = 90.0
_POLL_SECONDS = 0.005
SINKS = (LAKESINK, ICEBERG)


def measure(folder: Path, say: Callable[[str], None]) -> Result:
    """What each sink can do, then shares of what lakesink can do as a load for each."""
    folder.mkdir()
    spark = session(iceberg_conf(folder))
    load = Load(spark, folder, Pieces.make(spark, folder / "content", PIECE_ROWS))
    capacities = {sink.name: load.capacity(sink) for sink in SINKS}
    say(f"W5: rows a second {capacities}")
    found = {}
    for share in SHARES:
        for sink in SINKS:
            found[share, sink.name] = load.latencies(sink, capacities[LAKESINK.name] * share / 100)
            say(f"W5: {sink.name} at {share} %: {quantile(found[share, sink.name].milliseconds, 50):.0f} ms")
    spark.stop()
    return report(capacities, found)


@dataclass(frozen=True, slots=True)
class Latencies:
    """What one load came to.

    Attributes:
        milliseconds: From when it was due until it was visible, of every piece in its order.
        commits: That made them visible.
    """

    milliseconds: list[float]
    commits: int


@dataclass(slots=True)
class Load:
    """Where the loads are.

    Attributes:
        spark: The session.
        folder: Everything is in it.
        pieces: What comes.
    """

    spark: SparkSession
    folder: Path
    pieces: Pieces
    _runs: int = field(default=0)

    def capacity(self, sink: Sink) -> float:
        """Rows a second in the best of a few batches that have plenty of them: what else runs here only slows them."""
        found = 0.0
        for _ in range(CALIBRATIONS):
            incoming, target = self._place()
            for number in range(CALIBRATION_PIECES):
                self.pieces.put(incoming, number)
            rows = self.pieces.stream(self.spark, incoming, CALIBRATION_PIECES // 2)
            create(target, rows)
            query = sink.start(sink.writer(rows, target).trigger(availableNow=True), target)
            query.awaitTermination()
            for batch in query.recentProgress:
                found = max(found, batch["numInputRows"] * 1000 / batch["durationMs"]["triggerExecution"])
        return found

    def latencies(self, sink: Sink, rows_per_second: float) -> Latencies:
        """Start a stream, and when it has committed once, let pieces come at this rate."""
        incoming, target = self._place()
        rows = self.pieces.stream(self.spark, incoming)
        create(target, rows)
        self.pieces.put(incoming, 0)
        every = self.pieces.rows / rows_per_second
        numbers = range(1, 1 + int(SECONDS / every))
        with watched(self.folder / "catalog.db", target.table) as seen:
            query = sink.start(sink.writer(rows, target), target)
            self._wait_for(1, target, query)
            due = self._feed(incoming, numbers, every)
            self._wait_for(1 + len(numbers), target, query)
        query.stop()
        self.pieces.expected([0, *numbers]).check(sink.name, files_fingerprint(target.data_files()))
        visible = visible_pieces(load_table(connect(CATALOG, target.properties), target.table), seen)
        late = [(visible[number] - due[number]) * 1000 for number in numbers]
        return Latencies(late, len({visible[number] for number in numbers}))

    def _place(self) -> tuple[Path, Target]:
        self._runs += 1
        place = self.folder / f"load-{self._runs}"
        incoming = place / "incoming"
        incoming.mkdir(parents=True)
        return incoming, Target(place, f"bench.load_{self._runs}", catalog_properties(self.folder))

    def _feed(self, incoming: Path, numbers: Sequence[int], every: float) -> Mapping[int, float]:
        started = time.monotonic()
        due = {number: started + number * every for number in numbers}
        for number, moment in due.items():
            time.sleep(max(0.0, moment - time.monotonic()))
            self.pieces.put(incoming, number)
        return due

    def _wait_for(self, pieces: int, target: Target, query: StreamingQuery) -> None:
        catalog, deadline = connect(CATALOG, target.properties), time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            head = load_table(catalog, target.table).current_snapshot()
            if head and head.summary and int(head.summary["total-records"] or 0) >= pieces * self.pieces.rows:
                return
            if not query.isActive:
                break
            time.sleep(0.5)
        raise WrongRows(f"{pieces} pieces were not in the table in time: {query.exception() or 'the sink is too slow'}")


@contextmanager
def watched(database: Path, table: str) -> Iterator[dict[str, float]]:
    """Moments at which the catalog was first seen to point to a metadata file, by the file; complete with the block."""
    seen: dict[str, float] = {}
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(database, table, seen, done), daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()


def _watch(database: Path, table: str, seen: dict[str, float], done: threading.Event) -> None:
    namespace, _, name = table.rpartition(".")
    asked = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
        while not done.wait(_POLL_SECONDS):
            for (location,) in connection.execute(asked, (namespace, name)).fetchall():
                seen.setdefault(location, time.monotonic())


def visible_pieces(table: Table, seen: Mapping[str, float]) -> dict[int, float]:
    """When each piece was first in a snapshot that was seen.

    Args:
        table: As it is in the end.
        seen: Moments by metadata file.
    """
    moments = {_head_of(location): moment for location, moment in reversed(list(seen.items()))}
    found: dict[int, float] = {}
    waiting = set[int]()
    for snapshot in table.snapshots():
        waiting |= {*_pieces_of(table, snapshot.snapshot_id)} - found.keys()
        if snapshot.snapshot_id in moments:  # one that was too short to be seen is in the next one
            found |= dict.fromkeys(waiting, moments[snapshot.snapshot_id])
            waiting.clear()
    return found


def _head_of(location: str) -> int | None:
    head: int | None = json.loads(Path(location.removeprefix("file:")).read_text()).get("current-snapshot-id")
    return head


def _pieces_of(table: Table, snapshot_id: int) -> list[int]:
    snapshot = table.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    own = [manifest for manifest in snapshot.manifests(table.io) if manifest.added_snapshot_id == snapshot_id]
    entries = [entry for manifest in own for entry in manifest.fetch_manifest_entry(table.io)]
    paths = [entry.data_file.file_path.removeprefix("file:") for entry in entries if entry.snapshot_id == snapshot_id]
    if not paths:
        return []
    with duckdb.connect() as connection:
        listed = connection.execute(f"SELECT DISTINCT {PIECE} FROM read_parquet(?)", [paths])
        return [number for (number,) in listed.fetchall()]


def report(capacities: Mapping[str, float], found: Mapping[tuple[int, str], Latencies]) -> Result:
    """Percentiles of every load as a table."""
    rate = capacities[LAKESINK.name]
    title = f"milliseconds from event to visible; lakesink can do {rate:,.0f} rows a second here, " + ", ".join(
        f"{name} {other:,.0f}" for name, other in capacities.items() if name != LAKESINK.name
    )
    rows = tuple(_row(share, rate, name, one) for (share, name), one in found.items())
    raw = {f"{share}/{name}": {"ms": one.milliseconds, "commits": one.commits} for (share, name), one in found.items()}
    return Result("W5", title, ("load", "sink", "p50 ms", "p95 ms", "p99 ms", "commits"), rows, raw=raw)


def _row(share: int, rate: float, name: str, one: Latencies) -> tuple[Cell, ...]:
    percentiles = (round(quantile(one.milliseconds, percent)) for percent in (50, 95, 99))
    return f"{share} %, {rate * share / 100:,.0f} rows/s", name, *percentiles, one.commits
