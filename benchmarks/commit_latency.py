"""Milliseconds from load to answer of one commit, by the number of snapshots, on a SQLite catalog.

The data file and its manifest are written before the clock starts: what is measured is the commit loop alone, that is
load, verdict, manifest list and one call.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from benchmarks.result import Goal, Result
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.batch_plan import task_plan
from lakesink_catalog.commit.batch_commit import FencedCommit
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.connect.turns import turn_at
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.tables.tables import create_table
from lakesink_protocol.change import ContentFile
from lakesink_protocol.identity import Batch, SinkKey, stream_batch
from testkit.commits import fence_of
from testkit.tasks import write

KEY = SinkKey("bench")
SETTINGS = Settings()
MARKS = (30, 100, 300, 1_000, 3_000, 10_000)
GOALS_MS = {100: 15.0, 1000: 100.0}
ROWS = pa.RecordBatch.from_pydict({"id": pa.array(range(100), pa.int64())})


def files_of(table: Table, batch: Batch) -> tuple[ContentFile, ...]:
    plan = task_plan(table, batch, KEY, SETTINGS)
    return write(plan, [ROWS]).files


def commit_once(
    fence: FencedCommit,
    number: int,
    files: Callable[[Table, Batch], Sequence[ContentFile]] = files_of,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Milliseconds of one commit; of a small file, if no others are given."""
    batch = stream_batch(number, "query", start=[number] if number else None, end=[number + 1])
    decision = fence.decide(batch)
    prepared = fence.prepare(decision, files(decision.table, batch), schema=decision.table.schema())
    started = clock()
    assert fence.commit(batch, prepared) is not None
    return (clock() - started) * 1000


def fenced(catalog: Catalog, name: str) -> FencedCommit:
    """The commits of one sink to a table that is there."""
    table = catalog.load_table(name)
    return fence_of(lambda: catalog.load_table(name), KEY, Effects(), turn=partial(turn_at, table, LISTENERS))


def measure(folder: Path, _: Callable[[str], None], *, snapshots: int = 1_000, window: int = 40) -> Result:
    """Commit again and again: the median of a window around each mark. A merge of manifests is in it now and then."""
    folder.mkdir(parents=True)
    properties = {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": f"file://{folder}"}
    catalog = connect("bench", properties)
    create_table(catalog, "bench.commits", ROWS.schema)
    fence = fenced(catalog, "bench.commits")
    times = [commit_once(fence, number) for number in range(snapshots + window // 2)]
    marks = [size for size in MARKS if window // 2 <= size <= snapshots]
    near = {mark: times[mark - window // 2 : mark + window // 2] for mark in marks}
    medians = {mark: statistics.median(few) for mark, few in near.items()}
    goals = [
        Goal(f"one commit at {mark:,} snapshots", bound, medians[mark], at_least=False, unit=" ms")
        for mark, bound in GOALS_MS.items()
        if mark in marks
    ]
    rows = [(mark, *(round(figure, 1) for figure in (medians[mark], min(few), max(few)))) for mark, few in near.items()]
    heads = ("snapshots", "median ms", "least", "most")
    return Result("commits", "one commit as history grows", heads, tuple(rows), tuple(goals), times)
