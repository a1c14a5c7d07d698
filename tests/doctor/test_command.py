"""The command as a person or a script meets it: text, JSON, exit codes, and no secret in any of them."""

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyiceberg.table.update import RemovePropertiesUpdate

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table
from lakesink_tools.cli.main import main
from servers.ports import free_port
from testkit.batches import Writer
from testkit.rest_catalog import rest_catalog
from tests.doctor.liars import IgnoresAssertions
from tests.doctor.programs import java_at

CANARY = "c4n4ry-Sw0rdfish"
Run = Callable[..., Result]


@pytest.fixture
def run(home: Path) -> Run:
    assert home is not None  # the command finds the embedded catalog there
    runner = CliRunner()
    return lambda *arguments: runner.invoke(main, ["doctor", "--no-spark", *arguments], catch_exceptions=False)


@pytest.fixture
def writer(home: Path) -> Writer:
    assert not home.exists()
    catalog = connect()
    create_table(catalog, "demo.events", pa.schema([("id", pa.int64())]))
    writer = Writer(catalog, clock=itertools.count(time.time_ns() // 1_000_000))
    writer.commit(0)
    return writer


def checks(result: Result, exit_code: int = 0) -> dict[tuple[str, str], Any]:
    assert result.exit_code == exit_code, result.output
    document = json.loads(result.stdout)
    assert document["well"] is (exit_code == 0)
    return {(check["part"], check["check"]): check for check in document["checks"]}


def test_a_newcomer_s_machine_is_well_and_nothing_is_left_on_it(run: Run, home: Path) -> None:
    found = checks(run("--output", "json"))
    assert {check["standing"] for check in found.values()} == {"ok", "skipped"}
    assert found["spark", "session"]["standing"] == "skipped"
    assert found["catalog", "compare-and-swap"]["standing"] == "ok"
    assert list(home.parent.iterdir()) == []


def test_the_text_has_a_line_for_each_check_and_ends_by_what_to_do_next(run: Run) -> None:
    result = run()
    lines = result.stdout.splitlines()
    assert (result.exit_code, result.stderr) == (0, "")
    assert lines[0] == "lakesink doctor: 9 ok, 0 warning, 0 failed, 1 skipped"
    assert [line for line in lines if line in ("machine", "spark", "catalog")] == ["machine", "spark", "catalog"]
    assert any(line.split()[:3] == ["ok", "java", "Java"] for line in lines)
    assert lines[-1].startswith("Next: lakesink doctor TABLE")


def test_a_table_is_looked_at_and_left_as_it_was(run: Run, writer: Writer, home: Path) -> None:
    before = set(home.rglob("*"))
    found = checks(run("demo.events", "--output", "json"))
    assert {check["standing"] for check in found.values()} == {"ok", "skipped"}
    assert found["table", "sinks"]["found"].startswith(f"{writer.sink} into main: last batch 0")
    assert found["table", "settings"]["details"]["settings"]
    assert set(home.rglob("*")) == before
    assert run("demo.events").stdout.splitlines()[-1] == "Next: lakesink status demo.events"


def test_a_sink_that_would_be_refused_ends_with_1(run: Run, writer: Writer) -> None:
    writer.catalog.commit_table(writer.load(), (), (RemovePropertiesUpdate(removals=[writer.key.ledger_property]),))
    found = checks(run("demo.events", "--output", "json"), 1)
    assert found["table", "sinks"]["standing"] == "failed"
    result = run("demo.events")
    assert "do: lakesink explain LAKESINK_LEDGER_LOST" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("Next: correct the failures")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["demo.event"], "LAKESINK_TABLE_MISSING"), (["events"], "LAKESINK_TABLE_NAME_INVALID")],
)
def test_a_table_that_is_not_there_is_a_finding(run: Run, writer: Writer, arguments: list[str], code: str) -> None:
    assert writer.table == "demo.events"
    assert code in checks(run(*arguments, "--output", "json"), 1)["table", "loads"]["found"]


def test_a_table_of_a_catalog_that_is_not_there_says_where_to_look(run: Run, home: Path) -> None:
    loads = checks(run("demo.events", "--output", "json"), 1)["table", "loads"]
    assert str(home) in loads["found"]
    assert "LAKESINK_HOME" in loads["fix"]
    assert not home.exists()


def test_a_snapshot_from_the_future_warns_and_does_not_fail(run: Run, home: Path) -> None:
    catalog = connect()
    create_table(catalog, "demo.events", pa.schema([("id", pa.int64())]))
    Writer(catalog, clock=itertools.count(time.time_ns() // 1_000_000 + 600_000)).commit(0)
    assert home.exists()
    assert checks(run("demo.events", "--output", "json"))["table", "clock"]["standing"] == "warning"


def test_a_checkpoint_is_judged_beside_its_table(run: Run, writer: Writer, tmp_path: Path) -> None:
    root = tmp_path / "checkpoint"
    for name, lines in (("offsets", ["v1", "{}", '{"at":1}']), ("commits", ["v1", "{}"])):
        (root / name).mkdir(parents=True)
        (root / name / "0").write_text("\n".join(lines))
    (root / "metadata").write_text(json.dumps({"id": writer.query}))
    found = checks(run("demo.events", "--checkpoint", str(root), "--output", "json"))
    assert found["checkpoint", "next batch"]["found"] == "batch 1 of sink events would be committed"


def test_a_place_where_no_catalog_can_be_made_fails_before_a_stream_does(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write_text("a file")
    monkeypatch.setenv("LAKESINK_HOME", str(home / "lake"))
    assert checks(run("--output", "json"), 1)["catalog", "compare-and-swap"]["standing"] == "failed"


def test_a_package_out_of_range_ends_what_needs_it_and_is_told(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "older" / "pyiceberg-0.1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: pyiceberg\nVersion: 0.1.0\n")
    monkeypatch.syspath_prepend(str(folder.parent))
    assert not home.exists()
    found = checks(CliRunner().invoke(main, ["doctor", "--output", "json"], catch_exceptions=False), 1)
    assert "pyiceberg 0.1.0 is installed" in found["machine", "packages"]["found"]
    assert (found["spark", "all"]["standing"], found["catalog", "all"]["standing"]) == ("skipped", "skipped")


def test_without_java_spark_is_not_started_and_the_rest_is_looked_at(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_at(tmp_path / "jdk", "11.0.22")))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not home.exists()
    found = checks(CliRunner().invoke(main, ["doctor", "--output", "json"], catch_exceptions=False), 1)
    assert found["machine", "java"]["standing"] == "failed"
    assert found["spark", "session"]["standing"] == "skipped"
    assert found["catalog", "compare-and-swap"]["standing"] == "ok"


def test_only_the_embedded_catalog_is_written_to_without_being_asked(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backing = connect("backing", {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w"})
    create_table(backing, "demo.events", pa.schema([("id", pa.int64())]))
    with rest_catalog(backing) as (uri, service):
        monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", uri)
        quiet = checks(run("demo.events", "--catalog", "prod", "--output", "json"))
        assert service.commits == 0
        asked = checks(run("demo.events", "--catalog", "prod", "--write-probe", "--output", "json"))
        assert service.commits == 6
    for place in (("catalog", "compare-and-swap"), ("table", "data files"), ("table", "metadata files")):
        assert quiet[place]["standing"] == "skipped"
        assert "--write-probe" in quiet[place]["fix"]
        assert asked[place]["standing"] == "ok"


def test_no_write_probe_writes_nothing_in_the_embedded_catalog_either(run: Run, writer: Writer) -> None:
    assert writer.sink == "events"
    found = checks(run("demo.events", "--no-write-probe", "--output", "json"))
    assert found["catalog", "compare-and-swap"]["standing"] == "skipped"
    assert found["table", "data files"]["standing"] == "skipped"


def test_a_service_that_ignores_what_is_asserted_ends_with_1(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w"}
    with rest_catalog(IgnoresAssertions("backing", **local)) as (uri, _):
        monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", uri)
        found = checks(run("--catalog", "prod", "--write-probe", "--output", "json"), 1)
    assert "[LAKESINK_CATALOG_NOT_ATOMIC]" in found["catalog", "compare-and-swap"]["found"]


@pytest.mark.parametrize("output", ["text", "json"])
def test_no_secret_of_the_catalog_is_shown(run: Run, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", f"http://me:{CANARY}@127.0.0.1:{free_port()}")
    for key in ("TOKEN", "CREDENTIAL", "S3__SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{key}", CANARY)
    result = run("demo.events", "--catalog", "prod", "--write-probe", "--checkpoint", CANARY[:3], "--output", output)
    assert result.exit_code == 1
    assert "LAKESINK_CATALOG_UNREACHABLE" in result.output
    assert CANARY not in result.output


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_secret_of_the_catalog_is_masked_wherever_a_table_repeats_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    local = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w"}
    repeating = {f"write.{CANARY}": "1", "write.data.path": f"{tmp_path}/w/{CANARY}"}
    create_table(connect("prod", local), "demo.events", pa.schema([("id", pa.int64())]), None, repeating)
    for key, value in (local | {"token": CANARY}).items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{key.upper()}", value)
    result = run("demo.events", "--catalog", "prod", "--output", output)
    assert "not honoured: write.***" in result.output
    assert CANARY not in result.output


@pytest.mark.parametrize("output", ["text", "json"])
def test_nothing_in_a_table_reaches_the_terminal_as_markup_or_control_code(run: Run, home: Path, output: str) -> None:
    evil = "write.[red]x[/red]\x1b[31m\u202e\x07"
    create_table(connect(), "demo.events", pa.schema([("id", pa.int64())]), None, {evil: "1"})
    assert home.exists()
    text = run("demo.events", "--output", output).stdout
    assert "[red]x[/red]" in text
    assert not {"\x1b", "\u202e", "\x07"} & set(text)


def test_a_broken_configuration_file_is_a_finding(run: Run, home: Path) -> None:
    (home.parent / ".pyiceberg.yaml").write_text(f"catalog:\n  prod: [unclosed\n   token: {CANARY}\n")
    found = checks(run("--output", "json"), 1)
    assert "LAKESINK_CATALOG_MISCONFIGURED" in found["catalog", "choice"]["found"]
    assert CANARY not in str(found)
