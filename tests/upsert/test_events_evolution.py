"""A table follows the columns that its database gets, in the commit of the batch that brings them."""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
)

from lakesink.rows.plan import DELETED
from lakesink_protocol.errors import WriteError
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from testkit.builders import Lake
from tests.decode.avro.messages import encoded, message, without_meaning
from tests.decode.debezium.events import event, wrapped
from tests.decode.debezium.test_avro_events import named, schema_of
from tests.upsert.change_events import EventStream
from tests.upsert.rows import live_rows
from tests.upsert.test_events_put_aside import QUARANTINE, Row, letters, take

FIELDS = (
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "version", LongType(), required=True),
    NestedField(3, "size", IntegerType(), required=True),
    NestedField(4, "weight", FloatType()),
    NestedField(5, "price", DecimalType(5, 2)),
    NestedField(6, "name", StringType()),
)
TIME, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
CONNECTS: dict[str, Row] = {
    "id": {"type": "int64"},
    "version": {"type": "int64"},
    "size": {"type": "int32"},
    "weight": {"type": "float"},
    "price": {"type": "bytes", "name": f"{CONNECT}Decimal", "parameters": {"scale": "2"}},
    "name": {"type": "string"},
}
CONNECTS["price"]["parameters"]["connect.decimal.precision"] = "5"
WRITE_AGAIN = pytest.mark.parametrize("again", [True, False], ids=["written again", "the rest alone"])
MOMENT = datetime(2024, 2, 29, 12, 30, 0, 123456, tzinfo=UTC).replace(tzinfo=None)


def row(number: int, version: Any = 1, **more: Any) -> Row:
    return {"id": number, "version": version, "size": 5, "weight": 0.5, "price": None, "name": "a"} | more


def stream_into(folder: Path, *, again: bool = True, fields: Any = FIELDS, **options: Any) -> EventStream:
    schema = Schema(*fields, identifier_field_ids=[1])
    stream = EventStream(Lake.make(folder, schema=schema), options={"sequence_by": "version"} | options)
    stream.driver.can_write_again = again
    return stream


def types_of(stream: EventStream) -> dict[str, str]:
    fields = stream.lake.table().schema().fields
    return {one.name: f"{one.field_type}{' required' if one.required else ''}" for one in fields}


def in_wrapper(payload: Any, **more: Row) -> Row:
    return wrapped(payload, **(CONNECTS | more))


def micros(moment: datetime) -> int:
    return (moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def digits(number: Decimal, scale: int) -> str:
    unscaled = int(number.scaleb(scale))
    return base64.b64encode(unscaled.to_bytes(8, "big", signed=True).lstrip(b"\0") or b"\0").decode()


NEW: Mapping[str, tuple[Row, Any, str, Any]] = {
    "text": ({"type": "string"}, "red", "string", "red"),
    "kind": ({"type": "string", "name": "io.debezium.data.Enum"}, "A", "string", "A"),
    "tiny": ({"type": "int16"}, 7, "int", 7),
    "huge": ({"type": "int64"}, 7, "long", 7),
    "half": ({"type": "double"}, 0.5, "double", 0.5),
    "flag": ({"type": "boolean"}, True, "boolean", True),
    "day": ({"type": "int32", "name": f"{TIME}Date"}, 19782, "date", date(2024, 2, 29)),
    "day_of_connect": ({"type": "int32", "name": f"{CONNECT}Date"}, 19782, "date", date(2024, 2, 29)),
    "at": ({"type": "int64", "name": f"{TIME}MicroTimestamp"}, micros(MOMENT), "timestamp", MOMENT),
    "at_of_connect": (
        {"type": "int64", "name": f"{CONNECT}Timestamp"},
        micros(MOMENT) // 1000,
        "timestamp",
        MOMENT.replace(microsecond=123000),
    ),
    "zoned": (
        {"type": "string", "name": f"{TIME}ZonedTimestamp"},
        "2024-02-29T12:30:00.123456Z",
        "timestamptz",
        MOMENT.replace(tzinfo=UTC),
    ),
    "iso": ({"type": "string", "name": f"{TIME}IsoDate"}, "2024-02-29Z", "date", date(2024, 2, 29)),
    "cost": (
        {"type": "bytes", "name": f"{CONNECT}Decimal", "parameters": {"scale": "2", "connect.decimal.precision": "9"}},
        digits(Decimal("12.50"), 2),
        "decimal(9, 2)",
        Decimal("12.50"),
    ),
    "data": ({"type": "bytes"}, base64.b64encode(b"\0\1").decode(), "binary", b"\0\1"),
    "many": ({"type": "array", "items": {"type": "int32"}}, [1, 2], "list<int>", [1, 2]),
    "pairs": (
        {"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}},
        {"a": "b"},
        "map<string, string>",
        [("a", "b")],
    ),
    "place": (
        {"type": "struct", "fields": [{"field": "x", "type": "int32"}, {"field": "y", "type": "double"}]},
        {"x": 1, "y": 2.5},
        "struct<8: x: optional int, 9: y: optional double>",
        {"x": 1, "y": 2.5},
    ),
}


@WRITE_AGAIN
@pytest.mark.parametrize("name", NEW)
def test_the_schema_of_a_wrapper_tells_the_type_of_a_new_column(tmp_path: Path, name: str, *, again: bool) -> None:
    kind, value, expected, read = NEW[name]
    stream = stream_into(tmp_path, again=again, schema_evolution="add")
    take(stream, 0, [in_wrapper(event("c", row(1)))])
    before = types_of(stream)
    later = [event("c", row(2) | {name: value}), event("u", row(1, 2) | {name: None}), event("d", None, {"id": 9})]
    later[2]["before"]["version"] = 1
    assert isinstance(take(stream, 1, [in_wrapper(one, **{name: kind}) for one in later]), Committed)
    assert types_of(stream) == before | {name: expected}
    assert live_rows(stream.lake) == [row(1, 2) | {name: None}, row(2) | {name: read}]
    assert [one.schema_id for one in stream.lake.table().snapshots()] == [0, 1]


@WRITE_AGAIN
def test_the_schema_of_an_avro_message_tells_the_types(tmp_path: Path, *, again: bool) -> None:
    old = (("id", "long"), ("version", "long"), ("size", "int"), ("weight", ["null", "float"]))
    more = {
        "name": (["null", "string"], "a", "a", "string"),
        "day": (["null", named("int", f"{TIME}Date")], 19782, date(2024, 2, 29), "date"),
        "at": (["null", named("long", f"{TIME}MicroTimestamp")], micros(MOMENT), MOMENT, "timestamp"),
        "nanos": (["null", named("long", f"{TIME}NanoTimestamp")], micros(MOMENT) * 1000, MOMENT, "timestamp"),
        "zoned": (
            ["null", named("string", f"{TIME}ZonedTimestamp")],
            "2024-02-29T12:30:00.123456Z",
            MOMENT.replace(tzinfo=UTC),
            "timestamptz",
        ),
        "cost": (
            ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
            (1250).to_bytes(2),
            Decimal("12.50"),
            "decimal(9, 2)",
        ),
    }
    new = (*old[:2], ("size", "long"), *old[3:], *((name, kind) for name, (kind, *_) in more.items()))
    schemas = {7: schema_of(*old), 8: schema_of(*new)}
    registry = tmp_path / "schemas.json"
    registry.write_text(json.dumps({str(number): json.dumps(schema) for number, schema in schemas.items()}))

    def sent(number: int, operation: str, after: Any, before: Any = None) -> bytes:
        value = event(operation, after, before) | {"source": {"lsn": 1, "op": "x"}}
        return message(encoded(without_meaning(schemas[number]), value), number)

    fields = FIELDS[:4]
    options = {"decode": "debezium-avro", "schema_registry": str(registry), "schema_evolution": "widen"}
    stream = stream_into(tmp_path, again=again, fields=fields, **options)
    first = {name: value for name, value in row(1).items() if name in dict(old)}
    take(stream, 0, [sent(7, "c", first)])
    values = {name: value for name, (_, value, *_) in more.items()}
    second = first | {"id": 2, "size": 2**31}
    take(stream, 1, [sent(8, "c", second | values), sent(7, "c", first | {"id": 3})])
    assert types_of(stream) == {
        "id": "long required",
        "version": "long required",
        "size": "long required",
        "weight": "float",
        **{name: kind for name, (*_, kind) in more.items()},
    }
    nulls = dict.fromkeys(more)
    rows = {name: read for name, (_, _, read, _) in more.items()}
    assert live_rows(stream.lake) == [first | nulls, second | rows, first | {"id": 3} | nulls]


@WRITE_AGAIN
def test_values_of_bare_json_tell_the_types(tmp_path: Path, *, again: bool) -> None:
    stream = stream_into(tmp_path, again=again, schema_evolution="widen")
    take(stream, 0, [event("c", row(1))])
    later = [row(2, size=2**31), row(3, price=1234567.25, colour="red"), row(4, size=None, day=19782)]
    take(stream, 1, [event("c", one) for one in later])
    assert types_of(stream) == {
        "id": "long required",
        "version": "long required",
        "size": "long",
        "weight": "float",
        "price": "decimal(9, 2)",
        "name": "string",
        "colour": "string",
        "day": "long",
    }
    none = {"colour": None, "day": None}
    later[1]["price"] = Decimal("1234567.25")
    assert live_rows(stream.lake) == [none | one for one in (row(1), *later)]


@WRITE_AGAIN
def test_wider_types_of_a_schema_widen_their_columns(tmp_path: Path, *, again: bool) -> None:
    stream = stream_into(tmp_path, again=again, schema_evolution="widen")
    take(stream, 0, [in_wrapper(event("c", row(1)))])
    parameters = {"scale": "2", "connect.decimal.precision": "12"}
    wide = {"size": {"type": "int64"}, "weight": {"type": "double"}}
    wide["price"] = CONNECTS["price"] | {"parameters": parameters}
    price = Decimal("1234567.25")
    last = row(2, size=None, weight=1e300, price=digits(price, 2))
    take(stream, 1, [in_wrapper(event("c", last), **wide), in_wrapper(event("u", row(1, 2)), **wide)])
    assert types_of(stream) == {
        "id": "long required",
        "version": "long required",
        "size": "long",
        "weight": "double",
        "price": "decimal(12, 2)",
        "name": "string",
    }
    assert live_rows(stream.lake) == [row(1, 2), last | {"price": price}]


@WRITE_AGAIN
@pytest.mark.parametrize("wraps", [False, True], ids=["bare", "wrapped"])
def test_a_key_becomes_wider_for_an_insert_and_its_delete_in_one_batch(
    tmp_path: Path, *, wraps: bool, again: bool
) -> None:
    fields = (NestedField(1, "id", IntegerType(), required=True), *FIELDS[1:])
    stream = stream_into(tmp_path, again=again, fields=fields, schema_evolution="widen")
    big = 2**31
    events = [
        event("c", row(1)),
        event("c", row(big)),
        event("d", None, {"id": big, "version": 2}),
        event("c", row(big + 1)),
        event("u", row(3, 2), {"id": big + 1}),
    ]
    take(stream, 0, [in_wrapper(one, id={"type": "int64"}) if wraps else one for one in events])
    assert types_of(stream)["id"] == "long required"
    assert live_rows(stream.lake) == [row(1), row(3, 2)]


@pytest.mark.parametrize("wraps", [False, True], ids=["bare", "wrapped"])
def test_fail_stops_and_names_what_the_table_lacks(tmp_path: Path, *, wraps: bool) -> None:
    stream = stream_into(tmp_path, schema_evolution="fail")
    take(stream, 0, [event("c", row(1))])
    new = event("c", row(2, colour="red"))
    with pytest.raises(WriteError, match="LAKESINK_SCHEMA_MISMATCH") as refused:
        take(stream, 1, [in_wrapper(new, colour={"type": "string"}) if wraps else new])
    assert "colour" in str(refused.value)
    assert live_rows(stream.lake) == [row(1)]
    stream.restart()
    take(stream, 1, [event("c", row(2))])
    assert live_rows(stream.lake) == [row(1), row(2)]


def test_fail_names_the_key_of_a_document_that_an_upsert_cannot_store(tmp_path: Path) -> None:
    stream = stream_into(tmp_path, mode="upsert", decode="json", schema_evolution="fail")
    stream.take(0, [(0, 0, row(1))])
    with pytest.raises(WriteError, match="LAKESINK_SCHEMA_MISMATCH") as refused:
        stream.take(1, [(0, 1, row(2, colour="red"))])
    assert "colour" in str(refused.value)
    assert live_rows(stream.lake) == [row(1)]


@WRITE_AGAIN
@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
def test_all_of_it_together_follows_the_database_and_a_replay_changes_nothing(
    tmp_path: Path, *, soft: bool, again: bool
) -> None:
    fields = (*FIELDS, *([NestedField(7, DELETED, BooleanType())] if soft else []))
    options = QUARANTINE | {"schema_evolution": "widen", "rescue_column": "_rescued"}
    options |= {"changelog_table": "demo.log"} if again else {}
    stream = stream_into(tmp_path, again=again, fields=fields, **options, **({"deletes": "soft"} if soft else {}))
    take(stream, 0, [event("c", row(1)), event("c", row(2))])
    kinds = {"colour": {"type": "string"}, "hour": {"type": "int32", "name": f"{TIME}Time"}}
    events = [
        event("u", row(3, 2, colour="red", hour=None), row(1)),
        event("u", row(2, 2, colour="blue", hour=5000)),
        event("c", row(4, "x", colour="green")),
        event("c", row(5, size="XL", weight="much", colour="grey")),
        event("d", None, row(2, 3, colour="blue")),
        event("c", row(6, colour="pink")),
    ]
    batch = [in_wrapper(one, **kinds) for one in events] + [b"{"]
    assert isinstance(take(stream, 1, batch), Committed)
    live = {DELETED: False} if soft else {}
    none: Row = {"_rescued": None, "colour": None}
    gone = [row(1, 2) | none | {DELETED: True}, row(2, 3) | none | {"colour": "blue", DELETED: True}] if soft else []
    found = live_rows(stream.lake)
    assert found == [*gone, row(3, 2) | none | {"colour": "red"} | live, row(6) | none | {"colour": "pink"} | live]
    put_aside = [(one["offset"], one["column_name"]) for one in letters(stream)]
    assert put_aside == [(102, "version"), (103, "size"), (106, None)]
    if again:
        log = stream.lake.catalog.load_table("demo.log").scan().to_arrow().to_pylist()
        changes = [(one["id"], one["version"], one["_operation"], one["colour"]) for one in log if one["version"] > 1]
        assert sorted(changes, key=lambda one: one[:2]) == [
            (1, 2, "delete", None),
            (2, 2, "upsert", "blue"),
            (2, 3, "delete", "blue"),
            (3, 2, "upsert", "red"),
        ]
    for _ in range(2):
        assert isinstance(take(stream, 1, batch), AlreadyCommitted)
        stream.restart()
    assert live_rows(stream.lake) == found
    assert len(letters(stream)) == 3
