"""``status`` of a whole catalog, and sinks that are silent for longer than usual."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog import Catalog

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_tools.cli.main import main
from testkit.batches import Writer

HOUR_MS = 3_600_000
Run = Callable[..., Result]


@pytest.fixture
def run(home: Path) -> Run:
    assert home is not None  # the commands find the embedded catalog there
    runner = CliRunner()
    return lambda *arguments: runner.invoke(main, ["status", *arguments], catch_exceptions=False)


@pytest.fixture
def catalog(home: Path) -> Catalog:
    assert not home.exists()
    return connect()


def found(result: Result, exit_code: int = 0) -> Any:
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


def writer(catalog: Catalog, table: str, *, ended_ms_ago: int = 0, gap_ms: int = 60_000, batches: int = 3) -> Writer:
    """A sink whose batches came in these gaps."""
    create_table(catalog, table, pa.schema([("id", pa.int64())]))
    written = Writer(catalog, table)
    for batch_id in range(batches):
        written.commit(batch_id, rows=10)
    ended_ms = time.time_ns() // 1_000_000 - ended_ms_ago
    set_times(written, [ended_ms - gap_ms * left for left in reversed(range(batches))])
    return written


def set_times(written: Writer, times_ms: list[int]) -> None:
    """Give the snapshots of a table the times of an older history: no driver commits before its table was made."""
    path = Path(written.load().metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    for entries in (metadata["snapshots"], metadata["snapshot-log"]):
        for entry, time_ms in zip(entries, times_ms, strict=True):
            entry["timestamp-ms"] = time_ms
    metadata["last-updated-ms"] = times_ms[-1]
    metadata["metadata-log"] = []
    path.write_text(json.dumps(metadata))


def test_every_sink_of_a_catalog_has_a_line(run: Run, catalog: Catalog) -> None:
    writer(catalog, "shop.orders")
    Writer(catalog, "shop.orders", sink="returns", query="q2").commit(0, rows=5)
    writer(catalog, "shop.eu.orders")
    create_table(catalog, "archive.old", pa.schema([("id", pa.int64())]))
    result = run()
    assert result.exit_code == 0, result.output
    title, _, *rows, hint = result.stdout.splitlines()
    assert title == "lakehouse: 3 sinks in 2 of 3 tables"
    assert [row.split()[:2] for row in rows] == [
        ["archive.old", "-"],
        ["shop.orders", "events"],
        ["shop.orders", "returns"],
        ["shop.eu.orders", "events"],
    ]
    assert [row.split()[-1] for row in rows] == ["sink", "ok", "ok", "ok"]
    assert hint == "Next: lakesink status shop.orders"
    document = found(run("--output", "json"))
    assert [table["table"] for table in document["tables"]] == [row.split()[0] for row in (*rows[:2], rows[3])]
    assert [sink["batch_id"] for sink in document["tables"][1]["sinks"]] == [2, 0]
    assert (document["catalog"], document["unreadable"], document["not_looked_at"]) == ("lakehouse", [], 0)


def test_a_table_that_cannot_be_loaded_is_named_and_the_others_are_listed(run: Run, catalog: Catalog) -> None:
    writer(catalog, "demo.broken")
    writer(catalog, "demo.events")
    metadata = load_table(catalog, "demo.broken").metadata_location.removeprefix("file://")
    Path(metadata).write_text("{")
    result = run()
    assert result.exit_code == 2
    assert "demo.events" in result.stdout
    [line] = [line for line in result.stdout.splitlines() if line.startswith("demo.broken")]
    assert line.startswith("demo.broken could not be read: [LAKESINK_")
    document = found(run("--output", "json"), 2)
    assert [table["table"] for table in document["tables"]] == ["demo.events"]
    assert [one["name"] for one in document["unreadable"]] == ["demo.broken"]


def test_a_sink_with_a_problem_is_the_one_to_look_at_next(run: Run, catalog: Catalog) -> None:
    writer(catalog, "demo.a")
    table = writer(catalog, "demo.b").load()
    first = table.metadata.snapshots[0].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    result = run()
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "Next: lakesink status demo.b"
    assert "RolledBack" in result.stdout


def test_no_sink_is_called_ok_that_would_be_refused(run: Run, catalog: Catalog) -> None:
    table = writer(catalog, "demo.a").load()
    assert "ok: the next batch would be accepted" in run("demo.a").stdout
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    told = run("demo.a").stdout
    assert "would be refused: RolledBack" in told
    assert "ok:" not in told


def test_a_catalog_without_a_sink_ends_with_1_and_what_to_do(run: Run, catalog: Catalog) -> None:
    create_table(catalog, "demo.events", pa.schema([("id", pa.int64())]))
    result = run()
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == (
        "This catalog has no table that a lakesink stream has written to; a dropped table is not shown."
        " Next: check --catalog, or start with lakesink init."
    )


def test_a_catalog_whose_only_table_was_dropped_does_not_say_that_no_stream_has_written(
    run: Run, catalog: Catalog
) -> None:
    writer(catalog, "demo.a", batches=1)
    catalog.drop_table("demo.a")
    result = run()
    assert result.exit_code == 1
    assert "a dropped table is not shown" in result.stdout


def test_no_more_tables_are_looked_at_than_asked_for(run: Run, catalog: Catalog) -> None:
    for name in "abc":
        writer(catalog, f"demo.{name}", batches=1)
    result = run("--limit", "2")
    assert "Not looked at: 1 table after demo.b; --limit looks at more." in result.stdout
    assert found(run("--limit", "2", "--output", "json"))["not_looked_at"] == 1


def test_a_sink_that_is_silent_for_longer_than_usual_is_stale_and_no_failure(run: Run, catalog: Catalog) -> None:
    writer(catalog, "demo.events", ended_ms_ago=HOUR_MS, batches=8)
    result = run("demo.events")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[2].split()[-1] == "stale"
    assert "Sink events has been silent for longer than usual, its last batch was 1 hour ago. Next:" in result.stdout
    [sink] = found(run("demo.events", "--output", "json"))["sinks"]
    assert (sink["standing"], sink["stale_after_seconds"]) == ("stale", 180)
    assert "stale" in run().stdout


@pytest.mark.parametrize(("age", "exit_code", "standing"), [("30 min", 1, "stale"), ("1 day", 0, "ok")])
def test_an_age_that_the_user_gives_decides_instead(
    run: Run, catalog: Catalog, age: str, exit_code: int, standing: str
) -> None:
    writer(catalog, "demo.events", ended_ms_ago=HOUR_MS, batches=8)
    [sink] = found(run("demo.events", "--max-age", age, "--output", "json"), exit_code)["sinks"]
    assert sink["standing"] == standing
    assert found(run("--max-age", age, "--output", "json"), exit_code)


def test_a_sink_of_few_batches_is_not_called_stale(run: Run, catalog: Catalog) -> None:
    writer(catalog, "demo.events", ended_ms_ago=24 * HOUR_MS, batches=4)
    [sink] = found(run("demo.events", "--output", "json"))["sinks"]
    assert (sink["standing"], sink["stale_after_seconds"]) == ("ok", None)
