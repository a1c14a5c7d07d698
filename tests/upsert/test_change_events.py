"""Debezium's events on their way into a table and a changelog: what is committed, counted and reported."""

import logging
from pathlib import Path
from typing import Any

import pytest

from lakesink_protocol.outcome import Committed
from testkit.builders import Lake
from tests.decode.debezium.events import event
from tests.upsert.change_events import SCHEMA, EventStream
from tests.upsert.rows import live_rows


def row(number: int, version: int, name: Any = "a") -> dict[str, Any]:
    return {"id": number, "version": version, "name": name}


def stream_into(folder: Path, **options: Any) -> EventStream:
    return EventStream(Lake.make(folder, schema=SCHEMA), options=options)


def lines(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.getMessage().startswith(name)]


def test_the_first_late_delete_of_a_run_is_a_warning_that_names_the_setting_of_the_database(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream = stream_into(tmp_path, sequence_by="version")
    caplog.set_level(logging.WARNING)
    stream.take(0, [(0, number, event("c", row(number, 7))) for number in range(4)])
    assert lines(caplog, "lakesink.deletes.late") == []
    for batch, number in ((1, 0), (2, 1)):
        outcome = stream.take(batch, [(0, 9 + batch, event("d", None, row(number, 0, "")))])
        assert isinstance(outcome, Committed)
        assert outcome.changes is not None
        assert outcome.changes.late_deletes == 1
    [line] = lines(caplog, "lakesink.deletes.late")
    assert "batch=1 rows=1" in line
    assert "REPLICA IDENTITY FULL" in line
    stream.restart()
    stream.take(3, [(0, 12, event("d", None, row(2, 0, "")))])
    assert len(lines(caplog, "lakesink.deletes.late")) == 2
    assert len(live_rows(stream.lake)) == 4


def test_a_changelog_counts_the_deletes_whose_row_before_is_not_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream = stream_into(tmp_path, changelog_table="demo.log")
    bad = {"id": 1, "version": "x", "name": "a"}
    events = [event("c", row(1, 1)), event("u", row(1, 2), bad), event("d", None, bad), event("c", row(2, 1))]
    stream.take(0, [(0, at, one) for at, one in enumerate(events)])
    log = stream.lake.catalog.load_table("demo.log").scan().to_arrow().sort_by("_source_offset").to_pylist()
    assert [(one["_operation"], one["id"], one["version"], one["name"]) for one in log] == [
        ("upsert", 1, 1, "a"),
        ("upsert", 1, 2, "a"),
        ("delete", 1, None, "a"),
        ("upsert", 2, 1, "a"),
    ]
    assert [one["id"] for one in live_rows(stream.lake)] == [2]
    summary = stream.lake.head().summary
    assert summary is not None
    assert summary["lakesink.unread-rows-before"] == "1"
    assert len(lines(caplog, "lakesink.changelog.unread")) == 1
