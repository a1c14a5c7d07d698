"""Carries cells out: a driver is killed at every bad moment, started again each time, and the rows are counted."""

import shutil
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from lakesink_catalog.failpoints import VARIABLE
from proof.drivers import arrive, driver, wait_until
from proof.guarantees.cells import KINDS, Blow, CellResult, Source
from proof.guarantees.driver import run_streams
from proof.guarantees.reader import Reader
from proof.guarantees.sinks import WIRINGS, Rows

DEVICES = 2
READINGS_PER_FILE = 10


class KillMissed(Exception):
    """A stream did not come to where it was to die, so that its cell shows nothing: a fault of this program."""


def rows_of(file: int) -> Rows:
    """Rows of one file of the source, which is one batch."""
    span = range(file * READINGS_PER_FILE, (file + 1) * READINGS_PER_FILE)
    return Counter((device, reading) for device in range(DEVICES) for reading in span)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to happen to one sink.

    Attributes:
        sink: Name of the kind.
        sources: Each has a stream of its own, all in the same drivers.
        points: Failpoints of the sink; the driver is killed once at each of them.
    """

    sink: str
    sources: tuple[Source, ...]
    points: tuple[str, ...]

    @property
    def batches(self) -> list[Rows]:
        """Rows of every batch: one for each kill, and one that meets none."""
        return [rows_of(file) for file in range(len(self.points) + 1)]


def whole(sink: str, sources: Sequence[Source] = tuple(Source)) -> Plan:
    """Every kill of a sink."""
    return Plan(sink, tuple(sources), tuple(KINDS[sink].points))


def play(plan: Plan, spark: SparkSession, folder: Path) -> list[CellResult]:
    """The cells of one sink, in a folder of their own that is gone afterwards.

    Args:
        plan: What is to happen.
        spark: Runs the last start, which nobody kills.
        folder: Exists.

    Raises:
        KillMissed: The cells did not come about, and not when they were tried once more either.
    """
    for last_try in (False, True):
        root = folder / plan.sink
        try:
            return _played(plan, spark, root)
        except KillMissed:  # Spark itself fails now and then where a machine is overloaded
            if last_try:
                raise
        finally:
            shutil.rmtree(root)
    raise AssertionError("the last try returns or raises")


def _played(plan: Plan, spark: SparkSession, root: Path) -> list[CellResult]:
    started = time.monotonic()
    for source in plan.sources:
        _fill(root / source.name / "source", plan.batches)
    wiring = WIRINGS[plan.sink]
    readers = [Reader(wiring.view, root / source.name, plan.batches, wiring.look_seconds) for source in plan.sources]
    with wiring.server(root), ExitStack() as reading:
        for reader in readers:
            reading.enter_context(reader.reading())
        for batch, point in enumerate(plan.points):
            _kill(plan, root, point, batch)
        stopped = run_streams(spark, plan.sink, root, plan.sources)
        reading.close()
        seconds = round(time.monotonic() - started, 1)
        return [_judged(plan, *of_source, seconds) for of_source in zip(plan.sources, readers, stopped, strict=True)]


def _fill(folder: Path, batches: Sequence[Rows]) -> None:
    folder.mkdir(parents=True)
    for file, rows in enumerate(batches):
        in_order = sorted(rows, key=lambda row: (row[1], row[0]))
        arrive(folder, file, ({"device": device, "reading": reading} for device, reading in in_order))


def _kill(plan: Plan, root: Path, point: str, batch: int) -> None:
    """A driver replays what the one before left behind, goes on, and gets SIGKILL when its streams are at a point."""
    log, arguments = root / "driver.log", [plan.sink, str(root), *(source.name for source in plan.sources)]
    failpoint = {VARIABLE: f"{point}@{batch}=pause:{root}/pausing"}

    def all_are_there() -> bool:
        return log.read_text().count(f"lakesink.failpoint.reached name={point} batch={batch} ") == len(plan.sources)

    with driver("proof.guarantees.driver", arguments, log, **failpoint) as process:
        if not wait_until(all_are_there, process):
            raise KillMissed(f"{plan.sink}: {point} of batch {batch} was not reached. {log.read_text()[-2000:]}")


def _judged(plan: Plan, source: Source, reader: Reader, stopped: str, seconds: float) -> CellResult:
    found = reader.view(reader.folder).rows
    expected = sum(plan.batches, Counter())
    blows = (_blow(point, batch, found) for point, batch in zip(plan.points, plan.batches, strict=False))
    return CellResult(
        sink=plan.sink,
        source=source.name,
        blows=tuple(blows),
        lost=(expected - found).total(),
        doubled=(found - expected).total(),
        looks=reader.looks,
        in_part=len(reader.in_part),
        went_back=len(reader.went_back),
        example=next(iter(reader.went_back), ""),
        stopped=stopped or next(iter(reader.failures), ""),
        seconds=seconds,
    )


def _blow(point: str, batch: Rows, found: Rows) -> Blow:
    there = Counter({row: found[row] for row in batch})
    return Blow(point, batch.total(), (batch - there).total(), (there - batch).total())
