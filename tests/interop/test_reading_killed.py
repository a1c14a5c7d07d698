"""Bronze to silver: the driver is killed at random, and bronze is compacted, expired and rolled back in between."""

import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lakesink_catalog.connect.errors import METADATA_UNREADABLE
from lakesink_catalog.read.history import history
from servers.jars import ROOT
from testkit.builders import TABLE, Chance, Lake, Stream, expected
from testkit.harness import PATIENCE_SECONDS, kill_all, own_group
from testkit.http_servers import skipped_where_missing
from testkit.maintenance import roll_back
from tests.interop.upkeep import Upkeep, upkeep

pytestmark = pytest.mark.interop
SILVER = "demo.silver"
ROUNDS, BATCHES = 3, 3
LONGEST_SECONDS = 4 * PATIENCE_SECONDS


@dataclass(slots=True)
class Chain:
    """A table that a stream writes, and a driver that reads it into another one.

    Attributes:
        written: Batches of bronze.
        kills: Of the driver.
    """

    lake: Lake
    upkeep: Upkeep
    chance: random.Random
    bronze: Stream
    written: int = 0
    kills: int = field(default=0)

    def write(self) -> None:
        for _ in range(BATCHES):
            self.bronze.run(self.written)
            self.written += 1

    def take_back(self) -> None:
        """Roll bronze back by one or two batches, which its stream writes again."""
        newest = self.written - 1
        last = newest - self.chance.randint(1, 2)
        roll_back(self.lake, self.bronze.snapshot_of(last))
        for batch in range(last + 1, newest + 1):
            self.bronze.run(batch)

    @contextmanager
    def driver(self) -> Iterator["subprocess.Popen[str]"]:
        folder = self.lake.folder
        catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
        names = {"name": "test", "reads": TABLE, "writes": SILVER, "checkpoint": str(folder / "checkpoint")}
        config = json.dumps(names | {"catalog": catalog, "folder": str(folder)})
        command = [sys.executable, "-m", "tests.interop.reading_driver", config]
        with own_group(command, folder / "driver.log", {**os.environ, "PYTHONPATH": str(ROOT)}, folder) as process:
            yield process

    def read_batches(self) -> int:
        """Batches of bronze that silver has, by its newest batch mark."""
        if not self.lake.catalog.table_exists(SILVER):
            return 0
        try:
            [offset] = json.loads(history(self.lake.catalog.load_table(SILVER))[-1].offsets)
        except (IndexError, *METADATA_UNREADABLE):
            return 0
        return int(offset["batch"]) + 1

    def kill_on_the_way(self) -> None:
        """Start the driver, and kill it once it has begun to read, or somewhat later."""
        before = self.read_batches()
        with self.driver() as process:
            self.wait(process, before + 1 if self.chance.random() < 0.5 and before < self.written else before)
            time.sleep(self.chance.uniform(0, 4))
            kill_all(process)
        self.kills += 1

    def catch_up(self) -> None:
        with self.driver() as process:
            self.wait(process, self.written)
            kill_all(process)
        self.kills += 1

    def wait(self, process: "subprocess.Popen[str]", batches: int) -> None:
        deadline = time.monotonic() + LONGEST_SECONDS
        while self.read_batches() < batches:
            assert process.poll() is None, (self.lake.folder / "driver.log").read_text(errors="replace")[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.timeout(3600)
def test_each_row_is_in_silver_once(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    a_minute_ago = time.time_ns() // 1_000_000 - 60_000
    bronze = Stream(lake, chance=Chance(itertools.count(a_minute_ago, 20)))
    with skipped_where_missing(), upkeep(lake) as spark:
        chain = Chain(lake, spark, random.Random(84), bronze)
        chain.write()
        for number in range(ROUNDS):
            chain.kill_on_the_way()
            chain.write()
            spark.compact()
            if number:
                chain.take_back()
            chain.catch_up()
            spark.compact()
            spark.expire()
            chain.write()
            spark.rewrite_manifests()
        chain.catch_up()
    assert in_silver(lake) == expected(*range(chain.written))
    assert chain.kills == 2 * ROUNDS + 1


def in_silver(lake: Lake) -> Counter[Any]:
    rows = lake.catalog.load_table(SILVER).scan().select("batch", "position").to_arrow().to_pylist()
    return Counter((row["batch"], row["position"]) for row in rows)
