"""Debezium's events on their way into a table and a changelog: what is committed, counted and reported."""

import logging
from pathlib import Path
from typing import Any

import pytest

from lakesink_protocol.errors import WriteError
from lakesink_protocol.identity import Batch, stream_batch, transaction_batch
from lakesink_protocol.outcome import Committed
from testkit.builders import Lake
from tests.decode.debezium.events import event
from tests.upsert.change_events import SCHEMA, EventStream
from tests.upsert.rows import live_rows


def row(number: int, version: int, name: Any = "a") -> dict[str, Any]:
    return {"id": number, "version": version, "name": name}


def stream_into(folder: Path, **options: Any) -> EventStream:
    return EventStream(Lake.make(folder, schema=SCHEMA), options=options)


def of_kafka(stream: EventStream, batch_id: int, ends: dict[str, int]) -> Batch:
    starts = {"0": 9} if batch_id else dict.fromkeys(ends, 0)
    return stream_batch(batch_id, stream.query, start=[{"t": starts}], end=[{"t": ends}])


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


def test_positions_are_no_sequence_once_a_topic_has_several_partitions(tmp_path: Path) -> None:
    stream = stream_into(tmp_path, sequence_by="_kafka_offset")
    stream.take(of_kafka(stream, 0, {"0": 9}), [(0, 8, event("c", row(1, 1)))])
    grown = of_kafka(stream, 1, {"0": 9, "1": 1})
    for _ in range(2):
        with pytest.raises(WriteError, match="LAKESINK_SEQUENCE_OF_PARTITIONS") as refused:
            stream.take(grown, [(1, 0, event("u", row(1, 2)))])
        assert "Leave out the option sequence_by" in refused.value.action
        stream.restart()
    stream.options.pop("sequence_by")
    stream.restart()
    stream.take(grown, [(1, 0, event("u", row(1, 2)))])
    assert [(one["id"], one["version"]) for one in live_rows(stream.lake)] == [(1, 2)]


@pytest.mark.parametrize(
    ("sequence", "ends"),
    [("_kafka_offset", {"0": 9}), ("version,_kafka_offset", {"0": 9, "1": 9}), ("version", {"0": 9, "1": 9})],
)
def test_a_sequence_that_orders_all_partitions_is_accepted(tmp_path: Path, sequence: str, ends: dict[str, int]) -> None:
    stream = stream_into(tmp_path, sequence_by=sequence)
    stream.take(of_kafka(stream, 0, ends), [(0, 8, event("c", row(1, 1)))])
    assert len(live_rows(stream.lake)) == 1


BRONZE = {"lakesink": 1, "table": "demo.bronze", "uuid": "u", "sink": "b", "query": "q", "batch": 7}


@pytest.mark.parametrize("position", ["_kafka_offset", "_kafka_partition,_kafka_offset"])
@pytest.mark.parametrize(
    "ends",
    [[BRONZE], [{"logOffset": 1}], [7], [None], [{"t": {"0": 9}}, BRONZE], None],
    ids=["table", "files", "rate", "none", "kafka-and-table", "job"],
)
def test_positions_are_no_sequence_where_nothing_shows_one_partition(
    tmp_path: Path, position: str, ends: list[Any] | None
) -> None:
    stream = stream_into(tmp_path, sequence_by=position)
    batch = transaction_batch(0) if ends is None else stream_batch(0, stream.query, start=None, end=ends)
    with pytest.raises(WriteError, match="LAKESINK_SEQUENCE_OF_PARTITIONS"):
        stream.take(batch, [(0, 8, event("c", row(1, 1)))])


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_key_in_two_partitions_is_named_by_its_places_and_can_be_filtered(tmp_path: Path, tasks: int) -> None:
    stream = stream_into(tmp_path)
    records = [(0, 17, event("c", row(1, 1))), (1, 3, event("u", row(1, 2)))]
    with pytest.raises(WriteError, match="LAKESINK_KEY_TWICE") as refused:
        stream.take(0, *([records] if tasks == 1 else [[one] for one in records]))
    assert "partition 0, offset 17" in refused.value.what
    assert 'where("NOT (partition = 0 AND offset = 17)")' in refused.value.action
    stream.take(0, records[1:])
    assert [one["version"] for one in live_rows(stream.lake)] == [2]
