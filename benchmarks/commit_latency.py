"""Milliseconds from load to answer of one commit, by the number of snapshots, on a SQLite catalog.

The data file and its manifest are written before the clock starts: what is measured is the commit loop alone, that is
load, verdict, manifest list and one call.
"""

import statistics
import tempfile
import time
from pathlib import Path

import click
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.planning import write_plan
from lakesink.sinks.iceberg.task import ParquetTaskWriter
from lakesink_catalog.commit.fence import Effects, FencedCommit
from lakesink_catalog.commit.request import CommitOptions
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table
from lakesink_protocol.change import ContentFile
from lakesink_protocol.identity import Batch, SinkKey, stream_batch
from lakesink_protocol.receipt import decode

KEY = SinkKey("bench")
SETTINGS = Settings()
GOALS_MS = {100: 15.0, 1000: 100.0}
ROWS = pa.RecordBatch.from_pydict({"id": pa.array(range(100), pa.int64())})


def files_of(table: Table, batch: Batch) -> tuple[ContentFile, ...]:
    plan = write_plan(table, batch, KEY, SETTINGS)
    return decode(ParquetTaskWriter(plan).write(0, iter([ROWS]))).files


def commit_once(fence: FencedCommit, number: int) -> float:
    """Milliseconds of one commit of a small file."""
    batch = stream_batch(number, "query", start=[number] if number else None, end=[number + 1])
    decision = fence.decide(batch)
    prepared = fence.prepare(decision, files_of(decision.table, batch), schema=decision.table.schema())
    started = time.perf_counter()
    assert fence.commit(batch, prepared) is not None
    return (time.perf_counter() - started) * 1000


def fenced(catalog: Catalog, name: str) -> FencedCommit:
    """The commits of one sink to a table that is there."""
    table = catalog.load_table(name)
    return FencedCommit(
        load=lambda: catalog.load_table(name),
        key=KEY,
        start_uuid=str(table.metadata.table_uuid),
        options=CommitOptions(),
        effects=Effects(),
    )


@click.command()
@click.option("--snapshots", default=1000, show_default=True, help="How long the history gets.")
@click.option("--window", default=40, show_default=True, help="Commits behind each median.")
def main(snapshots: int, window: int) -> None:
    """Commit again and again and print the median around each mark."""
    with tempfile.TemporaryDirectory() as folder:
        properties = {"type": "sql", "uri": f"sqlite:///{Path(folder) / 'catalog.db'}", "warehouse": f"file://{folder}"}
        catalog = connect("bench", properties)
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


if __name__ == "__main__":
    main()
