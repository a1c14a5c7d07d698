"""With `apply_as_deletes`, documents say themselves which rows they delete, by a condition on their columns."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, LongType, NestedField, StringType

from lakesink.rows.plan import DELETED
from lakesink_protocol.errors import SettingsError, WriteError
from testkit.builders import Lake
from tests.upsert.change_events import EventStream
from tests.upsert.rows import live_rows

FIELDS = (
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "version", LongType()),
    NestedField(3, "name", StringType(), required=True),
)
BY_OP = {"decode": "json", "apply_as_deletes": "op = 'd'", "except_column_list": "op", "sequence_by": "version"}
QUARANTINE = {"on_malformed": "quarantine", "max_dead_letter_ratio": "1.0"}
Row = dict[str, Any]


def stream_into(folder: Path, *more: NestedField, **options: Any) -> EventStream:
    lake = Lake.make(folder, schema=Schema(*FIELDS, *more, identifier_field_ids=[1]))
    return EventStream(lake, options=BY_OP | options)


def take(stream: EventStream, batch: int, *documents: Row) -> Any:
    return stream.take(batch, [(0, 100 * batch + at, one) for at, one in enumerate(documents)])


def row(key: int, version: int, name: str = "n") -> Row:
    return {"id": key, "version": version, "name": name}


def letters(stream: EventStream) -> list[Row]:
    table = stream.lake.catalog.load_table(f"{stream.lake.name}__dead_letters")
    found: list[Row] = sorted(table.scan().to_arrow().to_pylist(), key=lambda one: one["offset"])
    return found


def test_a_delete_needs_no_more_than_key_and_sequence_and_a_row_needs_all(tmp_path: Path) -> None:
    stream = stream_into(tmp_path)
    take(stream, 0, {"op": "c"} | row(1, 1), {"op": "c"} | row(2, 1))
    take(
        stream, 1, {"op": "d", "id": 1, "version": 2}, {"op": "u"} | row(2, 2, "m"), {"op": "d", "id": 2, "version": 1}
    )
    assert live_rows(stream.lake) == [row(2, 2, "m")]
    with pytest.raises(WriteError, match="name"):
        take(stream, 2, {"op": "u", "id": 2, "version": 3})
    assert live_rows(stream.lake) == [row(2, 2, "m")]


def test_a_document_that_lacks_a_required_column_does_not_make_it_optional(tmp_path: Path) -> None:
    stream = stream_into(tmp_path, schema_evolution="widen")
    take(stream, 0, {"op": "c"} | row(1, 1))
    take(stream, 1, {"op": "d", "id": 1, "version": 2})
    with pytest.raises(WriteError, match=r"NULL_IN_REQUIRED.*name"):
        take(stream, 2, {"op": "c", "id": 2, "version": 1})
    assert stream.lake.table().schema().find_field("name").required


def test_a_column_that_is_not_stored_is_no_new_column(tmp_path: Path) -> None:
    stream = stream_into(tmp_path, schema_evolution="add", rescue_column="rest")
    take(stream, 0, {"op": "c", "more": "x"} | row(1, 1))
    assert live_rows(stream.lake) == [row(1, 1) | {"rest": None, "more": "x"}]
    take(stream, 1, {"op": "d", "id": 1, "version": 2})
    assert live_rows(stream.lake) == []


SOFT = NestedField(4, DELETED, BooleanType())


@pytest.mark.parametrize("evolution", ["ignore", "widen"])
def test_documents_can_say_themselves_what_soft_deletes_store(tmp_path: Path, evolution: str) -> None:
    options = {"apply_as_deletes": f"{DELETED} = 'true'", "except_column_list": DELETED, "schema_evolution": evolution}
    stream = stream_into(tmp_path, SOFT, deletes="soft", **options)
    take(stream, 0, {DELETED: False} | row(1, 1), {DELETED: False} | row(2, 1))
    take(stream, 1, {DELETED: True} | row(1, 2))
    assert live_rows(stream.lake) == [row(1, 2) | {DELETED: True}, row(2, 1) | {DELETED: False}]


@pytest.mark.parametrize("evolution", ["add", "widen", "fail"])
def test_a_key_with_the_name_of_the_column_of_soft_deletes_becomes_no_column(tmp_path: Path, evolution: str) -> None:
    stream = stream_into(tmp_path, SOFT, deletes="soft", schema_evolution=evolution)
    with pytest.raises(WriteError, match=rf"SCHEMA_MISMATCH.*: {DELETED}\.\n.*deletes='soft' fills"):
        take(stream, 0, {"op": "c", DELETED: True} | row(1, 1))


def test_a_number_or_a_boolean_is_read_as_its_text(tmp_path: Path) -> None:
    stream = stream_into(tmp_path, apply_as_deletes="op IN ('1', 'true')")
    take(stream, 0, *({"op": 0} | row(key, 1) for key in (1, 2, 3)))
    take(stream, 1, {"op": 1} | row(1, 2), {"op": True} | row(2, 2), {"op": False} | row(3, 2))
    assert live_rows(stream.lake) == [row(3, 2)]


def test_the_condition_sees_stored_columns_too(tmp_path: Path) -> None:
    gone = NestedField(4, "gone", BooleanType())
    stream = stream_into(tmp_path, gone, apply_as_deletes="gone AND op <> 'x'")
    take(stream, 0, {"op": "c", "gone": False} | row(1, 1), {"op": "c", "gone": False} | row(2, 1))
    take(stream, 1, {"op": "d", "gone": True} | row(1, 2), {"op": "x", "gone": True} | row(2, 2))
    assert live_rows(stream.lake) == [row(2, 2) | {"gone": True}]


def test_without_an_answer_of_the_condition_the_batch_fails_and_names_the_document(tmp_path: Path) -> None:
    stream = stream_into(tmp_path)
    with pytest.raises(WriteError, match=r"OPERATION_UNKNOWN.*partition 0, offset 1") as raised:
        take(stream, 0, {"op": "c"} | row(1, 1), row(2, 1), {"op": "c"} | row(3, 1))
    assert raised.value.code == "LAKESINK_OPERATION_UNKNOWN"
    assert live_rows(stream.lake) == []


def test_or_becomes_a_dead_letter_of_an_unknown_operation_like_one_that_cannot_be_read(tmp_path: Path) -> None:
    stream = stream_into(tmp_path, **QUARANTINE)
    bad = [row(2, 1), {"op": "d", "id": "x", "version": 2}, {"op": "u", "id": 5, "version": 1}]
    take(stream, 0, {"op": "c"} | row(1, 1), *bad)
    assert live_rows(stream.lake) == [row(1, 1)]
    found = letters(stream)
    assert [json.loads(one["payload"]) for one in found] == bad
    assert [(one["reason"], one["column_name"], one["operation"]) for one in found] == [
        ("OPERATION_UNKNOWN", None, "unknown"),
        ("VALUE_MALFORMED", "id", "unknown"),
        ("NULL_IN_REQUIRED", "name", "upsert"),
    ]
    assert [one["row_key"] for one in found] == ['{"id":2}', None, '{"id":5}']


def test_a_delete_is_never_judged(tmp_path: Path) -> None:
    stream = stream_into(tmp_path, expect={"named": ("name <> 'x'", "quarantine")}, max_dead_letter_ratio="1.0")
    take(stream, 0, {"op": "c"} | row(1, 1), {"op": "c"} | row(2, 1, "x"))
    take(stream, 1, {"op": "d"} | row(1, 2, "x"))
    assert live_rows(stream.lake) == []
    assert [json.loads(one["payload"])["id"] for one in letters(stream)] == [2]


@pytest.mark.parametrize(
    ("condition", "why"),
    [("upper(op) = 'D'", "upper"), ("op = 1", "STRING"), ("oops = 'd'", "there is no column oops"), ("op", "STRING")],
)
def test_a_condition_without_one_meaning_is_refused_by_its_option(tmp_path: Path, condition: str, why: str) -> None:
    with pytest.raises(SettingsError, match=rf"CONDITION_UNSUPPORTED\] The condition of apply_as_deletes .*{why}"):
        take(stream_into(tmp_path, apply_as_deletes=condition), 0, {"op": "c"} | row(1, 1))
