"""The page on certify says what the code asks, and its results are those of every catalog that the proof can run."""

import re
from pathlib import Path

import pytest

import proof.certify
from lakesink.checks.certify.verdict import Verdict
from proof.certify import CATALOGS, DOCUMENT, checks_markdown, results_markdown, run
from testkit.http_servers import skipped_where_missing
from website.tables import between


def test_the_page_lists_the_checks_as_the_code_has_them() -> None:
    assert between(DOCUMENT.read_text(), "checks") == checks_markdown()


def test_the_page_has_a_result_for_every_catalog() -> None:
    results = between(DOCUMENT.read_text(), "results")
    names = re.findall(r"^\| ([^|]+) \|", results, re.MULTILINE)
    assert names == ["catalog", *CATALOGS]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak if "REST" in name else ()) for name in CATALOGS]
)
def test_every_catalog_of_the_proof_is_there_to_be_asked(name: str, tmp_path: Path) -> None:
    with skipped_where_missing(), CATALOGS[name](tmp_path) as found:
        assert found.open(create=False).list_namespaces() == []


@pytest.mark.soak
def test_the_reference_server_is_fit_but_not_for_commits_of_several_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    [name] = [name for name in CATALOGS if "REST" in name]
    monkeypatch.setattr(proof.certify, "CATALOGS", {name: CATALOGS[name]})
    figures = run(seconds=1)
    if figures.skipped:
        pytest.skip(figures.skipped[name])
    assert figures.certificates[name].verdict is Verdict.SINGLE_TABLE, figures.to_json()
    assert figures.well
    shown = results_markdown(figures)
    assert f"| {name} | certified for single-table commits | 10 kept, 1 broken |" in shown
    assert f"- **{name}**, multi-table: 16 writers at once: " in shown
