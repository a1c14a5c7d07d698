"""What a row of an event does not hold is in the rescue column, and a key or sequence that does not fit never is."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesink.decode.rescue import LARGEST_REST_BYTES
from lakesink.rows.plan import DEBEZIUM_AVRO
from lakesink.rows.schema import Field, ListOf, Primitive, Struct
from lakesink_protocol.measures import RESCUED_ROWS, UNKNOWN_KEYS, UNREAD_BEFORE
from testkit.examples import examples
from tests.decode.avro.messages import encoded, message, without_meaning
from tests.decode.debezium.events import Change, Row, decoded, event, table, wrapped
from tests.decode.debezium.test_avro_events import schema_of

RESCUE = "_rescued"
TYPES = {"id": {"type": "int64"}, "version": {"type": "int64"}, "size": {"type": "int32"}, "note": {"type": "string"}}
TYPES["more"] = {"type": "string"}
VALUE = st.none() | st.sampled_from([1, 2**31, 2**63, 1.5, "x", "7", True, [1], {"a": None}])
FIELDS = (("id", "long"), ("version", ["null", "long"]), ("size", ["null", "long"]), ("more", ["null", "string"]))


def columns(**more: Any) -> Struct:
    return table("note", RESCUE, version="long", size="int", **more)


def read(*documents: Any, kinds: Struct | None = None, **settings: Any) -> tuple[list[Change], Any]:
    given = {"sequence": ("version",), "rescue_column": RESCUE, **settings}
    return decoded(kinds or columns(), *documents, **given)


def avro(*events: tuple[str, Any, Any], **settings: Any) -> tuple[list[Change], Any]:
    schema = schema_of(*FIELDS)
    values = [
        {"op": name, "after": after, "before": before, "source": {"lsn": 1, "op": "x"}, "ts_ms": 1}
        for name, after, before in events
    ]
    messages = [message(encoded(without_meaning(schema), one)) for one in values]
    registry: dict[str, Any] = {"schema_registry": "f", "writer_schemas": {7: json.dumps(schema)}}
    return read(*messages, decode=DEBEZIUM_AVRO, **registry, **settings)


def whole(value: Any, bits: int) -> int | None:
    """The value as a whole number, if it is one of so many bits."""
    try:
        number = int(value) if isinstance(value, str) or type(value) is int else None
    except ValueError:
        return None
    return number if number is not None and -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None


def expected(row: Row) -> Row | None:
    """The row of the table; None if the event is malformed."""
    exact = {name: whole(row.get(name), 64) for name in ("id", "version")}
    if exact["id"] is None or (exact["version"] is None and row.get("version") is not None):
        return None
    size, note = row.get("size"), row.get("note")
    found = {**exact, "size": whole(size, 32), "note": None if note is None or not is_text(note) else as_text(note)}
    unfit = {"size": {"expected": "INT", "value": size}} if size is not None and found["size"] is None else {}
    rest = {"unknown": {name: row[name] for name in ("more",) if row.get(name) is not None}, "unfit": unfit}
    kept = {name: value for name, value in rest.items() if value}
    return found | {RESCUE: kept or None}


def is_text(value: Any) -> bool:
    return value is not None


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


@pytest.mark.parametrize("wraps", [False, True], ids=["bare", "wrapped"])
@examples(60)
@given(rows=st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(TYPES, VALUE)), max_size=8))
def test_columns_and_rescued_text_together_have_all_members_of_a_row(rows: list[Row], *, wraps: bool) -> None:
    documents = [event("c", {"id": 1} | row) for row in rows]
    _, found = read(*(wrapped(one, **TYPES) if wraps else one for one in documents))
    wanted = [expected({"id": 1} | row) for row in rows]
    assert found.malformed == sum(row is None for row in wanted)
    good = [one for one, row in zip(documents, wanted, strict=True) if row is not None]
    changes, found = read(*(wrapped(one, **TYPES) if wraps else one for one in good))
    rescued = [row | {RESCUE: row[RESCUE] and json.loads(row[RESCUE])} for _, row, _ in changes]
    assert rescued == [row for row in wanted if row is not None]
    assert found.quality.counts[RESCUED_ROWS] == sum(row[RESCUE] is not None for row in rescued)
    assert found.quality.counts[UNKNOWN_KEYS] == 0


def test_values_are_kept_as_they_are_written_and_nested_ones_by_their_paths() -> None:
    element = Field(9, "element", required=False, type=Primitive("int"))
    row = '{"id": 1, "version": 2, "price": 1.10, "big": 1e400, "numbers": [1, "x", 3]}'
    changes, found = read(f'{{"after": {row}, "op": "c"}}', kinds=columns(numbers=ListOf(element)))
    [(_, kept, _)] = changes
    assert kept["numbers"] == [1, None, 3]
    assert kept[RESCUE] == (
        '{"unknown":{"big":1e400,"price":1.10},"unfit":{"numbers[1]":{"expected":"INT","value":"x"}}}'
    )
    assert found.quality.rescued == {"big: no column": 1, "numbers[]: not INT": 1, "price: no column": 1}


def test_members_beside_the_row_are_not_kept() -> None:
    changes, _ = read(event("u", {"id": 1, "version": 1}, {"id": 1, "other": 5}))
    assert [row[RESCUE] for _, row, _ in changes] == [None]


@pytest.mark.parametrize("bad", [{"id": "x"}, {"version": "x"}, {"version": 2**63}])
def test_a_key_or_sequence_that_does_not_fit_makes_its_event_malformed(bad: Row) -> None:
    row = {"id": 1, "version": 1} | bad
    for document in (event("c", row), wrapped(event("c", row), **TYPES), event("d", None, row)):
        changes, found = read(document, soft_deletes=True)
        assert (changes, found.malformed) == ([], 1)
        assert [(one.column, one.expected) for one in found.misfits] == [(next(iter(bad)), "BIGINT")]


def test_both_rows_of_a_soft_delete_and_of_a_changed_key_are_kept() -> None:
    old, new = {"id": 1, "version": 1, "size": "S", "more": 1}, {"id": 2, "version": 2, "size": "M"}
    documents = [event("u", new, old), event("d", None, new | {"version": 3})]
    changes, _ = read(*documents, soft_deletes=True)
    texts = {"S": '{"unknown":{"more":1},"unfit":{"size":{"expected":"INT","value":"S"}}}'}
    texts["M"] = '{"unfit":{"size":{"expected":"INT","value":"M"}}}'
    assert [(operation, row["id"], row["size"], row[RESCUE]) for operation, row, _ in changes] == [
        ("DELETE", 1, None, texts["S"]),
        ("UPSERT", 2, None, texts["M"]),
        ("DELETE", 2, None, texts["M"]),
    ]


def test_a_row_before_that_is_only_logged_is_not_rescued() -> None:
    element = Field(9, "element", required=False, type=Primitive("int"))
    row = {"id": 1, "version": 1, "size": "S", "numbers": ["x"], "more": 1}
    changes, found = read(event("d", None, row), kinds=columns(numbers=ListOf(element)), has_changelog=True)
    [(operation, kept, _)] = changes
    assert (operation, kept["size"], kept["numbers"], kept[RESCUE]) == ("DELETE", None, None, None)
    assert found.quality.counts == {UNREAD_BEFORE: 1}


@pytest.mark.parametrize("column", ["note", "size"])
def test_a_placeholder_is_no_value_that_could_be_kept(column: str) -> None:
    row = {"id": 1, "version": 1, column: "__debezium_unavailable_value"}
    changes, found = read(event("u", row))
    assert (changes, found.malformed) == ([], 1)
    assert [one.column for one in found.misfits] == [column]
    assert "REPLICA IDENTITY FULL" in found.misfits[0].expected


def test_more_than_a_mebibyte_is_not_kept() -> None:
    changes, found = read(event("c", {"id": 1, "version": 1, "more": "x" * LARGEST_REST_BYTES}))
    assert (changes, found.malformed) == ([], 1)
    assert "1 MiB" in found.misfits[0].found


def test_rows_of_avro_messages_are_kept_too() -> None:
    good = {"id": 1, "version": 1, "size": 5, "more": None}
    bad = {"id": 2, "version": 1, "size": 2**31, "more": "m"}
    text = '{"unknown":{"more":"m"},"unfit":{"size":{"expected":"INT","value":2147483648}}}'
    changes, found = avro(("c", good, None), ("u", bad, None), ("d", None, bad))
    assert [(operation, row["id"], row["size"], row[RESCUE]) for operation, row, _ in changes] == [
        ("UPSERT", 1, 5, None),
        ("UPSERT", 2, None, text),
        ("DELETE", 2, None, None),
    ]
    assert found.quality.counts == {RESCUED_ROWS: 1}
    changes, _ = avro(("u", good, bad), ("d", None, bad), soft_deletes=True)
    assert [(operation, row["id"], row[RESCUE]) for operation, row, _ in changes] == [
        ("DELETE", 2, text),
        ("UPSERT", 1, None),
        ("DELETE", 2, text),
    ]


def test_a_key_of_an_avro_message_that_does_not_fit_is_malformed() -> None:
    row = {"id": 2**31, "version": 1, "size": 2**31, "more": None}
    changes, found = avro(("c", row, None), ("d", None, row), kinds=table("note", RESCUE, version="long", id="int"))
    assert (changes, found.malformed) == ([], 2)
    assert {one.column.split(".")[-1] for one in found.misfits} == {"id"}


def test_decimals_of_a_schema_are_kept_with_their_digits() -> None:
    digits = base64.b64encode((1250).to_bytes(2)).decode()
    kinds = TYPES | {"price": {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}}
    kinds["price"]["parameters"] = {"scale": "2"}  # type: ignore[assignment]
    changes, _ = read(wrapped(event("c", {"id": 1, "version": 1, "price": digits}), **kinds))
    assert [row[RESCUE] for _, row, _ in changes] == ['{"unknown":{"price":12.50}}']
