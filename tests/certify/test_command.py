"""The command as a person or a script meets it: text, JSON, exit codes, and no secret in any of them."""

import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lakesink_catalog.connect import catalog as connecting
from lakesink_catalog.connect.catalog import connect
from lakesink_tools.checks.certify.verdict import Check
from lakesink_tools.cli.main import main
from servers.ports import free_port
from testkit.rest_catalog import RestService
from tests.certify.liars import IgnoresTag, IgnoresUuid, Silent, served

CANARY = "c4n4ry-Sw0rdfish"
Run = Callable[..., Result]


@pytest.fixture
def run(home: Path) -> Run:
    runner = CliRunner()
    sizes = ["--writers", "2", "--commits", "2", "--processes", "1"]
    assert not home.exists()
    connect()
    return lambda *arguments: runner.invoke(main, ["certify", *sizes, *arguments], catch_exceptions=False)


def test_a_fit_catalog_ends_with_0_and_says_what_may_be_done_with_it(run: Run, home: Path) -> None:
    before = set(home.rglob("*"))
    result = run()
    lines = result.stdout.splitlines()
    assert (result.exit_code, result.stderr) == (0, "")
    assert lines[0] == f"The embedded catalog in {home} is certified for single-table commits."
    assert [line.split()[0] for line in lines[2:15]] == ["kept"] * 12 + ["absent"]
    assert lines[-1].startswith("Next: Stream into it.")
    assert set(home.rglob("*")) == before


def test_a_catalog_that_its_first_stream_would_make_is_tested_beside_its_place(home: Path) -> None:
    sizes = ["--writers", "2", "--commits", "2", "--processes", "1"]
    result = CliRunner().invoke(main, ["certify", *sizes], catch_exceptions=False)
    assert (result.exit_code, result.stdout.splitlines()[0]) == (
        0,
        f"The embedded catalog in {home} is certified for single-table commits.",
    )
    assert not home.exists()
    assert list(home.parent.glob(".lakesink*")) == []


def test_json_has_every_check_with_what_it_is_for(run: Run) -> None:
    document = json.loads(run("--output", "json").stdout)
    assert (document["verdict"], document["fit"]) == ("certified for single-table commits", True)
    assert [check["check"] for check in document["checks"]] == [check.value for check in Check]
    assert all(check["follows_if_broken"] and check["needed_for"] for check in document["checks"])
    assert document["race"]["writers"] == 2
    assert {"lakesink", "pyiceberg", "python"} <= document["software"].keys()
    assert document["product"] == f"sqlite {sqlite3.sqlite_version}"
    assert document["advice"]


@pytest.mark.parametrize(
    ("kind", "exit_code", "verdict", "words"),
    [
        (
            IgnoresUuid,
            1,
            "is NOT safe.",
            "so: a batch of a dropped table can be committed to a new table of its name",
        ),
        (IgnoresTag, 1, "is certified without the ledger tag.", "Next: Give streams ledger_tag=False"),
        (Silent, 2, "is not decided.", "Next: Correct the failures of the checks"),
    ],
)
def test_a_catalog_that_is_not_fit_says_why_and_what_follows(
    run: Run, monkeypatch: pytest.MonkeyPatch, kind: type, exit_code: int, verdict: str, words: str
) -> None:
    monkeypatch.setattr(connecting, "open_catalog", lambda name, properties: kind(name, **properties))
    result = run()
    assert result.exit_code == exit_code, result.output
    assert verdict in result.stdout.splitlines()[0]
    assert words in result.stdout


def test_the_certificate_has_the_product_that_the_user_or_else_the_service_names(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert json.loads(run("--product", "Polaris 1.4.1", "--output", "json").stdout)["product"] == "Polaris 1.4.1"
    backing = connect("backing", {"uri": f"sqlite:///{tmp_path}/b.db", "warehouse": f"file://{tmp_path}/b"})
    with served(RestService(backing)) as uri:
        monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", uri)
        said = json.loads(run("prod", "--output", "json").stdout)["product"]
    assert re.fullmatch(r"REST service, \S+/\S+ Python/\S+", said)


def test_what_cannot_be_asked_ends_with_2_and_shows_no_secret(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", f"http://me:{CANARY}@127.0.0.1:{free_port()}")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TOKEN", CANARY)
    result = run("prod")
    assert result.exit_code == 2
    assert "[LAKESINK_CATALOG_UNREACHABLE]" in result.stderr
    assert CANARY not in result.output
    assert run("prdo").exit_code == 2
