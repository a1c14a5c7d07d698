"""The run of the demo: a stream of real flights, a driver killed at the two worst moments, and the table afterwards."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from lakesink_catalog.words import counted
from lakesink_protocol.errors import LakesinkError
from lakesink_tools.demo.checks import Check, DiedAfterCommit, DiedBeforeCommit, only, source_checks
from lakesink_tools.demo.evidence import Comparison, compare, count_rows, files_as_of, read_facts, read_record
from lakesink_tools.demo.flights import DailyFiles, write_daily_files
from lakesink_tools.demo.place import Place
from lakesink_tools.demo.process import BatchLine, DriverRun, run_driver

MOST_BATCHES = 25


class Screen:
    """Prints the steps of the demo on standard error, with a progress bar on a terminal."""

    def __init__(self) -> None:
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._bar: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print one step of the demo."""
        self._progress.console.print(text, markup=False)

    def expect(self, batches: int) -> None:
        """Show a bar for this number of batches."""
        self._bar = self._progress.add_task("starting Spark", total=batches)

    def batch(self, line: BatchLine) -> None:
        """Move the bar: a driver has finished a batch."""
        assert self._bar is not None
        description = f"batch {line.batch_id} {line.event}"
        self._progress.update(self._bar, completed=line.batch_id + 1, description=description)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Assigns the files to batches, and chooses the two batches in which a driver dies."""

    source: DailyFiles
    files_per_batch: int
    batches: int

    @classmethod
    def of(cls, source: DailyFiles) -> "BatchPlan":
        """At most `MOST_BATCHES` batches with the same number of files each."""
        files_per_batch = -(-len(source.rows) // MOST_BATCHES)
        return cls(source, files_per_batch, batches=-(-len(source.rows) // files_per_batch))

    @property
    def recovered(self) -> int:
        """The batch that is prepared, but not committed, when its driver dies."""
        return self.batches // 3

    @property
    def replayed(self) -> int:
        """The batch that is committed, but not recorded by Spark, when its driver dies."""
        return 2 * self.batches // 3

    def rows_until(self, batch_id: int) -> int:
        """Rows of the source up to the end of a batch."""
        return sum(self.source.rows[: (batch_id + 1) * self.files_per_batch])


@dataclass(frozen=True, slots=True)
class Ending:
    """Result of the demo."""

    rows: int
    batches: int  # snapshots of the stream's batches
    drivers: int  # driver processes, including killed ones
    killed: int  # drivers that died by SIGKILL
    recovered: int  # batches that were committed from a dead driver's record
    skipped: int  # repeated batches that were found in the table
    orphan_files: int  # data files that no snapshot references
    as_of: tuple[int, int]  # a batch in the middle and its snapshot, for time travel
    checks: tuple[Check, ...]
    seconds: float

    @property
    def proved(self) -> bool:
        """True if every claim holds."""
        return all(check.holds for check in self.checks)


def run_demo(place: Place, screen: Screen, *, row_limit: int, kill: bool) -> Ending:
    """Run the demo in an empty folder; without `kill`, the first driver finishes."""
    started = time.monotonic()
    screen.say("Unpacking the flights of 2013.")
    plan = BatchPlan.of(write_daily_files(place.home, row_limit))
    stage = _Stage(place, screen, plan, runs=[])
    screen.say(
        f"{counted(sum(plan.source.rows), 'flight')} in {counted(len(plan.source.rows), 'file')}, one per day:"
        f" {counted(plan.batches, 'batch')}."
    )
    screen.expect(plan.batches)
    deaths = (stage.die_before_commit(), stage.die_after_commit()) if kill else ()
    stage.finish()
    screen.say("Counting the source's text file and the table's data files with DuckDB.")
    return stage.ending(deaths, compare(plan.source.csv, row_limit, files_as_of()), started)


@dataclass(frozen=True, slots=True)
class _Stage:
    place: Place
    screen: Screen
    plan: BatchPlan
    runs: list[DriverRun]

    def die_before_commit(self) -> DiedBeforeCommit:
        batch_id = self.plan.recovered
        self._die("after-prepared", batch_id)
        died = DiedBeforeCommit(batch_id, read_record(batch_id), read_facts())
        self.screen.say(
            f"SIGKILL. Driver {len(self.runs)} left batch {batch_id} prepared and not committed:"
            f" {len(died.record.files)} data files that no reader sees."
        )
        return died

    def die_after_commit(self) -> DiedAfterCommit:
        batch_id = self.plan.replayed
        self._die("after-commit", batch_id)
        self.screen.say(
            f"SIGKILL. Driver {len(self.runs)} left batch {batch_id} committed, but Spark does not know and will run it"
            " again."
        )
        return DiedAfterCommit(batch_id, read_facts())

    def finish(self) -> None:
        run = self._run(None)
        if run.exit_code != 0:
            raise _driver_failed(f"Driver {len(self.runs)} ended with exit code {run.exit_code}.", run, self.place)

    def ending(
        self, deaths: Sequence[DiedBeforeCommit | DiedAfterCommit], compared: Comparison, started: float
    ) -> Ending:
        plan, end = self.plan, read_facts()
        recovered = sum(record.outcome == "recovered" for record in end.batches)
        skipped = sum(line.event == "already-committed" for run in self.runs for line in run.batches)
        middle = plan.recovered, only(end, plan.recovered)
        checks = (
            *source_checks(compared),
            Check("batches in the table", plan.batches, len({record.batch_id for record in end.batches})),
            Check("snapshots of these batches", plan.batches, len(end.batches)),
            Check(
                f"rows as of batch {middle[0]}",
                plan.rows_until(middle[0]),
                count_rows(files_as_of(middle[1]) if middle[1] else ()),
            ),
            Check("batches committed from a dead driver's record", min(len(deaths), 1), recovered),
            Check("replayed batches that were skipped", min(len(deaths), 1), skipped),
            *(check for death in deaths for check in death.checks(end)),
        )
        return Ending(
            rows=compared.table.rows,
            batches=len(end.batches),
            drivers=len(self.runs),
            killed=sum(run.was_killed for run in self.runs),
            recovered=recovered,
            skipped=skipped,
            orphan_files=len(end.orphans),
            as_of=middle,
            checks=checks,
            seconds=time.monotonic() - started,
        )

    def _die(self, failpoint: str, batch_id: int) -> None:
        run = self._run(f"{failpoint}@{batch_id}=kill")
        if not run.was_killed:
            what = (
                f"Driver {len(self.runs)} should have died in batch {batch_id}, but its exit code is {run.exit_code}."
            )
            raise _driver_failed(what, run, self.place)

    def _batch(self, line: BatchLine) -> None:
        if line == BatchLine("committed", 0):
            self.screen.say(f"Batch 0 is committed: {counted(self.plan.rows_until(0), 'flight')} are in the table.")
        self.screen.batch(line)

    def _run(self, failpoint: str | None) -> DriverRun:
        run = run_driver(self.place, self.plan.files_per_batch, failpoint, self._batch)
        self.runs.append(run)
        return run


def _driver_failed(what: str, run: DriverRun, place: Place) -> LakesinkError:
    reason = next((line for line in run.output_end.splitlines() if "[LAKESINK_" in line), "")
    return LakesinkError.of("DEMO_FAILED", what=what, log=place.log, reason=reason)
