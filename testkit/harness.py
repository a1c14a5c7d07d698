"""Runs real drivers, kills them, and reads the table with an independent reader."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
from pyiceberg.table import Table

from lakesink.spark.rows.task_count import FULL_TASK_BYTES
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.failpoints import VARIABLE
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.ledger import mark_of
from testkit.tracing import VARIABLE as TRACE

DRIVER, TRACING = (Path(__file__).with_name(name) for name in ("driver.py", "tracing.py"))
ROWS_PER_FILE = 50
PATIENCE_SECONDS = 500
CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # short runs: start fast
}


@dataclass(frozen=True)
class Stream:
    """One stream of numbered files into one table; every row is (file, row)."""

    root: Path
    options: Mapping[str, Any] = field(default_factory=lambda: {"create_table": True})
    table: str = "demo.numbers"
    sink_id: str = "numbers"
    checkpoint_name: str = "checkpoint"
    where: tuple[str, ...] = ()
    trigger: Mapping[str, Any] = field(default_factory=lambda: {"availableNow": True})
    conf: Mapping[str, str] = field(default_factory=lambda: CONF)
    adapter: str = "stream"
    heap_after: tuple[int, ...] = ()
    master: str = "local[2]"
    environment: Mapping[str, str] = field(default_factory=dict)
    program: Path = DRIVER
    shared_home: Path | None = None
    full_task_bytes: int = FULL_TASK_BYTES

    @property
    def checkpoint(self) -> Path:
        return self.root / self.checkpoint_name

    @property
    def home(self) -> Path:
        return self.shared_home or self.root / "home"

    def add_files(self, first: int, last: int) -> None:
        """Add complete files with ascending times, so that Spark always reads them in this order."""
        source = self.root / "source"
        source.mkdir(parents=True, exist_ok=True)
        for number in range(first, last):
            text = "".join(json.dumps({"file": number, "row": row}) + "\n" for row in range(ROWS_PER_FILE))
            staged = self.root / f"{number}.staged"
            staged.write_text(text)
            os.utime(staged, (1_700_000_000 + number, 1_700_000_000 + number))
            staged.rename(source / f"{number:06d}.json")

    def config(self) -> dict[str, Any]:
        return {
            "master": self.master,
            "conf": dict(self.conf),
            "heap_after": list(self.heap_after),
            "adapter": self.adapter,
            "schema": "file long, row long",
            "source": str(self.root / "source"),
            "checkpoint": str(self.checkpoint),
            "table": self.table,
            "sink_id": self.sink_id,
            "options": dict(self.options),
            "where": list(self.where),
            "trigger": dict(self.trigger),
            "full_task_bytes": self.full_task_bytes,
        }

    @contextmanager
    def driver(self, failpoints: str = "") -> Iterator[subprocess.Popen[str]]:
        """Run a driver in its own process group; the end of the block kills all its processes."""
        pythons = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        environment = {**os.environ, **pythons, **self.environment}
        environment |= {"LAKESINK_HOME": str(self.home), VARIABLE: failpoints}
        self.root.mkdir(parents=True, exist_ok=True)
        tracing = [str(TRACING)] if TRACE in self.environment else []
        command = [sys.executable, *tracing, str(self.program), json.dumps(self.config())]
        with own_group(command, self.root / "driver.log", environment) as process:
            yield process

    def run(self, failpoints: str = "") -> int:
        """Run a driver until it ends or dies; returns its exit code (-9 if it was killed)."""
        with self.driver(failpoints) as process:
            return process.wait(PATIENCE_SECONDS)

    def killed_at(self, point: str) -> None:
        """Run a driver and kill it with all its processes, whichever of them has come to the failpoint."""
        window = self.root / "killed-here"
        with self.driver(f"{point}=pause:{window}") as process:
            wait_for(window, process)
            kill_all(process)
        window.unlink()

    def overtaken_at(self, point: str) -> bool:
        """Stop a driver at a failpoint, run another one to its end, wake the first: did it end as a loser may?"""
        window = self.root / "paused"
        with self.driver(f"{point}=pause:{window}") as zombie:
            wait_for(window, zombie)
            signal_all(zombie, signal.SIGSTOP)
            assert self.run() == 0, self.log()
            window.unlink()
            signal_all(zombie, signal.SIGCONT)
            zombie.wait(PATIENCE_SECONDS)
        return zombie.returncode == 0 or ended_by_name(self.log())

    def log(self) -> str:
        return (self.root / "driver.log").read_text()

    def load(self) -> Table:
        os.environ["LAKESINK_HOME"] = str(self.home)
        return load_table(connect(), self.table)

    def rows(self, branch: str = "main") -> Counter[tuple[int, int]]:
        """See `rows_of`."""
        return rows_of(self.load(), branch)


def rows_of(
    table: Table, branch: str = "main", path_of: Callable[[str], str] = lambda location: location
) -> Counter[tuple[int, int]]:
    """Every row with its multiplicity, read by DuckDB from the files that the branch's head references.

    Args:
        table: The table.
        branch: Its branch.
        path_of: Converts a location to a path for DuckDB.
    """
    snapshot = table.snapshot_by_name(branch)
    paths = [path_of(path) for path in live_files(table, snapshot.snapshot_id)] if snapshot else []
    if not paths:
        return Counter()
    found = duckdb.execute("select file, row, count(*) from read_parquet(?) group by all", [paths]).fetchall()
    return Counter({(number, row): count for number, row, count in found})


def expected(files: Iterable[int]) -> Counter[tuple[int, int]]:
    return Counter({(number, row): 1 for number in files for row in range(ROWS_PER_FILE)})


def live_files(table: Table, snapshot_id: int) -> list[str]:
    tasks = list(table.scan(snapshot_id=snapshot_id).plan_files())
    assert not any(task.delete_files for task in tasks)
    return [task.file.file_path for task in tasks]


def added_files(table: Table, snapshot_id: int) -> set[str]:
    """Data files that one snapshot added."""
    snapshot = table.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    return {
        entry.data_file.file_path
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.snapshot_id == snapshot_id
    }


def own_snapshots(table: Table, sink_id: str = "numbers") -> list[tuple[int, str, int]]:
    """(batch id, outcome, snapshot id) of every snapshot with a mark of the sink, oldest first."""
    ordered = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    marks = ((mark_of(snapshot.summary), snapshot.snapshot_id) for snapshot in ordered)
    return [(mark.batch_id, mark.outcome, snapshot) for mark, snapshot in marks if mark and mark.key.name == sink_id]


def ended_by_name(log: str) -> bool:
    """The loser ended with lakesink's own error, or with Spark's about a concurrent writer of its log."""
    return "[LAKESINK_" in log or "CONCURRENT_STREAM_LOG_UPDATE" in log


def wait_for(path: Path, process: subprocess.Popen[str], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until a paused driver creates a file; fails if the driver ends before."""
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, f"the driver ended with {process.returncode} before it reached the window"
        assert time.monotonic() < deadline, f"no {path.name} within {seconds} s"
        time.sleep(0.02)


def signal_all(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Signal the driver, its JVM and its Python workers, which are in a process group of their own."""
    for pid in (process.pid, *descendants(process.pid)):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@contextmanager
def own_group(
    command: Sequence[str], log: Path, environment: Mapping[str, str], cwd: Path | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """Run a command in a process group of its own; the end of the block kills all its processes."""
    with log.open("a") as output:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            kill_all(process)


def kill_all(process: subprocess.Popen[str]) -> None:
    signal_all(process, signal.SIGKILL)
    process.wait(PATIENCE_SECONDS)


def descendants(pid: int) -> list[int]:
    """All direct and indirect child processes of a process."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], check=True, capture_output=True, text=True).stdout
    children: dict[int, list[int]] = {}
    for line in listed.splitlines():
        child, parent = map(int, line.split())
        children.setdefault(parent, []).append(child)
    found = [pid]
    for parent in found:
        found.extend(children.get(parent, []))
    return found[1:]
