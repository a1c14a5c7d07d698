"""What Spark SQL and Trino do to a table beside its stream, in turn and again, until they are told to stop."""

import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from uuid import uuid4

from servers.spark_sql import SparkFailed
from servers.trino import TrinoFailed
from tests.interop.maintenance.lake import Lake, local
from tests.interop.readers.engines import CATALOG

KEPT = timedelta(seconds=60)
"""History that expiry leaves: longer than any of the operations takes."""

UNFINISHED = timedelta(seconds=120)
"""Files that Trino takes for orphans are older: longer than a batch takes, its driver's restart included."""

SHORTEST_OF_SPARK = timedelta(hours=25)
"""Spark takes no less than 24 hours."""


@dataclass(slots=True)
class Others:
    """One engine at work on one table.

    Attributes:
        operations: By kind; each is done, or raises the engine's error.
        pause_seconds: After each; a faster engine leaves the slower one its turn.
        done: How often each kind was done.
        refused: Kind and error of what the engine gave up.
    """

    operations: Mapping[str, Callable[[], object]]
    pause_seconds: float = 0.0
    done: Counter[str] = field(default_factory=Counter)
    refused: list[tuple[str, str]] = field(default_factory=list)

    def work(self, stop: Event) -> None:
        """What the engine gave up is done anew."""
        for kind in itertools.cycle(self.operations):
            while not self._is_done(kind) and not stop.wait(self.pause_seconds):
                pass
            if stop.wait(self.pause_seconds):
                return

    def _is_done(self, kind: str) -> bool:
        try:
            self.operations[kind]()
        except (SparkFailed, TrinoFailed) as error:
            self.refused.append((kind, str(error)))
            return False
        self.done[kind] += 1
        return True


@dataclass(slots=True)
class Inserts:
    """Rows that one engine inserts: (file, 0), (file, 1), ... each until it is in the table.

    Attributes:
        lake: The lake.
        table: The table.
        run: Runs a statement.
        file: The number that its rows bear.
        rows: How many are in the table.
    """

    lake: Lake
    table: str
    run: Callable[[str], object]
    file: int
    rows: int = 0

    def insert(self) -> None:
        """An insert that was refused is in the table, or is not: the next one is another row, or the same."""
        try:
            self.run(f"INSERT INTO {CATALOG}.{self.table} VALUES ({self.file}, {self.rows})")
        except (SparkFailed, TrinoFailed):
            self.rows += self._is_there()
            raise
        self.rows += 1

    def expected(self) -> Counter[tuple[int, int]]:
        return Counter((self.file, row) for row in range(self.rows))

    def _is_there(self) -> bool:
        condition = f"file == {self.file} and row == {self.rows}"
        return len(self.lake.load(self.table).scan(condition).to_arrow()) > 0


def by_spark(lake: Lake, table: str, inserts: Inserts) -> Others:
    """What Iceberg's procedures do; ``fast_forward`` publishes the stream to a branch."""

    def orphans() -> None:
        planted = plant(lake, table, timedelta(days=10))
        lake.call("remove_orphan_files", table, older_than=ago(SHORTEST_OF_SPARK))
        assert not planted.exists()

    return Others(
        {
            "Spark rewrite_data_files": lambda: lake.call(
                "rewrite_data_files", table, options="map('min-input-files', '2')"
            ),
            "Spark rewrite_manifests": lambda: lake.call("rewrite_manifests", table),
            "Spark INSERT": inserts.insert,
            "Spark fast_forward": lambda: lake.call("fast_forward", table, branch="'published'", to="'main'"),
            "Spark expire_snapshots": lambda: lake.call("expire_snapshots", table, older_than=ago(KEPT)),
            "Spark remove_orphan_files": orphans,
        }
    )


def by_trino(lake: Lake, table: str, inserts: Inserts) -> Others:
    """What Trino's table procedures do."""

    def orphans() -> None:
        planted = plant(lake, table, 2 * UNFINISHED)
        lake.execute(f"remove_orphan_files(retention_threshold => '{UNFINISHED.seconds}s')", table)
        assert not planted.exists()

    expire = f"expire_snapshots(retention_threshold => '{KEPT.seconds}s')"
    return Others(
        {
            "Trino optimize": lambda: lake.execute("optimize", table),
            "Trino INSERT": inserts.insert,
            "Trino expire_snapshots": lambda: lake.execute(expire, table),
            "Trino remove_orphan_files": orphans,
        },
        pause_seconds=1.5,
    )


def plant(lake: Lake, table: str, age: timedelta) -> Path:
    """A data file that nothing refers to."""
    path = local(lake.load(table).location()) / "data" / f"planted-{uuid4()}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"PAR1")
    make_old(path, age)
    return path


def make_old(path: Path, age: timedelta) -> None:
    then = time.time() - age.total_seconds()
    os.utime(path, (then, then))


def ago(span: timedelta) -> str:
    """A moment, as Spark's SQL has it."""
    return f"TIMESTAMP '{datetime.now(UTC) - span:%Y-%m-%d %H:%M:%S}'"
