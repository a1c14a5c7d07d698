"""JSON documents become the table's rows exactly, or are told of; none vanishes or is judged by its neighbours."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField

from lakesink.decode.documents import check_documents
from lakesink.decode.json_values import JsonReader
from lakesink.rows.plan import BinaryEncoding, OnMalformed, WritePlan
from lakesink.rows.schema import Field, ListOf, MapOf, Primitive, Struct, Type, parse_schema
from lakesink_protocol.errors import WriteError
from testkit.examples import examples
from testkit.tasks import plan_for, rows_of, write
from tests.decode.debezium.events import decoded, table

MALFORMED = "malformed"
READER = JsonReader(encoding=BinaryEncoding.BASE64)


def one(kind: Type, value: str) -> Any:
    """A document with one column, decoded."""
    parsed = READER.read(pa.array([f'{{"c": {value}}}']), Struct((Field(1, "c", required=False, type=kind),)))
    wrong = parsed.misfits is not None and parsed.misfits[0].as_py()
    return MALFORMED if wrong else parsed.values[0]["c"].as_py()


EXACT = [
    ("int", "7", 7),
    ("int", "-2147483648", -(2**31)),
    ("int", "2147483648", MALFORMED),
    ("int", "1.5", MALFORMED),
    ("int", "1.0", MALFORMED),
    ("int", "1e2", MALFORMED),
    ("int", "true", MALFORMED),
    ("int", '"7"', 7),
    ("int", '"0x7"', MALFORMED),
    ("int", '"seven"', MALFORMED),
    ("int", '""', MALFORMED),
    ("int", "[7]", MALFORMED),
    ("int", "null", None),
    ("long", "9223372036854775807", 2**63 - 1),
    ("long", "9223372036854775808", MALFORMED),
    ("boolean", "true", True),
    ("boolean", "false", False),
    ("boolean", "1", MALFORMED),
    ("boolean", '"yes"', MALFORMED),
    ("double", "1.5", 1.5),
    ("double", "7", 7.0),
    ("double", "1e400", MALFORMED),
    ("double", "NaN", float("nan")),
    ("double", '"nan(12)"', MALFORMED),
    ("float", '"nan(12)"', MALFORMED),
    ("double", '"Infinity"', float("inf")),
    ("double", "true", MALFORMED),
    ("double", '"x"', MALFORMED),
    ("float", "0.1", 0.10000000149011612),
    ("float", "1e39", MALFORMED),
    ("decimal(9, 2)", "12.34", Decimal("12.34")),
    ("decimal(9, 2)", '"12.340"', Decimal("12.34")),
    ("decimal(9, 2)", "12.345", MALFORMED),
    ("decimal(9, 2)", "1e9", MALFORMED),
    ("decimal(9, 2)", "true", MALFORMED),
    ("decimal(38, 0)", "123456789012345678901234567890", Decimal(123456789012345678901234567890)),
    ("date", '"2024-02-29"', date(2024, 2, 29)),
    ("date", '"2023-02-29"', MALFORMED),
    ("date", "19000", MALFORMED),
    ("date", '"2024-02-29T00:00:00"', MALFORMED),
    ("time", '"23:59:59.5"', time(23, 59, 59, 500_000)),
    ("time", '"24:00:00"', MALFORMED),
    ("timestamp", '"2024-02-29T12:00:00.000001"', datetime(2024, 2, 29, 12, 0, 0, 1)),  # noqa: DTZ001 - of a column without a zone
    ("timestamp", '"2024-02-29T12:00:00Z"', MALFORMED),
    ("timestamp", '"2024-02-29T12:00:00.000000001"', MALFORMED),
    ("timestamp", "1709208000", MALFORMED),
    ("timestamp", '"infinity"', MALFORMED),
    ("timestamptz", '"2024-02-29T13:00:00+01:00"', datetime(2024, 2, 29, 12, tzinfo=ZoneInfo("UTC"))),
    ("timestamptz", '"2024-02-29T12:00:00"', MALFORMED),
    ("string", '"x"', "x"),
    ("string", "7", "7"),
    ("string", '{"a": [1, null]}', '{"a":[1,null]}'),
    ("string", '"\\u00e9"', "é"),
    ("uuid", '"00000000-0000-0000-0000-00000000000f"', bytes(15) + b"\x0f"),
    ("uuid", '"0000000000000000000000000000000f"', MALFORMED),
    ("binary", '"AAE="', b"\0\1"),
    ("binary", '"AAE"', MALFORMED),
    ("binary", "1234", MALFORMED),
    ("binary", "true", MALFORMED),
    ("binary", '"\\/w=="', b"\xff"),
    ("fixed[2]", '"AAE="', b"\0\1"),
    ("fixed[3]", '"AAE="', MALFORMED),
]


@pytest.mark.parametrize(("kind", "value", "expected"), EXACT, ids=lambda part: str(part)[:40])
def test_a_scalar_fits_its_type_exactly_or_is_malformed(kind: str, value: str, expected: Any) -> None:
    assert repr(one(Primitive(kind), value)) == repr(expected)


@pytest.mark.parametrize(
    "name", ["", "/", "a/b", "~", "~1", "a~0b", "it's", '"', "$", "$.a", "*", "0", "-", "\\u0041", "ä", "C"]
)
def test_a_key_is_found_by_its_very_name(name: str) -> None:
    kinds: dict[str, Type] = {
        name: Primitive("int"),
        "c": Primitive("string"),
        "nested": ListOf(optional(9, "element", Primitive("int"))),
    }
    struct = Struct(tuple(optional(number, each, kind) for number, (each, kind) in enumerate(kinds.items(), 1)))
    document = {"c": "null", "nested": [1, 2], "A": 3, name: 7}
    parsed = READER.read(pa.array([json.dumps(document), "{}"]), struct)
    assert parsed.misfits is None
    assert parsed.values.to_pylist() == [{name: 7, "c": "null", "nested": [1, 2]}, dict.fromkeys(kinds)]


def optional(number: int, name: str, kind: Type) -> Field:
    return Field(number, name, required=False, type=kind)


POINT = Struct((optional(10, "x", Primitive("int")), optional(11, "y", Primitive("int"))))
LIST = ListOf(optional(12, "element", POINT))
MAP = MapOf(Field(13, "key", required=True, type=Primitive("string")), optional(14, "value", POINT))


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (POINT, '{"x": 1, "other": 2}', {"x": 1, "y": None}),
        (POINT, '"text"', MALFORMED),
        (POINT, "[1, 2]", MALFORMED),
        (POINT, '{"x": "no"}', MALFORMED),
        (LIST, '[{"x": 1}, null, {}]', [{"x": 1, "y": None}, None, {"x": None, "y": None}]),
        (LIST, "[]", []),
        (LIST, '{"x": 1}', MALFORMED),
        (LIST, '[{"x": 1}, {"x": 1.5}]', MALFORMED),
        (LIST, "[1]", MALFORMED),
        (MAP, '{"a": {"x": 1}, "b": null}', [("a", {"x": 1, "y": None}), ("b", None)]),
        (MAP, '{"a": {"x": 1}, "a": {"x": 2}}', MALFORMED),
        (MAP, '{"a": 1}', MALFORMED),
        (MAP, "[]", MALFORMED),
        (MAP, "null", None),
    ],
)
def test_every_level_of_what_is_nested_is_checked(kind: Type, value: str, expected: Any) -> None:
    assert one(kind, value) == expected


COLUMNS = Struct(
    (
        optional(1, "id", Primitive("long")),
        optional(2, "point", POINT),
        optional(20, "points", LIST),
        optional(30, "by_name", MAP),
    )
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats(allow_nan=False) | st.text(max_size=3)
VALUES = st.recursive(
    SCALARS,
    lambda below: st.lists(below, max_size=2) | st.dictionaries(st.sampled_from(["x", "y", "a"]), below, max_size=2),
    max_leaves=6,
)
DOCUMENTS = (
    st.none()
    | st.text(max_size=4)
    | st.dictionaries(st.sampled_from(["id", "point", "points", "by_name", "other"]), VALUES, max_size=4).map(
        json.dumps
    )
)


@examples(15)
@given(st.lists(DOCUMENTS, min_size=1, max_size=12))
def test_no_document_is_judged_by_its_neighbours(documents: list[str | None]) -> None:
    def judged(texts: list[str | None]) -> list[tuple[bool, Any]]:
        parsed = READER.read(pa.array(texts, pa.string()), COLUMNS)
        misfits = [False] * len(texts) if parsed.misfits is None else parsed.misfits.to_pylist()
        values = parsed.values.to_pylist()
        return [(wrong, None if wrong else value) for wrong, value in zip(misfits, values, strict=True)]

    assert judged(documents) == [verdict for document in documents for verdict in judged([document])]


@pytest.mark.parametrize("malformed", ['{"c": "%s"} {', '{"c": %s}', '{"c": "%s'])
@pytest.mark.parametrize("character", ["\u00e9", "\u20ac", "\U0001f600"])
def test_a_malformed_document_is_found_wherever_the_error_of_duckdb_cuts_its_characters(
    malformed: str, character: str
) -> None:
    table = Struct((optional(1, "c", Primitive("string")), optional(2, "points", LIST)))
    for start in range(4):
        for length in (1, 15, 36, 64, 113):
            document = malformed % ("a" * start + character * length)
            parsed = READER.documents(pa.array([b'{"c": "before"}', document.encode(), b'{"c": "after"}']), table)
            assert parsed.misfits is not None
            assert parsed.misfits.to_pylist() == [False, True, False]
            assert parsed.values.field("c").to_pylist() == ["before", None, "after"]


def test_a_task_counts_a_malformed_document_of_long_characters(tmp_path: Path) -> None:
    documents = [('{"id": "' + "\u20ac" * length).encode() for length in range(1, 80)]
    receipt = write(decoding(tmp_path), [kafka(b'{"id": 1}', *documents)])
    assert (receipt.malformed, receipt.refused) == (len(documents), True)


# A task's rows


EVENTS = Schema(NestedField(1, "id", LongType()), NestedField(2, "_kafka_offset", LongType()))


def map_by(kind: str, number: int = 7) -> MapOf:
    key = Field(number, "key", required=True, type=Primitive(kind))
    return MapOf(key, optional(number + 1, "value", Primitive("long")))


HOLDERS: list[tuple[Callable[[MapOf], Type], str]] = [
    (lambda found: found, "%s"),
    (lambda found: ListOf(optional(20, "element", found)), "[%s]"),
    (lambda found: Struct((optional(20, "m", found),)), '{"m": %s}'),
]
ONE_UUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
BAD_KEYS = [
    ("int", '{"x": 1}'),
    ("uuid", '{"x": 1}'),
    ("date", '{"x": 1}'),
    ("boolean", '{"x": 1}'),
    ("decimal(9, 2)", '{"1.001": 1}'),
    ("binary", '{"A": 1}'),
    ("fixed[3]", '{"AA==": 1}'),
    ("string", '{"1": 1, "1": 2}'),
    ("int", '{"1": 10, "01": 20}'),
    ("decimal(9, 2)", '{"1.0": 1, "1.00": 2}'),
    ("double", '{"1": 1, "1.0": 2}'),
    ("double", '{"0.0": 1, "-0.0": 2}'),
    ("double", '{"NaN": 1, "nan": 2}'),
    ("time", '{"12:00": 1, "12:00:00": 2}'),
    ("timestamptz", '{"2024-01-01T00:00:00Z": 1, "2024-01-01T01:00:00+01:00": 2}'),
    ("uuid", f'{{"{ONE_UUID}": 1, "{ONE_UUID.upper()}": 2}}'),
]


@pytest.mark.parametrize(("holder", "text"), HOLDERS)
@pytest.mark.parametrize(("kind", "value"), BAD_KEYS)
def test_a_map_whose_keys_do_not_fit_or_are_one_key_is_malformed_alone(
    kind: str, value: str, holder: Callable[[MapOf], Type], text: str
) -> None:
    table = Struct((optional(1, "c", holder(map_by(kind))),))
    parsed = READER.documents(pa.array([b'{"c": null}', f'{{"c": {text % value}}}'.encode(), b"{}"]), table)
    parsed.values.validate(full=True)
    assert parsed.misfits is not None
    assert parsed.misfits.to_pylist() == [False, True, False]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("binary", '{"AAAA": 1, "": 2}', [(bytes(3), 1), (b"", 2)]),
        ("fixed[3]", '{"AAAA": 1}', [(bytes(3), 1)]),
        ("int", '{"1": 1, "2": 1}', [(1, 1), (2, 1)]),
        ("boolean", '{"true": 1, "false": 2}', [(True, 1), (False, 2)]),
        ("date", '{"2024-02-29": 1}', [(date(2024, 2, 29), 1)]),
    ],
)
def test_a_key_of_a_map_is_read_as_a_value_in_quotes_is(kind: str, value: str, expected: Any) -> None:
    assert one(map_by(kind), value) == expected


def test_a_map_with_one_key_in_two_spellings_is_named_as_such() -> None:
    table = Struct((optional(1, "c", map_by("int")),))
    [[found]] = READER.explain(pa.array([b'{"c": {"1": 10, "01": 20}}']), table)
    assert (found.column, found.expected, found.kind) == ("c", "MAP", "an object with two spellings of one key")


def test_two_maps_of_one_column_may_have_the_same_key() -> None:
    table = Struct((optional(1, "c", map_by("int")),))
    documents = pa.array([b'{"c": {"1": 1}}', b'{"c": {"01": 2}}', b'{"c": {"1": 3, "2": 4}}'])
    assert READER.documents(documents, table).misfits is None


def test_a_map_with_a_key_that_does_not_fit_is_malformed_and_its_neighbours_are_not() -> None:
    table = Struct((optional(1, "m", map_by("int")),))
    parsed = READER.documents(pa.array([b'{"m": {"x": 1}}', b'{"m": {"1": 1, "01": 2}}', b'{"m": {"7": 1}}']), table)
    assert parsed.misfits is not None
    assert parsed.misfits.to_pylist() == [True, True, False]


def kafka(*documents: bytes | None) -> pa.RecordBatch:
    count = len(documents)
    columns = {"value": pa.array(documents, pa.binary()), "partition": pa.array([3] * count, pa.int32())}
    return pa.RecordBatch.from_pydict(columns | {"offset": pa.array(range(100, 100 + count), pa.int64())})


def decoding(folder: Path, on_malformed: OnMalformed = OnMalformed.FAIL) -> WritePlan:
    return plan_for(EVENTS, folder, decode="json", on_malformed=on_malformed)


def test_rows_bear_kafka_s_position_where_the_table_has_a_column_for_it(tmp_path: Path) -> None:
    receipt = write(decoding(tmp_path), [kafka(b'{"id": 1}', b'{"id": 2}')])
    assert rows_of(receipt.files) == [{"id": 1, "_kafka_offset": 100}, {"id": 2, "_kafka_offset": 101}]


def test_a_table_that_has_nothing_of_a_document_is_refused_before_any_job(tmp_path: Path) -> None:
    nothing_of_it = Struct((Field(2, "_kafka_offset", required=False, type=Primitive("long")),))
    with pytest.raises(WriteError, match="none for the documents") as refused:
        check_documents(kafka(b"{}").schema, nothing_of_it, plan_for(EVENTS, tmp_path, decode="json"))
    assert refused.value.code == "LAKESINK_SCHEMA_MISMATCH"


@pytest.mark.parametrize("values", [["p1"], [date(2024, 1, 1)], [{"a": 1}], [1.5], [2**40]], ids=repr)
def test_a_column_that_cannot_be_kafka_s_is_refused_before_any_job_by_its_name_in_the_query(
    tmp_path: Path, values: list[Any]
) -> None:
    table = Schema(NestedField(1, "id", LongType()), NestedField(2, "_kafka_partition", IntegerType()))
    rows = pa.schema([("value", pa.binary()), ("partition", pa.array(values).type)])
    plan = plan_for(table, tmp_path, decode="json")
    with pytest.raises(
        WriteError, match=r"Column 'partition' is .* in the query, but the table's '_kafka_partition' is INT"
    ):
        check_documents(rows, parse_schema(plan.schema_json), plan)


def test_a_malformed_document_is_named_by_whatever_its_columns_of_places_hold(tmp_path: Path) -> None:
    batch = kafka(b"{")
    for column in (pa.array([{"a": 1}]), pa.array([7]), pa.array([date(2024, 1, 1)]), pa.array([b"\xff"])):
        rows = pa.RecordBatch.from_pydict({"value": batch.column("value"), "file_path": column, "partition": column})
        receipt = write(plan_for(Schema(NestedField(1, "id", LongType())), tmp_path, decode="json"), [rows, rows])
        assert receipt.refused
        assert len(receipt.misfits) == 2


BAD = [None, b"", b"  ", b"{", b"[1]", b"null", b'"text"', b"\xff", b'{"id": 1} {"id": 2}', b'{"id": 1.5}']


KINDS = [
    ("", "no value (NULL)"), ("", "blank text"), ("", "blank text"), ("", "text of 1 character that is not JSON"),
    ("", "an array of 1 element"), ("", "null"), ("", "text of 4 characters"), ("", "1 byte, not UTF-8"),
    ("", "text of 19 characters that is not JSON"), ("id", "a fraction of 2 digits"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "kind"), list(zip(BAD, KINDS, strict=True)))
def test_a_task_votes_against_a_malformed_document_and_tells_where_it_is_and_what_it_holds(
    tmp_path: Path, bad: bytes | None, kind: tuple[str, str]
) -> None:
    good = b'{"id": 1}'
    receipt = write(decoding(tmp_path), [kafka(good, good), kafka(good, bad, good)])
    [misfit] = receipt.misfits
    assert misfit.place == "partition 3, offset 101"
    assert (misfit.column, misfit.found) == kind
    assert misfit.expected == ("BIGINT" if misfit.column else "a JSON object")
    assert (receipt.refused, receipt.rows, receipt.files) == (True, 5, ())
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_task_tells_of_twenty_malformed_values_at_once_and_no_value_leaves_it(tmp_path: Path) -> None:
    bad = [f'{{"id": "secret-{number}"}}'.encode() for number in range(50)]
    receipt = write(decoding(tmp_path), [kafka(b'{"id": 1}', *bad)])
    assert [misfit.place for misfit in receipt.misfits] == [f"partition 3, offset {101 + n}" for n in range(20)]
    assert {misfit.found for misfit in receipt.misfits} == {"text of 8 characters", "text of 9 characters"}
    assert "secret" not in repr(receipt)


def test_a_value_is_shown_only_where_the_user_asked_for_it_cut_and_safe_to_print(tmp_path: Path) -> None:
    plan = replace(decoding(tmp_path), show_values=True)
    receipt = write(plan, [kafka(json.dumps({"id": "\x1b[2J" + "x" * 100}).encode())])
    [misfit] = receipt.misfits
    assert misfit.found == 'text of 104 characters: "\\u001b[2J' + "x" * 50


def test_a_document_of_a_file_is_found_again_by_its_file_and_row(tmp_path: Path) -> None:
    values = [b'{"id": 1}', b"bad", b'{"id": 2}', b"bad", b'{"id": 3}', b"bad"]
    files = ["file:///a.json"] * 2 + ["file:///b.json"] * 4
    batch = pa.RecordBatch.from_pydict(
        {
            "value": pa.array(values, pa.binary()),
            "offset": pa.array(range(6), pa.int64()),
            "file_path": pa.array(files),
        }
    )
    receipt = write(decoding(tmp_path), [batch.slice(0, 3), batch.slice(3)])
    assert [misfit.place for misfit in receipt.misfits] == [
        "file:///a.json, row 2", "file:///b.json, row 2", "file:///b.json, row 4",
    ]  # fmt: skip


NESTED = Struct(
    (
        Field(1, "customer", required=False, type=Struct((Field(2, "age", required=False, type=Primitive("int")),))),
        Field(3, "lines", required=False, type=ListOf(
            Field(4, "element", required=False, type=Struct((
                Field(5, "price", required=False, type=Primitive("decimal(9, 2)")),
                Field(6, "at", required=False, type=Primitive("timestamptz")),
            ))),
        )),
        Field(7, "tags", required=False, type=MapOf(
            Field(8, "key", required=True, type=Primitive("string")),
            Field(9, "value", required=False, type=Primitive("boolean")),
        )),
    )
)  # fmt: skip
BELOW = [
    ('{"customer": {"age": "old"}}', [("customer.age", "INT", "text of 3 characters")]),
    ('{"customer": [1, 2]}', [("customer", "STRUCT", "an array of 2 elements")]),
    ('{"customer": 7}', [("customer", "STRUCT", "a whole number of 1 digit")]),
    ('{"lines": [{"price": 1.5}, {"price": 1.555}]}', [("lines[1].price", "DECIMAL(9,2)", "a fraction of 4 digits")]),
    ('{"lines": [{"at": "2024-02-29T12:00:00"}]}', [("lines[0].at", "TIMESTAMP", "text of 19 characters")]),
    ('{"lines": [7]}', [("lines[0]", "STRUCT", "a whole number of 1 digit")]),
    ('{"lines": {"price": 1}}', [("lines", "ARRAY", "an object of 1 key")]),
    ('{"tags": {"a": true, "b": 2}}', [("tags{}", "BOOLEAN", "a whole number of 1 digit")]),
    ('{"tags": {"a": true, "a": false}}', [("tags", "MAP", "an object with a duplicate key")]),
    ('{"tags": false, "customer": {"age": true}}',
     [("customer.age", "INT", "true or false"), ("tags", "MAP", "true or false")]),
]  # fmt: skip


@pytest.mark.parametrize(("document", "expected"), BELOW)
def test_a_misfit_is_named_by_its_whole_path_at_any_depth(document: str, expected: list[tuple[str, str, str]]) -> None:
    [found] = READER.explain(pa.array([document.encode()]), NESTED)
    assert [(one.column, one.expected, one.kind) for one in found] == expected


def test_a_document_that_cannot_be_opened_is_blamed_itself_and_no_column_that_fits() -> None:
    document = b'{"customer": {"age": 7}, "other": "\\ud800"}'
    [[found]] = READER.explain(pa.array([document]), NESTED)
    assert (found.column, found.expected) == ("", "a JSON object")
    assert found.kind == "JSON with half of a surrogate pair in a text"


@pytest.mark.parametrize("deep", ["[" * 20_000 + "]" * 20_000, '{"a":' * 20_000 + "1" + "}" * 20_000])
def test_a_malformed_document_of_many_levels_is_not_called_other_than_json(deep: str) -> None:
    columns = Struct((optional(1, "id", Primitive("int")),))
    [[found]] = JsonReader().explain(pa.array([f'{{"id":"x","deep":{deep}}}'.encode()]), columns)
    assert found.kind.endswith("characters with too many levels to name one")
    _, events = decoded(table(), f'{{"op":"c","after":{{"id":"x","deep":{deep}}}}}')
    assert [one.found.endswith("with too many levels to name one") for one in events.misfits] == [True]


def test_a_number_among_texts_of_bytes_is_blamed_though_its_digits_are_base64() -> None:
    table = Struct((optional(1, "c", ListOf(optional(2, "element", Primitive("binary")))),))
    [[found]] = READER.explain(pa.array([b'{"c": ["AAAA", 1234]}']), table)
    assert (found.column, found.kind) == ("c[1]", "a whole number of 4 digits")


def required(number: int, name: str, kind: Type) -> Field:
    return Field(number, name, required=True, type=kind)


REQUIRING = Struct(
    (
        required(1, "id", Primitive("long")),
        optional(2, "s", Struct((required(3, "x", Primitive("date")), optional(4, "y", Primitive("int"))))),
        optional(5, "l", ListOf(required(6, "element", Primitive("int")))),
        optional(7, "m", MapOf(required(8, "key", Primitive("string")), required(9, "value", Primitive("int")))),
    )
)


@pytest.mark.parametrize(
    ("document", "column", "expected", "kind"),
    [
        ("{}", "id", "BIGINT", "no value"),
        ('{"id": null}', "id", "BIGINT", "null"),
        ('{"id": 1, "s": {"y": 1}}', "s.x", "DATE", "no value"),
        ('{"id": 1, "l": [1, null]}', "l[1]", "INT", "null"),
        ('{"id": 1, "m": {"a": 1, "b": null}}', "m{}", "INT", "null"),
    ],
)
def test_a_value_that_a_column_requires_and_a_document_lacks_is_malformed_and_named(
    document: str, column: str, expected: str, kind: str
) -> None:
    documents = pa.array([b'{"id": 1, "s": null}', document.encode(), b'{"id": 1, "l": []}'])
    misfits = READER.documents(documents, REQUIRING).misfits
    assert misfits is not None
    assert misfits.to_pylist() == [False, True, False]
    [[found]] = READER.explain(documents[1:2], REQUIRING)
    assert (found.column, found.expected, found.kind) == (column, expected, kind)


def test_a_document_that_lacks_a_required_value_is_told_by_its_place(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True))
    receipt = write(plan_for(schema, tmp_path, decode="json"), [kafka(b'{"id": 1}', b"{}")])
    assert [(one.place, one.column, one.found) for one in receipt.misfits] == [
        ("partition 3, offset 101", "id", "no value")
    ]
