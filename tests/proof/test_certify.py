"""The page on certify says what the code asks, and its results are those of every catalog that the proof can run."""

import json
from pathlib import Path

import pytest

import proof.certify
from lakesink_tools.checks.certify.examine import Certificate
from lakesink_tools.checks.certify.race import Size
from lakesink_tools.checks.certify.verdict import Check, CheckResult, Standing, Verdict
from proof.certify import (
    CATALOGS,
    DOCUMENT,
    FOLDER,
    NOT_SAFE,
    USERS,
    CertifyFigures,
    checks_markdown,
    kept_in,
    results_markdown,
    run,
)
from servers import catalogs
from testkit.http_servers import skipped_where_missing
from website.tables import between


def test_the_page_lists_the_checks_as_the_code_has_them() -> None:
    assert between(DOCUMENT.read_text(), "checks") == checks_markdown()


def test_the_page_has_the_certificate_of_every_catalog() -> None:
    results, kept = between(DOCUMENT.read_text(), "results"), kept_in(FOLDER)
    assert results == results_markdown({name: kept[name] for name in CATALOGS})
    assert kept.keys() == CATALOGS.keys()
    for document in kept.values():
        assert [one["check"] for one in document["checks"]] == [check.value for check in Check]


def test_a_certificate_that_a_user_sends_is_on_the_page_by_its_file(tmp_path: Path) -> None:
    assert between(DOCUMENT.read_text(), "sent by users") == results_markdown(kept_in(FOLDER / USERS))
    [sqlite, *_] = sorted(FOLDER.glob("sqlite*.json"))
    document = json.loads(sqlite.read_text())
    del document["name"]
    (tmp_path / "polaris-1.4.1.json").write_text(json.dumps(document | {"product": "Polaris 1.4.1"}))
    shown = results_markdown(kept_in(tmp_path))
    assert "| polaris-1.4.1 | certified for single-table commits | 12 kept, 1 absent |" in shown
    assert "| Polaris 1.4.1 |" in shown


def starts_slowly(name: str) -> bool:
    return "REST" in name or name in catalogs.CATALOGS


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak if starts_slowly(name) else ()) for name in CATALOGS]
)
def test_every_catalog_of_the_proof_is_there_to_be_asked(name: str, tmp_path: Path) -> None:
    with skipped_where_missing(), CATALOGS[name](tmp_path) as found:
        assert found.open(create=False).list_namespaces() == ([("default",)] if name == catalogs.HIVE else [])


@pytest.mark.parametrize("standing", [Standing.KEPT, Standing.BROKEN, Standing.UNDECIDED])
@pytest.mark.parametrize("name", ["SQLite", *NOT_SAFE])
def test_a_verdict_is_well_if_it_is_that_which_is_known_of_the_catalog(name: str, standing: Standing) -> None:
    findings = tuple(CheckResult(check, standing, "") for check in Check)
    figures = CertifyFigures({name: Certificate(name, "a product", "rest", {}, Size(), findings)}, {})
    assert figures.well is (standing is (Standing.BROKEN if name in NOT_SAFE else Standing.KEPT))


@pytest.mark.soak
def test_the_reference_server_is_fit_but_not_for_commits_of_several_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    [name] = [name for name in CATALOGS if "REST" in name]
    monkeypatch.setattr(proof.certify, "CATALOGS", {name: CATALOGS[name]})
    figures = run(seconds=1)
    if figures.skipped:
        pytest.skip(figures.skipped[name])
    assert figures.certificates[name].verdict is Verdict.SINGLE_TABLE, figures.to_json()
    assert figures.well
    shown = results_markdown({name: figures.certificates[name].to_json()})
    assert f"| {name} | certified for single-table commits | 12 kept, 1 broken |" in shown
    assert f"- **{name}**, multi-table: 16 writers at once: " in shown
