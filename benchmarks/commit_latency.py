"""Milliseconds from load to answer of one commit, by the number of snapshots, on a SQLite catalog.

The data file and its manifest are written before the clock starts: what is measured is the commit loop alone, that is
load, verdict, manifest list and one call. With `--files`, the table is large before, merges are looked at too, and the
milliseconds are those of the processor, because the slowest commits are compared with the median.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from benchmarks.long_table import TABLE, Merge, listed_files, make_large_table
from benchmarks.result import quantile
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.planning import write_plan
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.fence import FencedCommit
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
COMMITS = 220
"""So many that a merge of a hundred small manifests happens twice, and p99 is one of them."""
GOALS_MS = {100: 15.0, 1000: 100.0}
ROWS = pa.RecordBatch.from_pydict({"id": pa.array(range(100), pa.int64())})


def files_of(table: Table, batch: Batch) -> tuple[ContentFile, ...]:
    plan = write_plan(table, batch, KEY, SETTINGS)
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


@click.command()
@click.option("--snapshots", default=1000, show_default=True, help="How long the history gets.")
@click.option("--window", default=40, show_default=True, help="Commits behind each median.")
@click.option("--files", default=0, help="Files a batch in a history that is there before; it is made at once.")
@click.option("--columns", default=13, show_default=True, help="Of that history; each has statistics.")
def main(snapshots: int, window: int, files: int, columns: int) -> None:
    """Commit again and again and print the median around each mark, or on a large table what the slowest take."""
    with tempfile.TemporaryDirectory() as folder:
        properties = {"type": "sql", "uri": f"sqlite:///{Path(folder) / 'catalog.db'}", "warehouse": f"file://{folder}"}
        catalog = connect("bench", properties)
        if files:
            on_a_large_table(catalog, snapshots, files, columns)
        else:
            on_a_long_history(catalog, snapshots, window)


def on_a_long_history(catalog: Catalog, snapshots: int, window: int) -> None:
    """Commit so many batches of a small file."""
    create_table(catalog, "bench.commits", ROWS.schema)
    fence = fenced(catalog, "bench.commits")
    times = [commit_once(fence, number) for number in range(snapshots + window // 2)]
    for mark in [size for size in (30, 100, 300, 1000, 3000, 10_000) if size <= snapshots]:
        near = times[mark - window // 2 : mark + window // 2]
        goal = f"  goal <= {GOALS_MS[mark]:.0f}" if mark in GOALS_MS else ""
        print(
            f"{mark:>6} snapshots: median {statistics.median(near):6.1f} ms,"
            f" min {min(near):6.1f}, max {max(near):6.1f} (a merge of manifests is in it){goal}"
        )


def on_a_large_table(catalog: Catalog, batches: int, files: int, columns: int) -> None:
    """Commit small and then equal batches to a table that has so many batches of so many files."""
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(columns)])
    merges = make_large_table(catalog, schema, batches, files)
    longest = max(merges, key=lambda merge: merge.cpu_seconds, default=Merge(0, 0, 0))
    rewritten = sum(merge.entries for merge in merges)
    print(
        f"{batches:,} batches of {files:,} files: {sum(merge.entries > 0 for merge in merges)} merges in {len(merges)}"
        f" commits, longest part {longest.seconds:.3f} s (processor {longest.cpu_seconds:.3f}),"
        f" {rewritten / (batches * files):.2f} rewrites an entry,"
        f" {sum(merge.cpu_seconds for merge in merges) / max(rewritten, 1) * 1e6:.1f} us each"
    )
    fence, number = fenced(catalog, TABLE), batches
    for size in sorted({1, files}):
        listed = partial(_listed, files=size)
        times = [commit_once(fence, each, listed, time.process_time) for each in range(number, number + COMMITS)]
        number += COMMITS
        median = statistics.median(times)
        print(
            f"  then {COMMITS} of {size:>6,}: p50 {median:.1f} ms, p95 {quantile(times, 95):.1f},"
            f" p99 {quantile(times, 99):.1f} ({quantile(times, 99) / median:.1f} times p50), worst {max(times):.1f}"
        )


def _listed(table: Table, batch: Batch, files: int) -> list[ContentFile]:
    return listed_files(table, batch.batch_id, files)


if __name__ == "__main__":
    main()
