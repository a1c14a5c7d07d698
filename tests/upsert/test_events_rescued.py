"""Rows of Debezium's events keep what does not fit, in a table, beside dead letters, a changelog and deleted rows."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import BooleanType, NestedField

from lakesink.rows.plan import DELETED
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from tests.decode.debezium.events import event
from tests.upsert.rows import live_rows
from tests.upsert.test_events_put_aside import Row, letters, row, stream_into, take

RESCUE = "_rescued"
BAD_SIZE = {RESCUE: {"unfit": {"size": {"expected": "INT", "value": "XL"}}}}


def rows_of(table: Any, *names: str) -> list[Row]:
    rows = [one | {RESCUE: one[RESCUE] and json.loads(one[RESCUE])} for one in table]
    return [{name: one[name] for name in names} for one in rows] if names else rows


@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
def test_a_table_with_rescued_rows_letters_and_a_changelog_follows_its_source(tmp_path: Path, *, soft: bool) -> None:
    more = [NestedField(5, DELETED, BooleanType())] if soft else []
    options = {"deletes": "soft"} if soft else {}
    stream = stream_into(tmp_path, *more, rescue_column=RESCUE, changelog_table="demo.log", **options)
    big = row(1, 1, size="XL")
    events = [
        event("c", big),
        event("c", row(2, 1) | {"colour": "red"}),
        event("c", row(3, "x")),
        event("u", row(4, 2, size="XL"), row(2, 1) | {"colour": "red"}),
        event("u", row(5, 2, None), row(1, 1)),
    ]
    assert isinstance(take(stream, 0, events), Committed)
    live = {DELETED: False} if soft else {}
    gone = [row(2, 2) | {DELETED: True, RESCUE: {"unknown": {"colour": "red"}}}] if soft else []
    one, four = (row(number, version, size=None) | BAD_SIZE | live for number, version in ((1, 1), (4, 2)))
    assert rows_of(live_rows(stream.lake)) == [one, *gone, four]
    assert [(one["column_name"], one["offset"]) for one in letters(stream)] == [("version", 2), ("name", 4)]
    summary = stream.lake.head().summary
    assert summary is not None
    assert summary["lakesink.rescued-rows"] == ("4" if soft else "3")
    assert isinstance(take(stream, 1, [event("d", None, big | {"version": 2})]), Committed)
    stream.restart()
    assert isinstance(take(stream, 1, [event("d", None, big | {"version": 2})]), AlreadyCommitted)
    deleted = [one | {"version": 2, DELETED: True}] if soft else []
    assert rows_of(live_rows(stream.lake)) == [*deleted, *gone, four]
    log = stream.lake.catalog.load_table("demo.log").scan().to_arrow().sort_by("_source_offset").to_pylist()
    kept = BAD_SIZE[RESCUE] if soft else None
    of_two = {"unknown": {"colour": "red"}}
    assert sorted(rows_of(log, "id", "_operation", RESCUE), key=lambda one: (one["id"], one["_operation"])) == [
        {"id": 1, "_operation": "delete", RESCUE: kept},
        {"id": 1, "_operation": "upsert", RESCUE: BAD_SIZE[RESCUE]},
        {"id": 2, "_operation": "delete", RESCUE: of_two if soft else None},
        {"id": 2, "_operation": "upsert", RESCUE: of_two},
        {"id": 4, "_operation": "upsert", RESCUE: BAD_SIZE[RESCUE]},
    ]
