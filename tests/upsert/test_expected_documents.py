"""Expectations on the columns of documents, through whole batches: what is written, counted, put aside and refused."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, IntegerType, LongType, NestedField, StringType

from lakesink_protocol.errors import SettingsError, WriteError
from lakesink_protocol.outcome import Committed
from testkit.builders import Lake, Stream
from tests.decode.debezium.events import event
from tests.upsert.change_events import EventStream
from tests.upsert.rows import live_rows

FIELDS = (
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "version", LongType()),
    NestedField(3, "total", IntegerType()),
)
RULES = {"positive": ("total >= 0", "quarantine"), "small": ("total < 10", "quarantine"), "known": ("id > 0", "warn")}
Row = dict[str, Any]


@dataclass(slots=True)
class Documents(EventStream):
    """Documents that are appended."""

    def __post_init__(self) -> None:
        Stream.__post_init__(self)
        self.options = {"decode": "json", "max_dead_letter_ratio": "1.0"} | self.options
        self.restart()


def appends(folder: Path, **options: Any) -> Documents:
    return Documents(Lake.make(folder, schema=Schema(*FIELDS)), options=options)


def changes(folder: Path, **options: Any) -> EventStream:
    lake = Lake.make(folder, schema=Schema(*FIELDS, identifier_field_ids=[1]))
    return EventStream(lake, options={"sequence_by": "version", "max_dead_letter_ratio": "1.0"} | options)


def row(number: int, total: int | None, version: int = 1, **more: Any) -> Row:
    return {"id": number, "version": version, "total": total, **more}


def rows(stream: Stream) -> list[Row]:
    found: list[Row] = stream.lake.table().scan().to_arrow().sort_by("id").to_pylist()
    return found


def letters(stream: Stream) -> list[tuple[Row, str, str, str | None]]:
    """Document, reason, expectation, and the others."""
    found = stream.lake.catalog.load_table(f"{stream.lake.name}__dead_letters").scan().to_arrow().to_pylist()
    found.sort(key=lambda one: (one["batch_id"], one["partition"], one["offset"]))
    return [(json.loads(one["payload"]), one["reason"], one["column_name"], one["detail"]) for one in found]


def unmet(stream: Stream) -> dict[str, str]:
    summary = stream.lake.head().summary
    assert summary is not None
    counts = summary.additional_properties
    return {key.removeprefix("lakesink.unmet"): counts[key] for key in counts if key.startswith("lakesink.unmet")}


def test_a_document_that_breaks_a_rule_is_a_dead_letter_with_the_names_of_all(tmp_path: Path) -> None:
    stream = appends(tmp_path, expect=RULES | {"even": ("total * 2 <> 99 AND total <> -1", "quarantine")})
    documents = [row(1, 5), row(2, -1, other=[1]), row(3, None), row(-4, 7), row(5, 10)]
    stream.take(0, [(0, at, one) for at, one in enumerate(documents)])
    assert rows(stream) == [row(-4, 7), row(1, 5)]
    assert letters(stream) == [
        (row(2, -1, other=[1]), "EXPECTATION_UNMET", "positive", "also even"),
        (row(3, None), "EXPECTATION_UNMET", "positive", "also small, even"),
        (row(5, 10), "EXPECTATION_UNMET", "small", None),
    ]
    assert unmet(stream) == {"-rows": "4", ".positive": "2", ".small": "2", ".even": "2", ".known": "1"}


def test_a_rule_that_fails_the_batch_counts_the_documents_of_all_tasks(tmp_path: Path) -> None:
    stream = appends(tmp_path, expect={"positive": "total >= 0", "small": ("total < 10", "warn")})
    tasks = [[(0, 0, row(1, 5)), (0, 1, row(2, -1))], [(1, 0, row(3, None)), (1, 1, row(4, 11))]]
    with pytest.raises(WriteError, match="2 of 4 rows of batch 0 do not meet the expectation positive"):
        stream.take(0, *tasks)
    assert rows(stream) == []


def test_a_malformed_document_is_the_reason_though_others_break_a_rule(tmp_path: Path) -> None:
    stream = appends(tmp_path, expect={"positive": "total >= 0"})
    with pytest.raises(WriteError, match=r"VALUE_MALFORMED.*1 malformed document in batch 0"):
        stream.take(0, [(0, 0, row(1, -1)), (0, 1, {"id": "x"})], [(1, 0, row(2, -1))])


def test_a_malformed_document_that_is_put_aside_breaks_no_rule(tmp_path: Path) -> None:
    stream = appends(tmp_path, expect=RULES, on_malformed="quarantine")
    stream.take(0, [(0, 0, row(1, -1)), (0, 1, {"id": "x"}), (0, 2, row(2, 2))])
    assert [(reason, name) for _, reason, name, _ in letters(stream)] == [
        ("EXPECTATION_UNMET", "positive"),
        ("VALUE_MALFORMED", "id"),
    ]
    assert unmet(stream) == {"-rows": "1", ".positive": "1", ".small": "0", ".known": "0"}


@pytest.mark.parametrize("again", [True, False], ids=["written again", "written by the driver"])
@pytest.mark.parametrize("by_key", [True, False], ids=["upserts", "appends"])
def test_a_document_that_waits_for_a_new_column_is_judged_when_it_is_written(
    tmp_path: Path, *, by_key: bool, again: bool
) -> None:
    options: Row = {"expect": RULES, "schema_evolution": "widen"}
    upserts = {"mode": "upsert", "decode": "json"}
    stream = changes(tmp_path, **options, **upserts) if by_key else appends(tmp_path, **options)
    stream.driver.can_write_again = again
    stream.take(0, [(0, 0, row(1, 1)), (0, 1, row(2, -1))], [(1, 0, row(3, 3, new=1)), (1, 1, row(4, 99, new=1))])
    assert rows(stream) == [row(1, 1, new=None), row(3, 3, new=1)]
    assert letters(stream) == [
        (row(2, -1), "EXPECTATION_UNMET", "positive", None),
        (row(4, 99, new=1), "EXPECTATION_UNMET", "small", None),
    ]
    assert unmet(stream) == {"-rows": "2", ".positive": "1", ".small": "1", ".known": "0"}


def test_a_document_that_waits_can_fail_the_batch(tmp_path: Path) -> None:
    stream = appends(tmp_path, expect={"positive": "total >= 0"}, schema_evolution="add")
    with pytest.raises(WriteError, match="1 of 3 rows of batch 0 does not meet the expectation positive"):
        stream.take(0, [(0, 0, row(1, 1)), (0, 1, row(2, 2, new=1))], [(1, 0, row(3, -3, new=1))])
    assert rows(stream) == []


def test_a_column_that_becomes_wider_keeps_the_meaning_of_its_condition(tmp_path: Path) -> None:
    stream = appends(tmp_path, expect={"room": ("total + 1 > 0", "quarantine")}, schema_evolution="widen")
    stream.take(0, [(0, 0, row(1, 2**31 - 2)), (0, 1, row(2, 2**31 - 1))])
    stream.take(1, [(0, 2, row(3, 2**40)), (0, 3, row(4, -(2**40)))])
    assert [one["id"] for one in rows(stream)] == [1, 3]
    assert [one["id"] for one, *_ in letters(stream)] == [2, 4]  # the sum is no INT, and later it is one


def test_neither_a_delete_is_judged_nor_the_row_before_a_change(tmp_path: Path) -> None:
    stream = changes(tmp_path, expect={"positive": ("total >= 0", "quarantine"), "known": "id > 0"})
    events = [event("c", row(1, 5)), event("c", row(2, 6)), event("c", row(3, 7))]
    stream.take(0, [(0, at, one) for at, one in enumerate(events)])
    late = [
        event("u", row(1, 8, 2), row(1, -5)),
        event("d", None, row(2, -6, 2)),
        event("u", row(3, -7, 2), row(3, 7)),
        event("d", None, row(-9, None, 2)),
    ]
    outcome = stream.take(1, [(0, 3 + at, one) for at, one in enumerate(late)])
    assert isinstance(outcome, Committed)
    assert live_rows(stream.lake) == [row(1, 8, 2), row(3, 7)]
    assert [(one["after"], name) for one, _, name, _ in letters(stream)] == [(row(3, -7, 2), "positive")]
    assert unmet(stream) == {"-rows": "1", ".positive": "1", ".known": "0"}


def test_an_event_that_changes_the_key_goes_aside_whole(tmp_path: Path) -> None:
    stream = changes(tmp_path, expect={"positive": ("total >= 0", "quarantine")})
    stream.take(0, [(0, 0, event("c", row(1, 5))), (0, 1, event("c", row(2, 6)))])
    moves = [event("u", row(11, -1, 2), row(1, 5)), event("u", row(12, 1, 2), row(2, 6))]
    stream.take(1, [(0, 2 + at, one) for at, one in enumerate(moves)])
    assert live_rows(stream.lake) == [row(1, 5), row(12, 1, 2)]
    assert [one["after"]["id"] for one, *_ in letters(stream)] == [11]


def test_a_rescued_value_is_null_for_a_condition(tmp_path: Path) -> None:
    rules = {"positive": ("total >= 0", "warn"), "kept": ("_rescued IS NULL", "warn")}
    stream = appends(tmp_path, expect=rules, rescue_column="_rescued", schema_evolution="add")
    stream.take(0, [(0, 0, row(1, 1)), (0, 1, {"id": 2, "version": 1, "total": "many"})])
    assert len(rows(stream)) == 2
    assert unmet(stream) == {"-rows": "1", ".positive": "1", ".kept": "1"}


def test_a_condition_without_a_meaning_after_a_change_of_the_table_stops_the_next_batch(tmp_path: Path) -> None:
    stream = appends(tmp_path, expect={"positive": ("total >= 0", "quarantine"), "exact": ("total < 0.5", "warn")})
    stream.take(0, [(0, 0, row(1, 0))])
    with stream.lake.table().update_schema() as change:
        change.delete_column("total")
    with stream.lake.table().update_schema() as change:
        change.add_column("total", StringType())
    with pytest.raises(SettingsError, match=r"CONDITION_UNSUPPORTED.*positive.*it compares STRING with INT"):
        stream.take(1, [(0, 1, row(2, 1))])
    with stream.lake.table().update_schema() as change:
        change.delete_column("total")
    with pytest.raises(SettingsError, match="there is no column total"):
        stream.take(1, [(0, 1, row(2, 1))])
    with stream.lake.table().update_schema() as change:
        change.add_column("total", DecimalType(9, 2))
    stream.take(1, [(0, 1, row(2, 1)), (0, 2, row(3, -1))])
    assert [one["id"] for one in rows(stream)] == [1, 2]
