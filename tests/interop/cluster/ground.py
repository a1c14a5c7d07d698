"""Streams whose tasks run on the executors of a cluster, into a warehouse on S3 behind a catalog in PostgreSQL."""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
from pyiceberg.table import Table

import lakesink
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.failpoints import VARIABLE
from lakesink_catalog.tables.tables import load_table
from servers.s3 import S3
from servers.spark_cluster import SparkCluster
from testkit.harness import CONF, PATIENCE_SECONDS, Stream, live_files, rows_of

BUCKET = "lake"
CATALOG = "lake"
TASKS = 4
_FEW_BYTES = "300"
_FLAG_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Ground:
    """What the streams of one run share.

    Attributes:
        cluster: Where tasks run.
        store: Where rows lie.
    """

    cluster: SparkCluster
    store: S3

    def stream(
        self,
        root: Path,
        conf: Mapping[str, str] | None = None,
        kind: "type[ClusterStream] | None" = None,
        **fields: Any,
    ) -> "ClusterStream":
        """A stream of numbered files, each read by `TASKS` tasks.

        Args:
            root: Its own folder; those who own it have a table's name.
            conf: Settings of Spark beside those that every stream here has.
            kind: Which one it is.
            **fields: Of it.
        """
        events = root / "events"
        events.mkdir(parents=True)
        logged = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}
        small = {"spark.sql.files.maxPartitionBytes": _FEW_BYTES, "spark.eventLog.compress": "false"}
        whole = {**CONF, **self.cluster.conf, **logged, **small, **(conf or {})}
        named = {
            "options": {"create_table": True, "catalog": CATALOG},
            "table": f"{root.parent.name}.{root.name}",
            "full_task_bytes": 1,  # the few bytes of a file here stand for as many as keep all their tasks
            **fields,
        }
        return (kind or ClusterStream)(root, master=self.cluster.master, conf=whole, ground=self, **named)

    def place(self, location: str) -> Path:
        """Where an object lies on this machine: the store keeps each as a file."""
        return self.store.folder / "buckets" / location.removeprefix("s3://")


@dataclass(frozen=True)
class ClusterStream(Stream):
    """One stream on a cluster; its catalog is that of the environment."""

    ground: Ground = field(kw_only=True)

    def load(self) -> Table:
        return load_table(connect(CATALOG), self.table)

    def rows(self, branch: str = "main") -> Counter[tuple[int, int]]:
        return rows_of(self.load(), branch, lambda location: str(self.ground.place(location)))

    def stored(self) -> set[str]:
        """Every data file that there is below the table."""
        place = self.ground.place(self.load().location())
        bucket = self.ground.place(f"s3://{BUCKET}")
        return {f"s3://{BUCKET}/{path.relative_to(bucket)}" for path in place.rglob("*.parquet")}

    def referenced(self) -> set[str]:
        """Every data file that a snapshot references."""
        table = self.load()
        return {path for snapshot in table.metadata.snapshots for path in live_files(table, snapshot.snapshot_id)}

    def attempts(self) -> list[dict[str, Any]]:
        """What Spark's event log tells of every attempt at a task that has ended, stage and result beside it."""
        lines = [line for path in self.root.glob("events/*/events_*") for line in path.read_text().splitlines()]
        ended = (event for event in map(json.loads, lines) if event["Event"] == "SparkListenerTaskEnd")
        return [
            {**event["Task Info"], "Stage": event["Stage ID"], "Reason": event["Task End Reason"]["Reason"]}
            for event in ended
        ]


@dataclass(frozen=True)
class FilesOnCluster(ClusterStream):
    """The same files into a directory in the store."""

    adapter: str = "files"

    def config(self) -> dict[str, Any]:
        return {**super().config(), "table": self.directory}

    @property
    def directory(self) -> str:
        return f"s3://{BUCKET}/{self.root.parent.name}"

    def rows(self, branch: str = "main") -> Counter[tuple[int, int]]:
        assert branch == "main"
        paths = [str(self.ground.place(path)) for path in lakesink.committed_files(self.directory)]
        return Counter(duckdb.read_parquet(paths).project("file, row").fetchall())


def paused(window: Path, point: str = "while-writing@1") -> str:
    """A failpoint at which a task says that it is there, and waits."""
    return f"{point}=pause:{window}"


def in_executors(failpoint: str) -> dict[str, str]:
    """The setting by which executors have a failpoint that the driver does not have."""
    return {f"spark.executorEnv.{VARIABLE}": failpoint}


def kill(pids: Iterable[int]) -> int:
    """SIGKILL; how many there were."""
    gone = 0
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            gone += 1
    return gone


def let_go(window: Path, driver: "Any") -> int:
    """Let every task go on that comes to the window, until the driver has ended; its exit code."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while driver.poll() is None and time.monotonic() < deadline:
        window.unlink(missing_ok=True)
        time.sleep(_FLAG_SECONDS)
    return int(driver.wait(1))
