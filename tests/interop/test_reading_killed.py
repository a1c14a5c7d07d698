"""Bronze to silver: the driver is killed at random, and bronze is compacted, expired and rolled back in between."""

import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError

from lakesink_catalog.connect.catalog_failures import METADATA_UNREADABLE
from lakesink_tools.past.records import history
from servers.jars import ROOT
from testkit.bronze import Bronze
from testkit.builders import TABLE, Chance, Lake, Stream, expected
from testkit.harness import PATIENCE_SECONDS, kill_all, own_group
from testkit.http_servers import skipped_where_missing
from testkit.maintenance import roll_back
from tests.interop.upkeep import Upkeep, upkeep

pytestmark = pytest.mark.interop
SILVER, GOLD = "demo.silver", "demo.gold"
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
        with reading(self.lake, TABLE, SILVER) as process:
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
        wait(self.lake, process, lambda: self.read_batches() >= batches)


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
    assert stored(lake, SILVER) == expected(*range(chain.written))
    assert chain.kills == 2 * ROUNDS + 1


@pytest.mark.timeout(3600)
def test_replayed_dead_letters_come_to_silver_and_gold_once(tmp_path: Path) -> None:
    """Both drivers are killed while replays come between batches of bronze."""
    bronze, chance = Bronze.make(tmp_path), random.Random(85)
    for number in range(6):
        bronze.run(number)
        if number:
            bronze.replay_some(number / 6)
        if number % 2:
            for reads, writes in ((TABLE, SILVER), (SILVER, GOLD)):
                with reading(bronze.lake, reads, writes) as process:
                    there_are = sum(stored(bronze.lake, reads).values())
                    wait_for_rows(bronze.lake, writes, chance.randint(1, there_are), process)
                    kill_all(process)
    bronze.replay()
    whole = {(batch, at): 1 for batch in range(6) for at in range(3)}
    for reads, writes in ((TABLE, SILVER), (SILVER, GOLD)):
        with reading(bronze.lake, reads, writes) as process:
            wait_for_rows(bronze.lake, writes, len(whole), process)
            kill_all(process)
        assert stored(bronze.lake, writes) == whole


@contextmanager
def reading(lake: Lake, reads: str, writes: str) -> Iterator["subprocess.Popen[str]"]:
    """A driver that reads one table into another."""
    folder = lake.folder
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    names = {"name": "test", "reads": reads, "writes": writes, "checkpoint": str(folder / f"checkpoint-{writes}")}
    config = json.dumps(names | {"catalog": catalog, "folder": str(folder)})
    command = [sys.executable, "-m", "tests.interop.reading_driver", config]
    with own_group(command, folder / "driver.log", {**os.environ, "PYTHONPATH": str(ROOT)}, folder) as process:
        yield process


def wait_for_rows(lake: Lake, table: str, count: int, process: "subprocess.Popen[str]") -> None:
    wait(lake, process, lambda: sum(stored(lake, table).values()) >= count)


def wait(lake: Lake, process: "subprocess.Popen[str]", is_there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while not is_there():
        assert process.poll() is None, (lake.folder / "driver.log").read_text(errors="replace")[-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.1)


def stored(lake: Lake, table: str) -> Counter[Any]:
    """The rows that a table has; none before it exists, and while its driver replaces the metadata file."""
    try:
        rows = lake.catalog.load_table(table).scan().select("batch", "position").to_arrow().to_pylist()
    except (NoSuchTableError, *METADATA_UNREADABLE):
        return Counter()
    return Counter((row["batch"], row["position"]) for row in rows)
