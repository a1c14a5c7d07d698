"""The commands on real tables: text and JSON, exit codes, and errors that help and hide no trace of a secret."""

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog import Catalog
from pyiceberg.table.update import RemovePropertiesUpdate

from lakesink import __version__
from lakesink.settings.parse import duration
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_catalog.words import ago, size, span
from lakesink_protocol.identity import SinkKind
from lakesink_tools.cli.main import main
from lakesink_tools.cli.output import plain
from lakesink_tools.past.records import history
from servers.ports import free_port
from testkit.batches import Writer

CANARY = "c4n4ry-Sw0rdfish"
Run = Callable[..., Result]


@pytest.fixture
def run(home: Path) -> Run:
    assert home is not None  # the commands find the embedded catalog there
    runner = CliRunner()
    return lambda *arguments: runner.invoke(main, list(arguments), catch_exceptions=False)


@pytest.fixture
def catalog(home: Path) -> Catalog:
    assert not home.exists()
    catalog = connect()
    create_table(catalog, "demo.events", pa.schema([("id", pa.int64())]))
    return catalog


@pytest.fixture
def writer(catalog: Catalog) -> Writer:
    writer = Writer(catalog)
    for batch_id in range(3):
        writer.commit(batch_id, rows=1000 * (batch_id + 1))
    return writer


def found(result: Result, exit_code: int = 0) -> Any:
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


def test_status_tells_how_each_sink_stands(run: Run, writer: Writer) -> None:
    Writer(writer.catalog, sink="nightly", kind=SinkKind.TXN, clock=writer.clock).commit(42)
    document = found(run("status", "demo.events", "--output", "json"))
    assert {key: document[key] for key in ("table", "catalog", "snapshots", "rows", "files", "bytes")} == {
        "table": "demo.events",
        "catalog": "lakehouse",
        "snapshots": 4,
        "rows": 6010,
        "files": 4,
        "bytes": 601_000,
    }
    events, nightly = document["sinks"]
    newest = history(writer.load(), sink="events")[-1]
    assert events["snapshot_id"] == newest.snapshot_id
    assert events["committed_at"] == newest.committed_at.isoformat().replace("+00:00", "Z")
    assert (events["sink"], events["batch_id"], events["standing"], events["offsets"]) == (
        "events",
        2,
        "ok",
        [{"at": 3}],
    )
    assert (events["batches"], events["rows"], events["files"], events["bytes"]) == (3, 6000, 3, 600_000)
    assert (nightly["sink"], nightly["kind"], nightly["batch_id"]) == ("nightly", "txn", 42)


def test_status_says_first_how_long_ago_a_stream_wrote_and_that_ok_is_no_word_on_its_query(
    run: Run, catalog: Catalog
) -> None:
    Writer(catalog, clock=itertools.count(time.time_ns() // 1_000_000, 1)).commit(0)
    result = run("status", "demo.events")
    [age] = [line for line in result.stdout.splitlines() if line.startswith("Last batch of sink events: ")]
    assert age.endswith(" ago.")
    assert "To detect a stopped query, use --max-age" in result.stdout
    assert "To detect" not in run("status", "demo.events", "--max-age", "30 days").stdout
    [sink] = found(run("status", "demo.events", "--output", "json"))["sinks"]
    assert sink["age_seconds"] >= 0


@pytest.mark.parametrize(
    ("seconds", "words"), [(1, "1 second ago"), (90, "1 minute ago"), (3 * 86_400 + 7, "3 days ago")]
)
def test_an_age_is_told_in_words(seconds: int, words: str) -> None:
    assert ago(timedelta(seconds=seconds)) == words


def test_status_in_words_ends_by_what_to_do_next(run: Run, writer: Writer) -> None:
    assert writer.sink == "events"
    result = run("status", "demo.events")
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[0] == "demo.events in lakehouse: 6,000 rows, 3 files, 586 KiB, 3 snapshots"
    assert lines[1].split()[:4] == ["sink", "branch", "last", "batch"]
    assert lines[2].split()[:3] == ["events", "main", "2"]
    assert lines[2].split()[-1] == "ok"
    assert lines[-1] == "Next: lakesink log demo.events"


def test_the_next_command_names_the_catalog_that_the_user_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/lake.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/lake")
    lake = connect("lake")
    for table in ("demo.empty", "demo.events"):
        create_table(lake, table, pa.schema([("id", pa.int64())]))

    def last_line(*arguments: str) -> str:
        return run(*arguments, "--catalog", "lake").stdout.splitlines()[-1]

    assert last_line("log", "demo.empty").endswith("Next: lakesink status demo.empty --catalog lake")
    assert last_line("audit", "demo.empty").endswith("or lakesink status demo.empty --catalog lake")
    stream = Writer(lake, "demo.events")
    stream.commit(0, rows=10)
    assert last_line("status") == "Next: lakesink status demo.events --catalog lake"
    assert last_line("status", "demo.events") == "Next: lakesink log demo.events --catalog lake"
    assert last_line("doctor", "--no-spark", "demo.events") == "Next: lakesink status demo.events --catalog lake"
    forgotten = last_line("forget", "demo.events", "--sink", "events", "--yes")
    assert forgotten == "Next: lakesink status demo.events --catalog lake"


def test_a_table_that_no_stream_wrote_to_ends_with_1(run: Run, catalog: Catalog) -> None:
    assert catalog.name == "lakehouse"
    assert found(run("status", "demo.events", "--output", "json"), 1)["sinks"] == []
    assert found(run("log", "demo.events", "--output", "json"), 1)["batches"] == []
    assert "No lakesink stream has committed to demo.events" in run("status", "demo.events").stdout
    assert "Next: lakesink status demo.events" in run("log", "demo.events").stdout


def test_a_sink_that_would_be_refused_ends_with_1_and_its_name(run: Run, writer: Writer) -> None:
    update = RemovePropertiesUpdate(removals=[writer.key.ledger_property])
    writer.catalog.commit_table(writer.load(), (), (update,))
    assert found(run("status", "demo.events", "--output", "json"), 1)["sinks"][0]["standing"] == "LedgerLost"
    assert "The next batch of sink events would be refused: LedgerLost." in run("status", "demo.events").stdout


def test_a_sink_that_has_not_committed_for_too_long_ends_with_1(run: Run, catalog: Catalog) -> None:
    Writer(catalog, clock=itertools.count(time.time_ns() // 1_000_000)).commit(0)
    time.sleep(0.05)
    ages = {"1 ms": (1, "stale"), "1 day": (0, "ok")}
    for age, (exit_code, standing) in ages.items():
        document = found(run("status", "demo.events", "--max-age", age, "--output", "json"), exit_code)
        assert document["sinks"][0]["standing"] == standing
    assert "Next: check its query." in run("status", "demo.events", "--max-age", "1 ms").stdout


def test_log_shows_batches_newest_last(run: Run, writer: Writer) -> None:
    document = found(run("log", "demo.events", "--output", "json"))
    assert [batch["batch_id"] for batch in document["batches"]] == [0, 1, 2]
    records = history(writer.load())
    first = document["batches"][0]
    assert (first["snapshot_id"], first["rows"], first["files"]) == (records[0].snapshot_id, 1000, 1)
    assert (first["bytes"], first["offsets"], first["outcome"]) == (100_000, [{"at": 1}], "committed")
    assert first["in_branch"] is True


@pytest.mark.parametrize(
    ("arguments", "batches"),
    [
        (["--limit", "2"], [1, 2]),
        (["--sink", "events"], [0, 1, 2]),
        (["--branch", "main", "--limit", "1"], [2]),
        (["--sink", "nobody"], []),
        (["--branch", "audit"], []),
    ],
)
def test_log_can_be_narrowed(run: Run, writer: Writer, arguments: list[str], batches: list[int]) -> None:
    assert writer.query == "q1"
    document = found(run("log", "demo.events", "--output", "json", *arguments), 0 if batches else 1)
    assert [batch["batch_id"] for batch in document["batches"]] == batches


EVIL_OFFSETS = ["[" * 2_000 + "1" + "]" * 2_000, "[1e999]", "[NaN]", "[-Infinity]", "{", "\x1b[2J"]


@pytest.mark.parametrize("offsets", EVIL_OFFSETS, ids=range(len(EVIL_OFFSETS)))
def test_what_a_summary_says_is_shown_as_json_whatever_it_is(run: Run, writer: Writer, offsets: str) -> None:
    metadata = Path(writer.load().metadata_location.removeprefix("file://"))
    document = json.loads(metadata.read_text())
    numbers = dict.fromkeys(("total-records", "added-records", "added-files-size"), "9" * 5_000)
    document["snapshots"][-1]["summary"] |= {"lakesink.offsets": offsets, **numbers}
    document["properties"][writer.key.ledger_property] = "{}"
    metadata.write_text(json.dumps(document))
    for command in ("log", "status"):
        result = run(command, "demo.events", "--output", "json")
        assert result.exit_code in (0, 1)
        json.loads(result.stdout, parse_constant=pytest.fail)
        assert all(line.isprintable() for line in run(command, "demo.events").stdout.split("\n"))


def test_log_in_words_says_what_is_hidden_and_rolled_back(run: Run, writer: Writer) -> None:
    kept = history(writer.load())[1].snapshot_id
    writer.load().manage_snapshots().set_current_snapshot(kept).commit()
    lines = run("log", "demo.events", "--limit", "2").stdout.splitlines()
    assert lines[0] == "demo.events in lakehouse: 2 of 3 retained batches"
    assert "committed, rolled back" in lines[3]
    assert '[{"at":3}]' in lines[3]
    assert lines[-2] == "Not shown: 1 older batch; --limit shows more."
    assert lines[-1].startswith("Next: read the table as of a batch")


def test_status_of_a_sink_that_was_rolled_back_says_so_and_of_no_expiry(run: Run, writer: Writer) -> None:
    table = writer.load()
    table.manage_snapshots().set_current_snapshot(history(table)[0].snapshot_id).commit()
    shown = run("status", "demo.events")
    assert "The next batch of sink events would be refused: RolledBack." in shown.stdout
    assert "expired" not in shown.stdout


def test_nothing_in_a_table_reaches_the_terminal_as_markup_or_control_code(run: Run, catalog: Catalog) -> None:
    evil = "[red]x[/red]\x1b[31m\u202e\x07"
    summary = {"lakesink.version": "1", "lakesink.sink-id": evil, "lakesink.branch": evil, "lakesink.batch-id": "1"}
    table = load_table(catalog, "demo.events")
    table.append(pa.table({"id": pa.array([1], pa.int64())}), snapshot_properties=summary | {"lakesink.offsets": evil})
    for command in ("log", "status"):
        text = run(command, "demo.events").stdout
        assert "[red]x[/red]" in text
        assert not {"\x1b", "\u202e", "\x07"} & set(text)
        assert not {"\x1b", "\u202e", "\x07"} & set(run(command, "demo.events", "--output", "json").stdout)


# Errors


@pytest.mark.parametrize("command", ["log", "status"])
@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (["demo.event"], "LAKESINK_TABLE_MISSING", "Did you mean 'demo.events'?"),
        (["events"], "LAKESINK_TABLE_NAME_INVALID", "demo.events"),
        (["demo.events", "--catalog", "prod"], "LAKESINK_CATALOG_UNKNOWN", "Known: lakehouse."),
    ],
)
def test_an_error_is_told_with_its_code_and_what_to_do(
    run: Run, writer: Writer, command: str, arguments: list[str], code: str, hint: str
) -> None:
    assert writer.branch == "main"
    error = found(run(command, *arguments, "--output", "json"), 2)["error"]
    assert error["code"] == code
    assert hint in error["action"]
    told = run(command, *arguments)
    assert told.exit_code == 2
    assert told.stdout == ""
    assert told.stderr.startswith(f"[{code}] ")
    assert "Traceback" not in told.stderr
    assert f"  Do: {error['action']}" in told.stderr
    assert error["data"] == "This command only reads; nothing was changed."
    assert f"  Data: {error['data']}\n" in told.stderr


def test_looking_makes_no_catalog(run: Run, home: Path) -> None:
    error = found(run("status", "demo.events", "--output", "json"), 2)["error"]
    assert error["code"] == "LAKESINK_CATALOG_MISSING"
    assert str(home) in error["what"]
    assert not home.exists()


@pytest.mark.parametrize("output", ["text", "json"])
def test_no_error_shows_a_secret(run: Run, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", f"http://me:{CANARY}@127.0.0.1:{free_port()}")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TOKEN", CANARY)
    result = run("status", "demo.events", "--catalog", "prod", "--output", output)
    assert result.exit_code == 2
    assert "LAKESINK_CATALOG_UNREACHABLE" in result.output
    assert CANARY not in result.output


def test_a_file_of_the_table_that_cannot_be_read_is_one_clear_error(run: Run, writer: Writer) -> None:
    Path(writer.load().metadata_location.removeprefix("file://")).write_text(f"password={CANARY}")
    result = run("status", "demo.events")
    assert result.exit_code == 2
    assert result.stderr.startswith("[LAKESINK_")
    assert CANARY not in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["statsu", "demo.events"], "Did you mean 'status'?"),
        (["log"], "Missing argument 'TABLE|DIRECTORY'"),
        (["log", "demo.events", "--limit", "0"], "--limit"),
        (["status", "demo.events", "--max-age", "soon"], "expected a time span"),
        (["status", "demo.events", "--output", "yaml"], "--output"),
    ],
)
def test_wrong_usage_ends_with_2(run: Run, arguments: list[str], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.output


# As a process


def process(home: Path, code: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    variables = os.environ | {"LAKESINK_HOME": str(home), "HOME": str(home.parent)} | environment
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=variables, cwd=home.parent, check=False
    )


WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None  # as if it were not installed
from lakesink_tools.cli.main import main
main(["status", "demo.events"])
"""


def test_the_commands_need_no_spark_and_print_nothing_else(home: Path, writer: Writer) -> None:
    assert writer.sink == "events"
    result = process(home, WITHOUT_SPARK)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("demo.events in lakehouse: 6,000 rows")


def test_a_broken_configuration_file_is_one_clear_error(home: Path) -> None:
    (home.parent / ".pyiceberg.yaml").write_text(f"catalog:\n  prod: [unclosed\n   token: {CANARY}\n")
    result = process(home, WITHOUT_SPARK)
    assert result.returncode == 2
    assert result.stderr.startswith("[LAKESINK_CATALOG_MISCONFIGURED] PyIceberg's configuration file cannot be read")
    assert "Traceback" not in result.stderr
    assert CANARY not in result.stderr


def test_the_version_is_that_of_the_package(run: Run) -> None:
    assert __version__ in run("--version").stdout


# Words


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (600_000, "586 KiB"), (5 * 2**40, "5.0 TiB"), (None, "-")],
)
def test_sizes_are_shown_short(value: int | None, shown: str) -> None:
    assert size(value) == shown


@pytest.mark.parametrize(
    ("text", "shown"), [("0.4s", "0 s"), ("59s", "59 s"), ("3 min", "3 min"), ("25h", "1 d"), ("119 min", "1 h")]
)
def test_spans_are_shown_in_the_largest_unit(text: str, shown: str) -> None:
    assert span(duration(text)) == shown


def test_a_cell_is_cut_when_it_is_too_wide() -> None:
    assert len(plain("x" * 500)) == 60
