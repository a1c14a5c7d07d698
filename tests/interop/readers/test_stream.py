"""A real Spark stream whose driver is killed twice: every engine sees each row once, at every batch."""

from collections import Counter
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from testkit.harness import ROWS_PER_FILE, Stream, expected, own_snapshots
from tests.interop.readers.engines import At, Engine
from tests.interop.readers.tables import Told

pytestmark = pytest.mark.interop

ROWS = Schema(NestedField(1, "file", LongType(), required=False), NestedField(2, "row", LongType(), required=False))
BATCHES = 4


@pytest.fixture(scope="session")
def numbers(root: Path, tables: dict[str, Told]) -> Table:
    """Four files, a batch each: the driver dies with batch 0 prepared, and with batch 2 committed but not answered."""
    assert tables  # they share the catalog
    stream = Stream(root, options={"create_table": True, "tag_every": 1})
    stream.add_files(0, BATCHES)
    assert stream.run("after-prepared@0=kill") == -9, stream.log()
    assert stream.run("after-call@2=kill") == -9, stream.log()
    assert stream.run() == 0, stream.log()
    uri, warehouse = f"sqlite:///{stream.home}/catalog.db", f"file://{stream.home}/warehouse"
    table = load_table(connect("lakehouse", {"uri": uri, "warehouse": warehouse}), stream.table)
    assert [batch_id for batch_id, _, _ in own_snapshots(table)] == list(range(BATCHES))
    assert "recovered" in {outcome for _, outcome, _ in own_snapshots(table)}
    return table


@pytest.mark.parametrize("engine", ["spark", "trino", "duckdb", "flink", "pyiceberg"], indirect=True)
def test_every_row_of_every_batch_is_there_once(engine: Engine, numbers: Table) -> None:
    assert counted(engine, numbers, At()) == expected(range(BATCHES))
    for batch_id, _, snapshot_id in own_snapshots(numbers):
        wanted = expected(range(batch_id + 1))
        assert sum(wanted.values()) == ROWS_PER_FILE * (batch_id + 1)
        assert counted(engine, numbers, At(snapshot_id=snapshot_id)) == wanted
        if engine.name != "duckdb":
            assert counted(engine, numbers, At(tag=f"lakesink-numbers/batch-{batch_id}")) == wanted


def counted(engine: Engine, table: Table, at: At) -> "Counter[tuple[int, int]]":
    return Counter((row["file"], row["row"]) for row in engine.read(table, ROWS, at))
