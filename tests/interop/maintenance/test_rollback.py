"""Spark rolls a table back under a running stream: the verdict, and the way on."""

import re
import shlex
import time
from collections import Counter
from dataclasses import replace

import pytest
from click.testing import CliRunner

from lakesink_tools.cli.main import main
from testkit.harness import PATIENCE_SECONDS, Stream, expected, own_snapshots
from tests.interop.maintenance.lake import Lake
from tests.interop.maintenance.running import done_batches
from tests.interop.readers.engines import CATALOG

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("inserted", [0, 1])
def test_a_stream_goes_on_by_rewind_after_a_rollback(lake: Lake, inserted: int) -> None:
    stream = replace(lake.stream(f"rolled_back_{inserted}"), trigger={"processingTime": "300 milliseconds"})
    stream.add_files(0, 4)
    with stream.driver() as driver:
        wait_until_done(stream, 4)
        snapshots = {batch: snapshot for batch, _, snapshot in own_snapshots(stream.load(), stream.sink_id)}
        lake.call("rollback_to_snapshot", stream.table, snapshot_id=str(snapshots[1]))
        others = insert(lake, stream.table, inserted)
        assert lake.rows(stream.table) == expected(range(2)) + others
        stream.add_files(4, 5)
        assert driver.wait(PATIENCE_SECONDS) != 0

    assert "[LAKESINK_ROLLED_BACK]" in stream.log()
    audit = lake.asked("audit", stream.table)
    assert (audit["exit_code"], [finding["code"] for finding in audit["findings"]]) == (1, ["ROLLED_BACK"])
    command = re.search(r"`lakesink (rewind \S+ --to-batch 1)`", stream.log())
    assert command is not None, stream.log()[-5000:]
    assert CliRunner().invoke(main, [*shlex.split(command[1]), "--yes"]).exit_code == 0

    assert replace(stream, trigger={"availableNow": True}).run() == 0, stream.log()[-5000:]
    assert lake.rows(stream.table) == expected(range(5)) + others
    audit = lake.asked("audit", stream.table, "--checkpoint", str(stream.checkpoint))
    assert (audit["exit_code"], audit["findings"]) == (0, [])


def insert(lake: Lake, table: str, rows: int) -> "Counter[tuple[int, int]]":
    """Rows by Spark and by Trino, on what the rollback left."""
    for row in range(rows):
        lake.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (-1, {row})")
        lake.trino.sql(f"INSERT INTO {CATALOG}.{table} VALUES (-2, {row})")
    return Counter((file, row) for file in (-1, -2) for row in range(rows))


def wait_until_done(stream: Stream, batches: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while done_batches(stream) < batches:
        assert time.monotonic() < deadline, stream.log()[-5000:]
        time.sleep(0.1)
