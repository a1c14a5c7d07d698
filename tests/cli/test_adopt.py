"""The command that takes a stream over: what it says, and that it changes nothing where it must not."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.history import sinks
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_tools.cli.main import main

TABLE = "demo.events"


@pytest.fixture
def checkpoint(home: Path) -> Path:
    """Of a query whose batches 0 and 1 Iceberg's own sink has in the table, the second not in Spark's log."""
    schema = pa.schema([("id", pa.int64())])
    table = create_table(connect(), TABLE, schema)
    folder = home.parent / "checkpoint"
    for batch_id in range(2):
        epoch = {"spark.sql.streaming.queryId": "q1", "spark.sql.streaming.epochId": str(batch_id)}
        table.append(pa.table({"id": [batch_id]}, schema=schema), snapshot_properties=epoch)
        for name, line in (("offsets", f'{{"at":{batch_id + 1}}}'), ("commits", "{}"))[: 2 - batch_id]:
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / str(batch_id)).write_text(f"v1\n{{}}\n{line}")
    (folder / "metadata").write_text(json.dumps({"id": "q1"}))
    return folder


def adopt(checkpoint: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["adopt", TABLE, "--sink", "events", "--checkpoint", str(checkpoint), *options])


def test_it_says_what_comes_next(checkpoint: Path) -> None:
    first = adopt(checkpoint, "--yes")
    assert first.exit_code == 0, first.output
    assert "Sink events has taken over after batch 1 of Iceberg's own sink." in first.stdout
    assert "Spark will ask for batch 1 again" in first.stdout
    (checkpoint / "commits" / "1").write_text("v1\n{}")
    again = adopt(checkpoint, "--yes")
    assert again.exit_code == 0
    assert "had taken over before" in again.stdout
    assert "Spark will ask for batch 2." in again.stdout


def test_without_a_yes_nothing_is_changed(checkpoint: Path) -> None:
    done = adopt(checkpoint)
    assert done.exit_code == 2
    assert "[LAKESINK_NOT_CONFIRMED]" in done.stderr
    assert sinks(load_table(connect(), TABLE)) == []


@pytest.mark.parametrize(
    ("place", "code"),
    [("elsewhere", "CHECKPOINT_UNREADABLE"), ("nosuch://bucket/checkpoint", "CHECKPOINT_UNREADABLE")],
)
def test_a_checkpoint_that_cannot_be_read_is_named(checkpoint: Path, place: str, code: str) -> None:
    at = place if ":" in place else str(checkpoint.parent / place)
    call = ["adopt", TABLE, "--sink", "events", "--checkpoint", at, "--yes", "--output", "json"]
    done = CliRunner().invoke(main, call)
    assert done.exit_code == 2
    assert json.loads(done.stdout)["error"]["code"] == f"LAKESINK_{code}"
