"""The one list of what is measured, and what each needs."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import (
    adapters,
    beside_flink,
    commit_latency,
    compacted,
    crowd,
    day,
    driver_memory,
    far_storage,
    from_kafka,
    growth,
    history,
    hop,
    into_kafka,
    latency,
    many_rows,
    metrics,
    misfits,
    partitions,
    punctual,
    read_upserted,
    reading,
    recovery,
    slow_catalog,
    throughput,
    upserts,
    waterfall,
)
from benchmarks.page import BENCH, UPKEEP, Page
from benchmarks.result import Result
from benchmarks.scale import driver, merges, sources, speed, wide, writers
from benchmarks.scale import history as histories
from benchmarks.scale.page import SCALE

Setting = int | float
SPARK, MAVEN = "Spark", "Spark, Maven"


@dataclass(frozen=True, slots=True)
class Work:
    """Something to measure.

    Attributes:
        name: On the command line.
        what: It measures.
        run: Measures it; given a folder, whom to tell how far it is, and settings by name.
        needs: What it starts or fetches.
        by_name: True if it runs only when `--only` names it: most of these take a quarter of an hour.
        page: That shows it; None if it is printed alone.
    """

    name: str
    what: str
    run: Callable[..., Result]
    needs: str = MAVEN
    by_name: bool = True
    page: Page | None = BENCH

    @property
    def settings(self) -> dict[str, Setting]:
        """What can be set, as it is by default."""
        known = inspect.signature(self.run).parameters.values()
        return {one.name: one.default for one in known if one.default is not one.empty}

    def measure(self, folder: Path, say: Callable[[str], None], settings: Mapping[str, Setting]) -> Result:
        """What it found, or why it could not be measured."""
        own = {name: value for name, value in settings.items() if name in self.settings}
        try:
            return self.run(folder / self.name.replace("/", "-"), say, **own)
        except Exception as error:  # noqa: BLE001 - whatever it is, what was measured before is kept
            return Result(self.name, f"failed: {type(error).__name__}: {str(error)[:300]}", (), (), failed=True)


def _unnamed(name: str, what: str, run: Callable[..., Result], needs: str = MAVEN) -> Work:
    return Work(name, what, run, needs, by_name=False)


def _scale(name: str, what: str, run: Callable[..., Result], needs: str = "") -> Work:
    return Work(f"scale/{name}", what, run, needs, page=SCALE)


WORKS = {
    work.name: work
    for work in (
        *(_unnamed(one.key, one.title, partial(throughput.measure, one.key)) for one in throughput.workloads(1)),
        _unnamed(
            "W2/Kafka", "documents from Kafka, beside Flink and Kafka Connect", from_kafka.measure, f"{MAVEN}, Flink"
        ),
        _unnamed("W4/history", "small commits as history grows", history.measure),
        Work("W4/memory", "a driver's memory over ten thousand batches", driver_memory.measure, ""),
        _unnamed("W5", "from a row to a reader", latency.measure),
        _unnamed("W6", "many streams into one table", crowd.measure),
        _unnamed("W7", "from SIGKILL to the next commit", recovery.measure, SPARK),
        _unnamed("W8", "commits to a slow catalog", slow_catalog.measure),
        _unnamed("W9", "a source of many partitions", partitions.measure),
        Work("W10", "upserts, beside MERGE INTO", upserts.measure),
        Work("W11", "documents that do not fit", misfits.measure, SPARK),
        Work("W12", "storage that is far away", far_storage.measure, SPARK),
        Work("W13", "beside Flink's sink", beside_flink.measure, f"{MAVEN}, Flink"),
        Work("W14", "reading a table of upserts", read_upserted.measure),
        Work("W15", "upserts of many rows", many_rows.measure, SPARK),
        Work("W16", "reading a stream's batches", reading.measure),
        Work("W17", "into Kafka", into_kafka.measure),
        Work("W18", "a table of upserts as it grows", growth.measure),
        Work("W19", "a table compacted, beside Spark's procedure", compacted.measure, page=UPKEEP),
        Work("W20", "a day of small batches, with maintenance and without", day.measure, "", page=UPKEEP),
        Work("W21", "from a trigger to its rows, with maintenance and without", punctual.measure, page=UPKEEP),
        _unnamed("waterfall", "where the time of a small batch goes", waterfall.measure),
        _scale("driver", "the driver's part of a batch with many files", driver.measure),
        _scale("files", "commits and merges by the files in the table", merges.measure),
        _scale("writers", "processes that commit to one table", writers.measure, "PostgreSQL"),
        _scale("history", "commands and commits by the snapshots in the table", histories.measure),
        _scale("sources", "a source of many partitions", sources.measure, MAVEN),
        _scale("partitions", "a batch into many partitions", wide.measure, SPARK),
        *(_scale(key, "rows a second beside Iceberg's sink", partial(speed.measure, key), MAVEN) for key in speed.KEYS),
        Work("commits", "one commit as history grows: the shortest of all", commit_latency.measure, "", page=None),
        Work("ways", "a small batch by each way into lakesink", adapters.measure, SPARK, page=None),
        Work("metrics", "a stream with and without metrics", metrics.measure, SPARK, page=None),
        Work("hop", "the way from the JVM to Python", hop.measure, SPARK, page=None),
    )
}
"""In the order in which they run: in the list of growth those with a JVM last, because it stays until the end."""
