"""What a notebook shows of a history and of an audit: a table that nobody can smuggle markup into."""

from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

import lakesink
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from lakesink_tools.audit.audit import audit
from lakesink_tools.audit.finding import Code, Finding, Note
from lakesink_tools.past.html import MOST_ROWS, page
from lakesink_tools.past.table_history import History
from testkit.builders import TABLE, Lake, Stream
from tests.cli.test_status import writer

HOSTILE = "<script>alert('x')</script>&\"'"


class Cells(HTMLParser):
    """Text of each cell and line, and the names of all tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert {name for name, _ in attrs} <= {"style"}
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data)


def record(batch_id: int, sink: str = "events") -> lakesink.Record:
    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    return lakesink.Record(
        sink, "main", "stream", batch_id, 77, 1, 1000, 2, 2048, "{}", when, "committed", "", 0, in_branch=True
    )


def test_a_history_is_a_list_that_a_notebook_shows() -> None:
    history = History([record(0), record(1)])
    assert history == [record(0), record(1)]
    assert isinstance(history, list)
    cells = Cells(history._repr_html_())
    assert cells.texts[0] == "2 batches"
    assert cells.texts[10:19] == [
        *("events", "main", "0", "1,000", "2", "2.0 KiB", "2026-01-02 03:04:05", "committed", "77"),
    ]


def test_no_text_becomes_markup() -> None:
    cells = Cells(page(HOSTILE, [HOSTILE], [[HOSTILE]], [HOSTILE]))
    assert cells.texts == [HOSTILE] * 4
    assert set(cells.tags) == {"div", "b", "table", "thead", "tbody", "tr", "th", "td"}


def test_the_newest_rows_are_shown_and_the_others_counted() -> None:
    cells = Cells(History([record(n) for n in range(1234)])._repr_html_())
    assert cells.texts[1] == f"{1234 - MOST_ROWS:,} earlier rows are not shown."
    assert cells.tags.count("tr") == 1 + MOST_ROWS
    assert "1,233" in cells.texts


def test_no_colour_is_set_so_that_both_themes_stay_readable() -> None:
    html = History([record(0)])._repr_html_()
    assert "background" not in html
    assert "color:" not in html


def test_an_empty_history_has_no_table() -> None:
    assert Cells(History()._repr_html_()).tags == ["div", "div", "b"]


@pytest.mark.usefixtures("home")
def test_an_audit_by_name_finds_what_the_command_finds() -> None:
    writer(connect(), "demo.events")
    proof = lakesink.audit_table("demo.events", footers=False)
    assert [one.batches for one in proof.sinks] == [3]
    assert {finding.code.name for finding in proof.findings} == {"FILE_MISSING"}  # the builder writes no data files
    cells = Cells(proof._repr_html_())
    assert cells.texts[0] == "Audit: 1 finding"
    assert any(text.startswith("[FILE_MISSING] ") for text in cells.texts)


def test_findings_that_are_not_shown_are_counted_and_every_note_is_shown(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    Stream(lake).run(0)
    clean = audit(load_table(lake.catalog, TABLE), footers=False)
    findings = tuple(Finding(Code.FILE_MISSING, "", f"File {n} is missing.") for n in range(MOST_ROWS + 1_200))
    notes = tuple(Note("history", "", f"Note {n}.") for n in range(MOST_ROWS + 1))
    texts = Cells(replace(clean, findings=findings, notes=notes)._repr_html_()).texts
    assert sum(text.startswith("[FILE_MISSING] ") for text in texts) == MOST_ROWS
    assert "1,200 more findings; .findings has all." in texts
    assert sum(text.startswith("note: ") for text in texts) == len(notes)


def test_a_clean_audit_says_so(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    Stream(lake).run(0)
    cells = Cells(audit(load_table(lake.catalog, TABLE), footers=False)._repr_html_())
    assert cells.texts[0] == "Audit: clean: 1 batch, each there once, whole and readable"
