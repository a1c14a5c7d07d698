"""W15: upserts into a hundred million rows: how long locating takes, by how many cores, and how much memory.

Each run is a process of its own, which may use so many cores: what it starts may use no others.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil

import lakesink
from benchmarks.large_table import COLUMNS, LargeFiles, RandomChanges
from benchmarks.oracle import WrongRows
from benchmarks.result import Cell, Goal, Ratio, Result
from benchmarks.session import CATALOG, catalog_properties, session
from benchmarks.usage import measured
from lakesink.sinks.iceberg.keyed_changes import Locator
from lakesink_catalog.connect.catalog import connect
from lakesink_protocol.row_changes import counts_in

ROWS, FILES = 100_000_000, 40
CHANGES, BATCHES, WARM_UP = 10_000, 6, 1
EXECUTORS, DRIVER = "executors", "driver"
RUNS = ((EXECUTORS, 1), (EXECUTORS, 2), (DRIVER, 1), (DRIVER, 2))
"""Where the rows are located, and by how many cores."""
TABLE = "bench.many"
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Run:
    """What one run came to.

    Attributes:
        locate_ms: Of each batch but those that warm up.
        add_batch_ms: The same.
        cpu_seconds: Of all processes, from the start of the session on.
        worker_bytes: Most memory of one Python worker.
        driver_bytes: Memory of the driver's Python process in the end.
    """

    where: str
    cores: int
    locate_ms: Sequence[int]
    add_batch_ms: Sequence[int]
    cpu_seconds: float
    worker_bytes: int
    driver_bytes: int


def measure(folder: Path, say: Callable[[str], None], scale: float = 1.0) -> Result:
    """All runs, one after another."""
    folder.mkdir()
    rows = LargeFiles.made(int(ROWS * scale), FILES, say).rows
    found = []
    for where, cores in RUNS:
        place = folder / f"{where}-{cores}"
        place.mkdir()
        call = [sys.executable, "-m", "benchmarks.many_rows", str(place), str(rows), where, str(cores)]
        done = subprocess.run(call, stdout=subprocess.PIPE, text=True, check=True)
        found.append(Run(**json.loads(done.stdout.splitlines()[-1])))
        say(f"W15, {where}, {cores} cores: {found[-1].locate_ms} ms to locate, {found[-1].add_batch_ms} ms in all")
        shutil.rmtree(place)
    return report(found, rows)


def report(found: Sequence[Run], rows: int) -> Result:
    """Medians, and how much faster two cores are than one."""
    lines: list[tuple[Cell, ...]] = [
        (
            run.where,
            run.cores,
            int(statistics.median(run.locate_ms)),
            int(statistics.median(run.add_batch_ms)),
            run.worker_bytes // _MIB if run.where == EXECUTORS else "-",
            run.driver_bytes // _MIB,
        )
        for run in found
    ]
    of_executors = {run.cores: run.locate_ms for run in found if run.where == EXECUTORS}
    speedup = Ratio.of(of_executors[1], of_executors[2])
    goals = (Goal("W15, locating in executors, two cores against one", 1.8, speedup.median, at_least=True),)
    heads = ("located in", "cores", "locate ms", "addBatch ms", "worker MiB", "driver MiB")
    title = f"batches of {CHANGES:,} random upserts into {rows:,} rows"
    return Result("W15", title, heads, tuple(lines), goals, raw=[asdict(run) for run in found])


def run_here(folder: Path, rows: int, where: str, cores: int) -> Run:
    """One run in this process, which uses these cores alone from now on."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    located: list[int] = []
    with patch.object(Locator, "_locate", _timed(Locator._locate, located)), measured() as used:  # noqa: SLF001 - from outside
        batches = _batches(folder, rows, where, cores)
    return Run(
        where=where,
        cores=cores,
        locate_ms=located[WARM_UP:],
        add_batch_ms=batches[WARM_UP:],
        cpu_seconds=round(used.cpu_seconds, 1),
        worker_bytes=used.worker_peak_bytes,
        driver_bytes=psutil.Process().memory_info().rss,
    )


def _timed(call: Callable[..., Any], into: list[int]) -> Callable[..., Any]:
    def timed(*arguments: Any) -> Any:
        started = time.monotonic()
        found = call(*arguments)
        into.append(round(1000 * (time.monotonic() - started)))
        return found

    return timed


def _batches(folder: Path, rows: int, where: str, cores: int) -> list[int]:
    """Milliseconds of `addBatch` of each batch."""
    (folder / "source").mkdir()
    spark = session({"spark.master": f"local[{cores}]"})
    catalog = connect(CATALOG, catalog_properties(folder))
    catalog.create_namespace("bench")
    LargeFiles.made(rows, FILES, print).table(catalog, TABLE)
    arriving = spark.readStream.schema(COLUMNS).parquet(str(folder / "source"))
    options: dict[str, Any] = {
        "sink_id": "bench",
        "checkpoint": str(folder / "checkpoint"),
        "catalog": CATALOG,
        "catalog_properties": catalog_properties(folder),
    }
    stream = lakesink.stream(arriving, TABLE, **options, mode="upsert", keys=["id"], locate_in=where)
    query, changes, found = stream.start(), RandomChanges(folder, rows, CHANGES), []
    for number in range(BATCHES):
        path = changes.write(number)
        changes.arrive(path, folder / "source")
        query.processAllAvailable()
        found.append(next(p["durationMs"]["addBatch"] for p in reversed(query.recentProgress) if p["numInputRows"]))
    query.stop()
    spark.stop()
    _check(catalog.load_table(TABLE), rows)
    return found


def _check(table: Any, rows: int) -> None:
    """Each change of a key that was there has updated its row: the snapshots say how many."""
    summaries = [one.summary.additional_properties for one in table.metadata.snapshots[1:]]
    inserted = sum(counts.inserted for counts in map(counts_in, summaries) if counts is not None)
    live = int(summaries[-1]["total-records"]) - int(summaries[-1]["total-position-deletes"])
    if live != rows + inserted or inserted != BATCHES * CHANGES // 100:
        raise WrongRows(f"{live} live rows, {inserted} inserted")


if __name__ == "__main__":
    place, count, where_, cores_ = sys.argv[1:]
    print(json.dumps(asdict(run_here(Path(place), int(count), where_, int(cores_)))))
