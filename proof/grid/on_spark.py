"""One cell on real Spark: drivers in local mode, Python workers and executors on a standalone cluster."""

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyiceberg.table import Table

from lakesink_catalog.failpoints import VARIABLE
from lakesink_protocol.errors import CatalogError
from proof.grid.cells import BATCHES, Cell, Company, SparkBlow
from proof.grid.cells import UPSERTS as OF_KEYS
from proof.grid.company import FIRST_FOREIGN_KEY, FOREIGN_PARTITION
from proof.grid.expect import BY_NAME
from proof.grid.story import Story
from proof.grid.trace_log import TraceLog
from proof.oracle import Rows, batches_contiguous, facts_of, files_whole, rows_once
from proof.processes.evidence import stored, unreferenced
from servers.spark_cluster import SparkCluster
from testkit.harness import (
    PATIENCE_SECONDS,
    Stream,
    ended_by_name,
    expected,
    kill_all,
    own_snapshots,
    signal_all,
    wait_for,
)
from testkit.tracing import VARIABLE as TRACE

SINK = "numbers"
UPSERTS = {
    "create_table": True,
    "mode": "changes",
    "keys": ["row"],
    "sequence_by": "file",
    "apply_as_deletes": "(file + row) % 5 = 0",
}
"""Each file replaces all rows of the one before it, but for some, which it deletes."""


@dataclass(slots=True)
class _Run:
    cell: Cell
    stream: Stream
    cluster: Callable[[], SparkCluster]
    story: Story
    foreign: Rows

    @property
    def window(self) -> Path:
        return self.stream.root / "window"

    @property
    def failpoint(self) -> str:
        return f"{self.cell.point}@{self.cell.position.value}=pause:{self.window}"

    def others_act(self) -> None:
        table = self.table()
        if self.cell.company is Company.ALONE or table is None:
            return
        row = (FOREIGN_PARTITION, FIRST_FOREIGN_KEY + sum(self.foreign.values()))
        table.append(pa.table([pa.array([value], pa.int64()) for value in row], schema=table.schema().as_arrow()))
        self.foreign[row] += 1

    def table(self) -> Table | None:
        with suppress(CatalogError):
            return self.stream.load()
        return None


def strike_spark(cell: Cell, blow: SparkBlow, folder: Path, cluster: Callable[[], SparkCluster]) -> Story:
    """Run a cell.

    Args:
        cell: Where, when, and in which company.
        blow: What happens.
        folder: Empty; its own.
        cluster: Asked for only if the cell needs it.
    """
    trace = TraceLog(folder / "trace")
    try:
        options = UPSERTS if cell.kind == OF_KEYS else {"create_table": True}
        stream = Stream(folder, options=options, environment={TRACE: str(folder / "trace")})
        stream.add_files(0, BATCHES)
        run = _Run(cell, stream, cluster, Story(), Counter())
        _BLOWS[blow](run)
        _judge(run)
        run.story.trace = trace.lines()
        return run.story
    finally:
        trace.close()


def _kill_driver(run: _Run) -> None:
    with run.stream.driver(run.failpoint) as driver:
        wait_for(run.window, driver)
        killed_ms = time.time_ns() / 1e6
        kill_all(driver)
    run.window.unlink()
    run.others_act()
    before = set(own_snapshots(table, SINK)) if (table := run.table()) else set()
    run.story.kills = 1
    _finish(run)
    landed = [entry for entry in own_snapshots(run.stream.load(), SINK) if entry not in before]
    if landed:
        snapshot = run.stream.load().snapshot_by_id(landed[0][2])
        assert snapshot is not None
        run.story.recovery_ms = snapshot.timestamp_ms - killed_ms


def _zombie(run: _Run) -> None:
    with run.stream.driver(run.failpoint) as driver:
        wait_for(run.window, driver)
        signal_all(driver, signal.SIGSTOP)
        run.others_act()
        _finish(run)
        run.window.unlink()
        signal_all(driver, signal.SIGCONT)
        driver.wait(PATIENCE_SECONDS)
        well = driver.returncode == 0 or ended_by_name(run.stream.log())
        run.story.struck = BY_NAME if well else f"exit code {driver.returncode}"


def _kill_on_cluster(run: _Run) -> None:
    """The query itself lives on: Spark runs the tasks again whose process is gone."""
    cluster = run.cluster()
    conf = {**run.stream.conf, **cluster.conf, f"spark.executorEnv.{VARIABLE}": run.failpoint}
    run.stream = replace(run.stream, master=cluster.master, conf=conf)
    with run.stream.driver(run.failpoint) as driver:
        wait_for(run.window, driver)
        victims = cluster.executors() if run.cell.fault is SparkBlow.EXECUTOR else cluster.python_workers()
        for pid in victims:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        run.story.kills = len(victims)
        run.others_act()
        _let_go(run.window, driver)
        run.story.struck = None if driver.returncode == 0 else f"exit code {driver.returncode}"
    if driver.returncode != 0:
        _finish(run)


def _let_go(window: Path, driver: "subprocess.Popen[str]") -> None:
    """The task's next attempt comes to the same place."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while driver.poll() is None and time.monotonic() < deadline:
        window.unlink(missing_ok=True)
        time.sleep(0.05)


def _finish(run: _Run) -> None:
    code = run.stream.run()
    run.story.restarts.append(None if code == 0 else f"exit code {code}")


def _judge(run: _Run) -> None:
    table = run.stream.load()
    facts = facts_of(table, SINK)
    story = run.story
    story.broken = rows_once(*_rows(run, table))
    story.broken += [*batches_contiguous(facts), *files_whole(facts, stored)]
    story.orphans = unreferenced(table, facts)


def _rows(run: _Run, table: Table) -> tuple[Rows, Rows]:
    """The rows in the table, and those that must be there."""
    if run.cell.kind != OF_KEYS:
        return run.stream.rows(), expected(range(BATCHES)) + run.foreign
    return rows_of_upserts(table), kept_by_upserts(BATCHES - 1) + run.foreign


def rows_of_upserts(table: Table) -> Rows:
    """The rows of a table whose stream has the options `UPSERTS`."""
    found = table.scan(selected_fields=("file", "row")).to_arrow()
    return Counter(zip(found["file"].to_pylist(), found["row"].to_pylist(), strict=True))


def kept_by_upserts(last: int) -> Rows:
    """The rows that must be there after this file: all of its own, but for those that it deletes."""
    return Counter(row for row in expected([last]) if sum(row) % 5)


_BLOWS: dict[SparkBlow, Callable[[_Run], None]] = {
    SparkBlow.DRIVER: _kill_driver,
    SparkBlow.ZOMBIE: _zombie,
    SparkBlow.PYTHON_WORKER: _kill_on_cluster,
    SparkBlow.EXECUTOR: _kill_on_cluster,
}
