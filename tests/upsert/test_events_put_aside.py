"""Debezium's events that cannot be written become dead letters, as they came, and the others of their batch land."""

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, IntegerType, LongType, NestedField, StringType

from lakesink.rows.plan import DELETED
from lakesink_protocol.errors import WriteError
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from testkit.builders import Lake
from tests.decode.debezium.events import event
from tests.upsert.change_events import EventStream, written
from tests.upsert.rows import live_rows

FIELDS = (
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "version", LongType()),
    NestedField(3, "size", IntegerType()),
    NestedField(4, "name", StringType(), required=True),
)
QUARANTINE = {"on_malformed": "quarantine", "max_dead_letter_ratio": "1.0", "sequence_by": "version"}
TOO_BIG = 2**31
Row = dict[str, Any]


def row(number: int, version: Any, name: str | None = "a", size: Any = 1) -> Row:
    return {"id": number, "version": version, "size": size, "name": name}


def stream_into(folder: Path, *more: NestedField, **options: Any) -> EventStream:
    schema = Schema(*FIELDS, *more, identifier_field_ids=[1])
    return EventStream(Lake.make(folder, schema=schema), options=QUARANTINE | options)


def letters(stream: EventStream) -> list[Row]:
    found = stream.lake.catalog.load_table(f"{stream.lake.name}__dead_letters").scan().to_arrow().to_pylist()
    return sorted(found, key=lambda one: (one["batch_id"], one["offset"]))


def take(stream: EventStream, batch: int, events: list[Any]) -> Any:
    return stream.take(batch, [(0, 100 * batch + at, one) for at, one in enumerate(events)])


BAD = [
    (b"{", "VALUE_MALFORMED", None),
    (b"\xff", "VALUE_MALFORMED", None),
    ({"hello": 1}, "OPERATION_UNKNOWN", None),
    (event("?", row(7, 1)), "OPERATION_UNKNOWN", None),
    (event("d", None, None), "KEY_MISSING", "id"),
    (event("u", row(1, 9), {"name": "a"}), "KEY_MISSING", "id"),
    (event("c", row(7, 1, size=TOO_BIG)), "VALUE_MALFORMED", "size"),
    (event("c", row(7, 1, None)), "VALUE_MALFORMED", "name"),
    (event("d", None, {"id": "x", "version": 9}), "VALUE_MALFORMED", "id"),
    (event("c", row(7, None)), "SEQUENCE_NULL", "version"),
]


def test_what_is_no_change_is_a_dead_letter_as_it_came_and_the_others_land(tmp_path: Path) -> None:
    stream = stream_into(tmp_path)
    good = [event("c", row(1, 1)), event("c", row(2, 1)), event("u", row(1, 2, "b")), event("d", None, row(2, 2))]
    mixed: list[Any] = []
    for at, (document, _, _) in enumerate(BAD):
        mixed += [document, *good[at : at + 1]]
    outcome = take(stream, 0, mixed)
    assert isinstance(outcome, Committed)
    assert live_rows(stream.lake) == [row(1, 2, "b")]
    found = letters(stream)
    assert [(one["reason"], one["column_name"]) for one in found] == [(reason, name) for _, reason, name in BAD]
    assert [one["payload"].encode() if one["payload"] else one["payload_bytes"] for one in found] == [
        written(document) for document, _, _ in BAD
    ]
    assert [one["offset"] for one in found] == [mixed.index(document) for document, _, _ in BAD]
    assert {one["topic"] for one in found} == {"t"}


def test_the_row_of_a_key_stays_as_it_is_and_a_newer_change_wins(tmp_path: Path) -> None:
    stream = stream_into(tmp_path)
    take(stream, 0, [event("c", row(number, 1)) for number in (1, 2)])
    take(stream, 1, [event("u", row(1, 2, None)), event("u", row(2, 2, None)), event("u", row(2, 3, "b"))])
    assert live_rows(stream.lake) == [row(1, 1), row(2, 3, "b")]
    assert [one["offset"] for one in letters(stream)] == [100, 101]


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (row(2, 2, None), "VALUE_MALFORMED"),
        (row(2, 2, size=TOO_BIG), "VALUE_MALFORMED"),
        (row(2, None), "SEQUENCE_NULL"),
    ],
    ids=["required", "int", "sequence"],
)
@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
def test_both_changes_of_an_event_that_changes_a_key_are_put_aside_together(
    tmp_path: Path, new: Row, reason: str, *, soft: bool
) -> None:
    more = [NestedField(5, DELETED, BooleanType())] if soft else []
    stream = stream_into(tmp_path, *more, **({"deletes": "soft"} if soft else {}))
    live = {DELETED: False} if soft else {}
    take(stream, 0, [event("c", row(1, 1))])
    split = event("u", row(4, 2), row(3, 1))
    outcome = take(stream, 1, [event("c", row(3, 1)), event("u", new, row(1, 1)), split])
    assert isinstance(outcome, Committed)
    rows = [row(1, 1) | live, row(4, 2) | live]
    gone = [row(3, 2) | {DELETED: True}] if soft else []
    assert live_rows(stream.lake) == sorted([*rows, *gone], key=lambda one: one["id"])
    [letter] = letters(stream)
    assert (letter["reason"], letter["payload"]) == (reason, written(event("u", new, row(1, 1))).decode())
    summary = stream.lake.head().summary
    assert summary is not None
    assert summary["lakesink.dead-letters"] == "1"


def test_a_truncate_still_fails_its_batch(tmp_path: Path) -> None:
    stream = stream_into(tmp_path)
    with pytest.raises(WriteError, match="LAKESINK_TRUNCATE"):
        take(stream, 0, [event("c", row(1, 1)), event("t")])
    assert stream.lake.table().current_snapshot() is None


def test_a_replayed_batch_adds_neither_rows_nor_letters(tmp_path: Path) -> None:
    stream = stream_into(tmp_path, changelog_table="demo.log")
    events = [event("c", row(1, 1)), b"{", event("u", row(2, None), row(1, 1)), event("u", row(3, 2), row(1, 1))]
    take(stream, 0, events)
    for _ in range(2):
        assert isinstance(take(stream, 0, events), AlreadyCommitted)
        stream.restart()
    assert live_rows(stream.lake) == [row(3, 2)]
    assert [one["offset"] for one in letters(stream)] == [1, 2]
    log = stream.lake.catalog.load_table("demo.log").scan().to_arrow().to_pylist()
    assert sorted((one["id"], one["_operation"]) for one in log) == [(1, "delete"), (1, "upsert"), (3, "upsert")]


def test_events_in_several_tasks_are_counted_together(tmp_path: Path) -> None:
    stream = stream_into(tmp_path)
    tasks = [[(0, 2 * task, event("c", row(task, 1))), (0, 2 * task + 1, b"[]")] for task in range(3)]
    assert isinstance(stream.take(0, *tasks), Committed)
    assert live_rows(stream.lake) == [row(task, 1) for task in range(3)]
    assert [one["offset"] for one in letters(stream)] == [1, 3, 5]


def test_a_batch_of_letters_alone_leaves_the_table_without_rows(tmp_path: Path) -> None:
    stream = stream_into(tmp_path)
    assert isinstance(take(stream, 0, [b"{", event("?")]), Committed)
    assert live_rows(stream.lake) == []
    assert [one["reason"] for one in letters(stream)] == ["VALUE_MALFORMED", "OPERATION_UNKNOWN"]
