"""The command that retires a sink."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_tools.cli.main import main
from testkit.batches import Writer

Run = Callable[..., Result]
PROPERTY = "lakesink.ledger.stream.events"


@pytest.fixture
def run(home: Path) -> Run:
    catalog = connect()
    create_table(catalog, "demo.events", pa.schema([("id", pa.int64())]))
    Writer(catalog).commit(0, rows=10)
    assert home.exists()
    return lambda *arguments: CliRunner().invoke(main, ["forget", *arguments], catch_exceptions=False)


def properties() -> dict[str, str]:
    return load_table(connect(create=False), "demo.events").properties


def test_a_retired_sink_is_told_and_gone_from_status(run: Run) -> None:
    [sink] = [name.rpartition(".")[2] for name in properties() if name.startswith("lakesink.ledger.stream.")]
    result = run("demo.events", "--sink", sink, "--yes", "--output", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["prepared_records"].endswith(f"/lakesink/{sink}/main")
    assert not [name for name in properties() if name.startswith("lakesink.ledger.")]
    status = CliRunner().invoke(main, ["status", "demo.events", "--output", "json"])
    assert json.loads(status.stdout)["sinks"] == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--sink", "evnts", "--yes"), "LAKESINK_SINK_UNKNOWN"),
        (("--sink", "no such name", "--yes"), "LAKESINK_SINK_UNKNOWN"),
        (("--sink", "events", "--txn", "--yes"), "LAKESINK_SINK_UNKNOWN"),
        (("--sink", "events"), "LAKESINK_NOT_CONFIRMED"),
    ],
)
def test_what_is_not_there_or_not_confirmed_changes_nothing(run: Run, arguments: tuple[str, ...], code: str) -> None:
    before = properties()
    result = run("demo.events", *arguments, "--output", "json")
    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (2, code)
    assert properties() == before
