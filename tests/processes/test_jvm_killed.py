"""The JVM dies, as by the system's out-of-memory killer, and the driver's Python lives on."""

from pathlib import Path

import duckdb
import pytest

from testkit.harness import Stream, live_files
from tests.processes.jvm_killed import BATCHES, ROWS

pytestmark = pytest.mark.driver

PROGRAM = Path(__file__).with_name("jvm_killed.py")


def rows_by_batch(stream: Stream) -> dict[int, tuple[int, int]]:
    """How many rows there are of each batch, and how many different ones."""
    table = stream.load()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    paths = live_files(table, snapshot.snapshot_id)
    query = f"select value // {ROWS}, count(*), count(distinct value) from read_parquet(?) group by 1"
    return {batch: (rows, different) for batch, rows, different in duckdb.execute(query, [paths]).fetchall()}


def test_rows_that_did_not_all_reach_the_driver_are_no_batch(tmp_path: Path) -> None:
    dying = Stream(tmp_path, program=PROGRAM, environment={"KILL_JVM": "1"})
    assert dying.run() == 1, dying.log()[-3000:]
    assert rows_by_batch(dying) == {0: (ROWS, ROWS)}
    assert "LAKESINK_SPARK_GONE" in dying.log()

    stream = Stream(tmp_path, program=PROGRAM)
    assert stream.run() == 0, stream.log()[-3000:]
    assert rows_by_batch(stream) == dict.fromkeys(range(BATCHES), (ROWS, ROWS))
