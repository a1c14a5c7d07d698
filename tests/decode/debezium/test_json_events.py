"""Debezium's JSON: every operation, both forms of envelopes, and documents that try to be something else."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakesink.rows.plan import BinaryEncoding
from lakesink.rows.schema import Field, ListOf, MapOf, Primitive, Struct
from lakesink_protocol.errors import WriteError
from lakesink_protocol.measures import UNKNOWN_KEYS
from lakesink_protocol.row_changes import SPLITS, TOMBSTONES
from testkit.examples import examples
from testkit.tasks import exactly
from tests.decode.debezium.events import decoded, event, table, wrapped
from tests.decode.test_exact_json import DECIMALS, NUMBERS, QUOTES, as_decimal

ID_NAME = table("name")
many = examples(12)
FORMS = {
    "bare": '{"before":null,"after":%s,"op":"c"}',
    "pretty": '{\n "op" : "c",\n "source": {"op": "d", "after": {"id": 5}},\n "after" : %s\n}\n',
    "after blanks": ' \n{"op":"c","after":%s}',
    "escaped": '{"\\u0061fter":%s,"\\u006fp":"\\u0063"}',
    "twice": '{"op":"c","op":"d","after":%s,"after":{"id":9,"c":"other"},"before":{"id":3}}',
    "text": '{"x":"\\"op\\":\\"d\\",\\"c\\": 1.5","op":"c","after":%s}',
    "wrapped": '{"schema":{"fields":[]},"payload":{"op":"c","after":%s}}',
    "with schema": json.dumps({"schema": wrapped({})["schema"]}, separators=(",", ":"))[:-1]
    + ',"payload":{"before":null,"after":%s,"op":"c"}}',
    "payload first": '{"payload": {"op":"c","after":%s}, "schema": {"fields":[], "optional": false}}',
    "schema null": '{"schema":null,"payload":{"op":"c","after":%s}}',
    "escaped wrapper": '{"\\u0070ayload":{"op":"c","after":%s},"sch\\u0065ma":{}}',
}


def in_every_form(after: str, **columns: Any) -> list[Any]:
    """The row that an event becomes in each form, or the columns that are malformed in them."""
    documents = [form.replace("%s", after) for form in FORMS.values()]
    changes, found = decoded(table(**columns), *documents, binary_encoding=BinaryEncoding.BASE64)
    assert {name for name, _, _ in changes} <= {"UPSERT"}
    return [row for _, row, _ in changes] or [one.column for one in found.misfits]


@many
@given(NUMBERS, QUOTES, DECIMALS)
@example("123456789012345678901234567890", "", (38, 18))
@example("0.30000000000000000001", "", (38, 20))
@example("1e-400", "", (9, 2))
@example("1e999999999999999999999", '"', (9, 2))
@example("-0", "", (9, 2))
def test_a_number_is_the_very_decimal_or_malformed(number: str, quote: str, size: tuple[int, int]) -> None:
    expected = as_decimal(number, *size)
    rows = in_every_form(f'{{"id": 1, "c": {quote}{number}{quote}}}', c=f"decimal({size[0]}, {size[1]})")
    assert [exactly(row) for row in rows] == [
        exactly("c" if expected == "malformed" else {"id": 1, "c": expected})
    ] * len(FORMS)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("long", "9007199254740993", 2**53 + 1),
        ("long", "-9223372036854775808", -(2**63)),
        ("long", "9223372036854775808", "malformed"),
        ("long", "1.0", "malformed"),
        ("int", "2147483648", "malformed"),
        ("double", "-0", -0.0),
        ("double", "1e400", "malformed"),
        ("string", "0.10000000000000000000000001", "0.10000000000000000000000001"),
        ("string", '"\\u0000\\ud83d\\ude00"', "\0\U0001f600"),
        ("string", '{"a": 1.50000000000000000000, "b": [ 1 ]}', '{"a":1.50000000000000000000,"b":[1]}'),
        ("boolean", "1", "malformed"),
        ("date", '"2024-02-30"', "malformed"),
        ("binary", '"AAE="', b"\0\1"),
    ],
)
def test_columns_follow_the_rules_for_json_in_every_form(kind: str, value: str, expected: Any) -> None:
    rows = in_every_form(f'{{"id": 1, "c": {value}}}', c=kind)
    wanted = exactly("c" if expected == "malformed" else {"id": 1, "c": expected})
    assert [exactly(row) for row in rows] == [wanted] * len(FORMS)


def test_nested_columns_keep_their_digits() -> None:
    price = Struct((Field(11, "price", required=False, type=Primitive("decimal(38, 20)")),))
    columns = {
        "lines": ListOf(Field(12, "element", required=False, type=price)),
        "tags": MapOf(
            Field(13, "key", required=True, type=Primitive("string")),
            Field(14, "value", required=False, type=Primitive("string")),
        ),
    }
    after = '{"id": 1, "lines": [{"price": 0.10000000000000000001}], "tags": {"a": 1.10}}'
    for row in in_every_form(after, **columns):
        assert [str(one["price"]) for one in row["lines"]] == ["0.10000000000000000001"]
        assert row["tags"] == [("a", "1.10")]


def test_every_operation_becomes_its_change() -> None:
    changes, found = decoded(
        ID_NAME,
        event("r", {"id": 1, "name": "loaded"}),
        event("c", {"id": 2, "name": "created"}),
        event("u", {"id": 2, "name": "updated"}, {"id": 2, "name": "created"}),
        event("u", {"id": 2, "name": "again"}),
        event("d", None, {"id": 1, "name": "loaded"}),
        None,
        event("m"),
        "null",
        event("u", {"id": 3, "name": "again"}, {"id": 2, "name": "again"}),
    )
    assert changes == [
        ("SNAPSHOT", {"id": 1, "name": "loaded"}, 0),
        ("UPSERT", {"id": 2, "name": "created"}, 1),
        ("UPSERT", {"id": 2, "name": "updated"}, 2),
        ("UPSERT", {"id": 2, "name": "again"}, 3),
        ("DELETE", {"id": 1, "name": None}, 4),
        ("DELETE", {"id": 2, "name": None}, 8),
        ("UPSERT", {"id": 3, "name": "again"}, 8),
    ]
    assert (found.changed, found.malformed) == ({SPLITS: 1, TOMBSTONES: 3}, 0)


def test_a_tombstone_in_a_wrapper_is_no_change() -> None:
    changes, found = decoded(ID_NAME, wrapped(None), '{"payload": null, "schema": null}')
    assert (changes, found.changed) == ([], {TOMBSTONES: 2})


def test_a_delete_has_the_sequence_of_the_row_before_and_a_split_that_of_the_event() -> None:
    columns = table("name", version="long", _kafka_offset="long")
    changes, _ = decoded(
        columns,
        event("d", None, {"id": 1, "name": "a", "version": 5}),
        event("u", {"id": 3, "version": 8}, {"id": 2, "version": 7}),
        sequence=["version", "_kafka_offset"],
    )
    assert changes == [
        ("DELETE", {"id": 1, "version": 5, "_kafka_offset": 0, "name": None}, 0),
        ("DELETE", {"id": 2, "version": 8, "_kafka_offset": 1, "name": None}, 1),
        ("UPSERT", {"id": 3, "version": 8, "_kafka_offset": 1, "name": None}, 1),
    ]


def test_a_soft_delete_keeps_the_row_before() -> None:
    columns = table("name", _is_deleted="boolean")
    changes, _ = decoded(columns, event("d", None, {"id": 1, "name": "a"}), soft_deletes=True)
    assert changes == [("DELETE", {"id": 1, "name": "a"}, 0)]


def test_a_key_of_several_columns_changes_with_any_of_them() -> None:
    columns = table("note", key=["id", "region"], region="string")
    rows = [{"id": 1, "region": "eu"}, {"id": 1, "region": "us"}, {"id": 2, "region": "us"}]
    changes, found = decoded(
        columns,
        event("u", rows[1], rows[0]),
        event("u", rows[1], rows[1]),
        event("u", rows[2], rows[1]),
        key=["region", "id"],
    )
    assert [name for name, _, _ in changes] == ["DELETE", "UPSERT", "UPSERT", "DELETE", "UPSERT"]
    assert found.changed == {SPLITS: 2}


@pytest.mark.parametrize(
    "key", [{"id": 7}, {"schema": {"fields": [{"field": "id", "type": "int64"}]}, "payload": {"id": 7}}]
)
def test_a_key_that_the_row_before_lacks_is_that_of_the_message(key: Any) -> None:
    documents = [event("d"), event("d", None, {"name": "x"}), event("u", {"id": 7}, {"name": "x"}), event("d")]
    changes, found = decoded(ID_NAME, *documents, keys=[key] * 3 + ['{"id": 8, "payload": {"id": 9}}'])
    assert [(name, row["id"]) for name, row, _ in changes] == [
        ("DELETE", 7),
        ("DELETE", 7),
        ("UPSERT", 7),
        ("DELETE", 8),
    ]
    assert not found.changed[SPLITS]


@pytest.mark.parametrize("key", [None, b"\xff", "7", '"text"', "[7]", {"other": 7}, {"id": None}, {"id": "x"}])
@pytest.mark.parametrize("lacking", [event("d"), event("d", None, {"name": "a"}), event("u", {"id": 1}, {"name": "a"})])
def test_an_event_without_a_whole_key_is_refused_with_the_setting_of_the_database(lacking: Any, key: Any) -> None:
    with pytest.raises(WriteError, match="LAKESINK_KEY_MISSING") as refused:
        decoded(ID_NAME, event("c", {"id": 1}), lacking, keys=[None, key])
    assert "topic shop.public.orders, partition 2, offset 1" in str(refused.value)
    assert "REPLICA IDENTITY FULL" in str(refused.value)


def test_a_truncate_is_refused_with_its_place() -> None:
    with pytest.raises(WriteError, match=r"LAKESINK_TRUNCATE.*offset 1") as refused:
        decoded(ID_NAME, event("c", {"id": 1}), event("t"))
    assert "skipped.operations=t" in str(refused.value)


@pytest.mark.parametrize(
    "document",
    [
        event("x", {"id": 1}),
        event("C", {"id": 1}),
        event("", {"id": 1}),
        {"id": 1, "name": "flattened", "__deleted": "false"},
        {"source": {"op": "c"}, "after": {"id": 1}},
        {"op": {"op": "c"}, "after": {"id": 1}},
        {"op": ["c"], "after": {"id": 1}},
        {"op": None, "after": {"id": 1}},
        {"payload": event("c", {"id": 1})},
        wrapped({"id": 1}),
        wrapped(wrapped(event("c", {"id": 1}))),
        wrapped([event("c", {"id": 1})]) | {"schema": 1},
        {"ts_ms": 1_700_000_000_000},
        {},
    ],
)
def test_a_document_without_a_known_operation_is_refused(document: Any) -> None:
    with pytest.raises(WriteError, match=r"LAKESINK_(OPERATION_UNKNOWN|VALUE_MALFORMED)") as refused:
        _refused(document)
    assert "offset 1" in str(refused.value)


def _refused(document: Any) -> None:
    changes, found = decoded(ID_NAME, event("c", {"id": 1}), document)
    assert changes == []
    assert found.malformed
    raise WriteError("VALUE_MALFORMED", found.misfits[0].place, action="")


DEEP = '{"op":"c","after":{"id":1,"name":' + "[" * 5000 + "]" * 5000 + "}}"


@pytest.mark.parametrize(
    ("document", "column"),
    [
        (b"\xff{}", ""),
        (b'{"op":"c","after":{"id":1,"name":"\xff"}}', ""),
        ('{"op":"c","after":{"id":1}', ""),
        ('{"op":"c","after":{"id":1}} {"op":"d"}', ""),
        ('{"schema":{},"payload":{"op":"c","after":{"id":1}}', ""),
        ('{"schema":{"fields":[]},"payload":{"op":"c","after":{"id":1}},"payload":{}', ""),
        ('{"schema":{"fields":[],"payload":{"op":"c","after":{"id":1}}}', ""),
        ("[]", ""),
        ("7", ""),
        ("", ""),
        (event("c"), "after"),
        (event("c", []), "after"),
        (event("c", json.dumps({"id": 1})), "after"),
        (event("c", {"name": "a"}), "id"),
        (event("c", {"id": None}), "id"),
        (event("c", {"id": 10**30}), "id"),
        (event("d", None, {"id": "x"}), "id"),
        (event("u", {"id": 1}, {"id": 1.5}), "id"),
    ],
)
def test_a_malformed_document_names_its_column_and_lets_nothing_through(document: Any, column: str) -> None:
    changes, found = decoded(ID_NAME, event("c", {"id": 1}), document)
    assert changes == []
    assert found.malformed
    [misfit] = found.misfits
    assert (misfit.place, misfit.column) == ("topic shop.public.orders, partition 2, offset 1", column)


def test_a_row_before_that_needs_no_column_may_be_anything() -> None:
    changes, _ = decoded(ID_NAME, event("c", {"id": 1}, "nonsense"), event("r", {"id": 2}, {"id": "x"}))
    assert [row["id"] for _, row, _ in changes] == [1, 2]


def test_a_deep_document_is_read_or_malformed_and_never_ends_the_task() -> None:
    changes, found = decoded(ID_NAME, event("c", {"id": 2}), DEEP)
    assert found.malformed == 1 or len(changes) == 2


def test_columns_with_numbers_as_names_are_not_items_of_an_array() -> None:
    columns = table(key=["0"])
    changes, _ = decoded(columns, '{"op":"c","after":{"0":5}}', key=["0"])
    assert [row for _, row, _ in changes] == [{"0": 5}]
    _, found = decoded(columns, '{"op":"c","after":[5]}', key=["0"])
    assert found.malformed == 1


def test_columns_with_signs_in_their_names_are_found() -> None:
    columns = table("a/b", "a~1b", "it's", 'quo"te')
    row = {"id": 1, "a/b": "1", "a~1b": "2", "it's": "3", 'quo"te': "4"}
    changes, _ = decoded(columns, event("c", row))
    assert changes == [("UPSERT", row, 0)]


def test_a_value_that_debezium_could_not_read_never_becomes_a_value() -> None:
    placeholder = "__debezium_unavailable_value"
    columns = table("name", raw="binary", tags=ListOf(Field(9, "element", required=False, type=Primitive("string"))))
    encoded = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
    for bad in ({"name": placeholder}, {"raw": encoded}, {"tags": ["a", placeholder]}):
        changes, found = decoded(columns, event("u", {"id": 1, **bad}))
        assert changes == []
        assert "REPLICA IDENTITY FULL" in found.misfits[0].expected
    changes, _ = decoded(columns, event("u", {"id": 1, "name": f"{placeholder}s", "tags": [placeholder[:-1]]}))
    assert len(changes) == 1


def test_keys_without_a_column_are_counted_once_and_only_in_the_row_after() -> None:
    _, found = decoded(
        ID_NAME, event("u", {"id": 1, "new": 5}, {"id": 1, "old": 5}), event("d", None, {"id": 1, "x": 1})
    )
    assert (found.quality.counts[UNKNOWN_KEYS], found.quality.unknown_names) == (1, ("new",))


@many
@given(st.lists(st.sampled_from(["c", "u", "k", "d", "n", "m", "r"]), max_size=60))
def test_every_row_and_split_is_a_change_or_a_tombstone(kinds: list[str]) -> None:
    documents = {
        "c": event("c", {"id": 1}),
        "u": event("u", {"id": 1}, {"id": 1}),
        "k": wrapped(event("u", {"id": 2}, {"id": 1})),
        "d": event("d", None, {"id": 2}),
        "n": None,
        "m": event("m"),
        "r": wrapped(event("r", {"id": 9}), id={"type": "int64"}),
    }
    changes, found = decoded(ID_NAME, *(documents[kind] for kind in kinds))
    assert len(kinds) + found.changed[SPLITS] == len(changes) + found.changed[TOMBSTONES]
    assert [offset for _, _, offset in changes] == sorted(offset for _, _, offset in changes)
