"""Debezium's Avro, as fastavro writes it: every operation, Kafka Connect's names of types, and malformed messages."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from lakesink.rows.plan import DEBEZIUM_AVRO
from lakesink_protocol.errors import WriteError
from lakesink_protocol.row_changes import SPLITS, TOMBSTONES
from tests.decode.avro.messages import encoded, message, record, without_meaning
from tests.decode.debezium.events import Change, decoded, table
from tests.decode.debezium.events import event as envelope

TIME, DATA, CONNECT = "io.debezium.time.", "io.debezium.data.", "org.apache.kafka.connect.data."
MALFORMED = "malformed"
NAMES = (("id", "long"), ("name", ["null", "string"]))


def schema_of(*fields: tuple[str, Any]) -> dict[str, Any]:
    """The schema of an envelope whose rows have these fields."""
    row = record(*fields, name="Value")
    source = record(("lsn", "long"), ("op", "string"), name="Source")
    parts = [("before", ["null", row]), ("after", ["null", "Value"]), ("source", source)]
    return record(*parts, ("op", "string"), ("ts_ms", ["null", "long"]), name="Envelope")


def event(operation: str, after: Any = None, before: Any = None, fields: Any = NAMES) -> bytes:
    source = {"lsn": 5, "op": "x"}
    value = {"before": before, "after": after, "source": source, "op": operation, "ts_ms": 1}
    return message(encoded(without_meaning(schema_of(*fields)), value))


def read(columns: Any, *messages: bytes | None, fields: Any = NAMES, **settings: Any) -> tuple[list[Change], Any]:
    key = record(("id", "long"), name="Key")
    schemas = {7: json.dumps(schema_of(*fields)), 8: json.dumps(key)}
    return decoded(columns, *messages, decode=DEBEZIUM_AVRO, schema_registry="f", writer_schemas=schemas, **settings)


def one(column: str, kind: Any, value: Any) -> Any:
    """What a value of an Avro type becomes."""
    fields = (("id", "long"), ("c", ["null", kind]))
    changes, found = read(table(c=column), event("c", {"id": 1, "c": value}, fields=fields), fields=fields)
    return MALFORMED if found.malformed else changes[0][1]["c"]


def named(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.name": name, "connect.version": 1, **more}


def test_every_operation_becomes_its_change() -> None:
    changes, found = read(
        table("name"),
        event("r", {"id": 1, "name": "loaded"}),
        event("c", {"id": 2, "name": "created"}),
        event("u", {"id": 2, "name": "updated"}, {"id": 2, "name": "created"}),
        event("d", None, {"id": 1, "name": None}),
        None,
        event("m"),
        event("u", {"id": 3, "name": "again"}, {"id": 2, "name": None}),
        event("d"),
        keys=[None] * 7 + [message(encoded(record(("id", "long"), name="Key"), {"id": 3}), 8)],
    )
    assert changes == [
        ("SNAPSHOT", {"id": 1, "name": "loaded"}, 0),
        ("UPSERT", {"id": 2, "name": "created"}, 1),
        ("UPSERT", {"id": 2, "name": "updated"}, 2),
        ("DELETE", {"id": 1, "name": None}, 3),
        ("DELETE", {"id": 2, "name": None}, 6),
        ("UPSERT", {"id": 3, "name": "again"}, 6),
        ("DELETE", {"id": 3, "name": None}, 7),
    ]
    assert found.changed == {SPLITS: 1, TOMBSTONES: 2}


def test_the_names_of_kafka_connect_are_the_types() -> None:
    at = datetime(2024, 2, 29, 12, 0, 0, 123000, tzinfo=UTC).replace(tzinfo=None)
    millis = 1_709_208_000_123
    assert one("timestamp", named("long", f"{TIME}Timestamp"), millis) == at
    assert one("timestamp", named("long", f"{TIME}MicroTimestamp"), millis * 1000) == at
    assert one("timestamp", named("long", f"{TIME}NanoTimestamp"), millis * 1_000_000) == at
    assert one("timestamp", named("long", f"{TIME}NanoTimestamp"), millis * 1_000_000 + 1) == MALFORMED
    assert one("timestamptz", named("long", f"{TIME}MicroTimestamp"), millis) == MALFORMED
    assert one("long", named("long", f"{TIME}MicroTimestamp"), millis) == millis
    connect = named("long", f"{CONNECT}Timestamp", logicalType="timestamp-millis")
    assert one("timestamp", connect, millis) == at
    assert one("timestamptz", connect, millis) == at.replace(tzinfo=UTC)
    assert one("long", connect, millis) == MALFORMED
    zoned = named("string", f"{TIME}ZonedTimestamp")
    assert one("timestamptz", zoned, "2024-02-29T13:00:00.123+01:00") == at.replace(tzinfo=UTC)
    assert one("timestamp", zoned, "2024-02-29T12:00:00.123Z") == MALFORMED
    assert one("string", zoned, "2024-02-29T12:00:00.123Z") == "2024-02-29T12:00:00.123Z"
    assert one("timestamp", named("string", f"{TIME}IsoTimestamp"), "2024-02-29T12:00:00.123Z") == at
    assert one("date", named("int", f"{TIME}Date"), 19_782) == date(2024, 2, 29)
    assert one("date", named("int", f"{CONNECT}Date", logicalType="date"), 19_782) == date(2024, 2, 29)
    assert one("date", named("string", f"{TIME}IsoDate"), "2024-02-29Z") == date(2024, 2, 29)
    assert one("date", "int", 19_782) == MALFORMED
    noon = time(12, 0, 0, 5000)
    assert one("time", named("int", f"{TIME}Time"), 43_200_005) == noon
    assert one("time", named("long", f"{TIME}MicroTime"), 43_200_005_000) == noon
    assert one("time", named("long", f"{TIME}NanoTime"), 43_200_005_000_000) == noon
    assert one("time", named("string", f"{TIME}IsoTime"), "12:00:00.005Z") == noon
    assert one("string", named("string", f"{DATA}Json"), '{"a":1.50}') == '{"a":1.50}'
    assert one("long", named("long", "io.debezium.unheard.Of"), 5) == 5


@pytest.mark.parametrize("unscaled", [0, 1, -1, 10**37, -(10**38) + 1, 2**127])
def test_decimals_have_all_their_digits(unscaled: int) -> None:
    digits = unscaled.to_bytes(17, "big", signed=True)
    decimal = named("bytes", f"{CONNECT}Decimal", logicalType="decimal", precision=64, scale=3)
    variable = record(("scale", "int"), ("value", "bytes"), name="VariableScaleDecimal")
    variable |= {"namespace": "io.debezium.data", "connect.name": f"{DATA}VariableScaleDecimal"}
    expected = MALFORMED if abs(unscaled) >= 10**38 else Decimal(f"{unscaled}E-3")
    assert one("decimal(38, 3)", decimal, digits) == expected
    assert one("decimal(38, 3)", variable, {"scale": 3, "value": digits}) == expected
    assert one("decimal(38, 3)", variable, {"scale": 3, "value": b""}) == MALFORMED
    assert one("string", variable, {"scale": 3, "value": digits}) == MALFORMED


def test_a_value_that_debezium_could_not_read_never_becomes_a_value() -> None:
    _, found = read(table("name"), event("u", {"id": 1, "name": "__debezium_unavailable_value"}))
    assert "REPLICA IDENTITY FULL" in found.misfits[0].expected


@pytest.mark.parametrize(
    "value",
    [b"", b"\0\0\0\0\7", b"{}", event("c", {"id": 1, "name": "a"})[:-3], event("c", {"id": 1, "name": "a"}) + b"\0"],
)
def test_a_message_that_is_no_record_is_malformed(value: bytes) -> None:
    changes, found = read(table("name"), event("c", {"id": 1, "name": "a"}), value)
    assert (changes, found.malformed) == ([], 1)
    assert found.misfits[0].place.endswith("offset 1")


def test_a_create_without_a_row_is_malformed() -> None:
    _, found = read(table("name"), event("c"))
    assert found.misfits[0].column == "after.id"


def test_operations_that_are_not_known_and_missing_keys_are_refused() -> None:
    for bad, code in {"x": "OPERATION_UNKNOWN", "t": "TRUNCATE", "d": "KEY_MISSING"}.items():
        with pytest.raises(WriteError, match=f"LAKESINK_{code}.*offset 0"):
            read(table("name"), event(bad))
    flat = json.dumps(record(*NAMES))
    with pytest.raises(WriteError, match="LAKESINK_OPERATION_UNKNOWN"):
        decoded(
            table("name"),
            message(encoded(json.loads(flat), {"id": 1, "name": "a"})),
            decode=DEBEZIUM_AVRO,
            schema_registry="f",
            writer_schemas={7: flat},
        )


def test_fields_without_a_column_are_counted_in_the_row_after_only() -> None:
    _, found = read(table(), event("c", {"id": 1, "name": "a"}), event("d", None, {"id": 1, "name": None}))
    assert (found.unknown.count, found.unknown.names) == (2, ("name",))


def test_json_and_avro_have_the_same_envelope() -> None:
    assert set(envelope("c")) - {"transaction"} == {one["name"] for one in schema_of(*NAMES)["fields"]}
