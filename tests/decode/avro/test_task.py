"""A task that decodes Avro: rows in are rows out, and what is no fault of a value loses none."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from lakesink.rows.plan import AVRO, OnMalformed, WritePlan
from lakesink_protocol.errors import WriteError
from lakesink_protocol.measures import RESCUED_ROWS, Tally
from lakesink_protocol.quality import Quality
from servers.ports import free_port
from testkit.tasks import plan_for, rows_of, write
from tests.decode.avro.messages import encoded, message, record

EVENTS = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "name", StringType()), NestedField(3, "_kafka_offset", LongType())
)
FIRST = record(("id", "long"))
SECOND = record(("name", ["null", "string"]), ("id", "int"), ("more", "bytes"))
IN_FILE = {1: json.dumps(FIRST), 2: json.dumps(SECOND)}


def first(number: int) -> bytes:
    return message(encoded(FIRST, {"id": number}), 1)


def second(number: int, name: str | None) -> bytes:
    return message(encoded(SECOND, {"id": number, "name": name, "more": b"x"}), 2)


def kafka(*messages: bytes | None) -> pa.RecordBatch:
    count = len(messages)
    made = {"value": pa.array(messages, pa.binary()), "partition": pa.array([3] * count, pa.int32())}
    return pa.RecordBatch.from_pydict(made | {"offset": pa.array(range(100, 100 + count), pa.int64())})


def decoding(folder: Path, **more: Any) -> WritePlan:
    given = {"schema_registry": "schemas.json", "writer_schemas": IN_FILE, **more}
    return plan_for(EVENTS, folder, decode=AVRO, **given)


def test_messages_of_several_schemas_become_rows_in_their_order(tmp_path: Path) -> None:
    whole = kafka(b"other", second(1, "a"), first(2), second(3, None), first(4))
    receipt = write(decoding(tmp_path), [whole.slice(1)])
    assert rows_of(receipt.files) == [
        {"id": 1, "name": "a", "_kafka_offset": 101},
        {"id": 2, "name": None, "_kafka_offset": 102},
        {"id": 3, "name": None, "_kafka_offset": 103},
        {"id": 4, "name": None, "_kafka_offset": 104},
    ]


BAD: dict[str, list[bytes | None]] = {
    "no value": [None],
    "bytes that are not in Confluent's wire format": [
        b"", b"  ", b"\0\0\0\0", b"\1" + first(1)[1:], b'{"id": 1}',
    ],
    "schema 9, which the registry does not have": [message(b"\2", 9)],
    "bytes that end too early or too late for schema 1": [first(1)[:-1], first(1) + b"\0", message(b"", 1)],
    "bytes that end too early or too late for schema 2": [second(1, "name")[:-3]],
}  # fmt: skip


@pytest.mark.parametrize(("told", "bad"), [(told, bad) for told, values in BAD.items() for bad in values])
def test_a_task_votes_against_a_malformed_message_and_tells_where_it_is(
    tmp_path: Path, told: str, bad: bytes | None
) -> None:
    receipt = write(decoding(tmp_path), [kafka(first(1), first(2)), kafka(first(3), bad, first(4))])
    [misfit] = receipt.misfits
    assert (misfit.place, misfit.column) == ("partition 3, offset 101", "")
    assert told in misfit.found
    assert receipt.refused
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_field_that_does_not_fit_is_named_with_its_type_in_the_writer_s_schema(tmp_path: Path) -> None:
    other = record(("id", "long"), ("name", ["null", "double"]))
    plan = decoding(tmp_path, writer_schemas={3: json.dumps(other)})
    receipt = write(plan, [kafka(message(encoded(other, {"id": 1, "name": 1.5}), 3))])
    [misfit] = receipt.misfits
    assert (misfit.column, misfit.expected) == ("name", "STRING")
    assert misfit.found == "Avro's union of null and double of schema 3"


@pytest.mark.parametrize("on_malformed", list(OnMalformed))
def test_a_registry_that_cannot_be_asked_fails_the_task_whatever_is_malformed(
    tmp_path: Path, on_malformed: OnMalformed
) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    plan = decoding(tmp_path, schema_registry=nobody, writer_schemas={}, on_malformed=on_malformed)
    with pytest.raises(WriteError) as refused:
        write(plan, [kafka(first(1), b"")])
    assert refused.value.code == "LAKESINK_REGISTRY_UNREACHABLE"
    assert not list(tmp_path.rglob("*.parquet"))


RESCUING = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "_kafka_offset", LongType()),
    NestedField(4, "_rescued", StringType()),
)


def test_a_task_counts_rescued_rows_by_reason_and_writes_their_texts(tmp_path: Path) -> None:
    other = record(("id", "long"), ("name", "double"), ("_kafka_offset", "int"))
    plan = decoding(
        tmp_path,
        writer_schemas=IN_FILE | {3: json.dumps(other)},
        schema_json=RESCUING.model_dump_json(),
        rescue_column="_rescued",
    )
    third = message(encoded(other, {"id": 3, "name": 0.1, "_kafka_offset": 5}), 3)
    receipt = write(plan, [kafka(first(1), second(2, "a")), kafka(third, second(4, None), first(5))])
    assert receipt.quality == Quality(
        Tally({RESCUED_ROWS: 3}), rescued={"_kafka_offset: no column": 1, "more: no column": 2, "name: not STRING": 1}
    )
    more = '{"unknown":{"more":"eA=="}}'
    unfit = '{"unknown":{"_kafka_offset":5},"unfit":{"name":{"expected":"STRING","value":0.1}}}'
    assert [tuple(row.values()) for row in rows_of(receipt.files)] == [
        (1, None, 100, None),
        (2, "a", 101, more),
        (3, None, 100, unfit),
        (4, None, 101, more),
        (5, None, 102, None),
    ]


def test_a_misfit_in_a_required_column_is_malformed_with_a_rescue_column_too(tmp_path: Path) -> None:
    other = record(("id", ["null", "long"]), ("name", "double"))
    plan = decoding(
        tmp_path,
        writer_schemas={3: json.dumps(other), 4: json.dumps(record(("name", "double")))},
        schema_json=RESCUING.model_dump_json(),
        rescue_column="_rescued",
    )
    messages = [message(encoded(other, {"id": number, "name": 0.1}), 3) for number in (1, None)]
    receipt = write(plan, [kafka(*messages, message(encoded("double", 0.1), 4), first(1))])
    assert receipt.refused
    assert [(one.place, one.column, one.expected, one.found) for one in receipt.misfits] == [
        ("partition 3, offset 101", "id", "BIGINT", "Avro's union of null and long of schema 3"),
        ("partition 3, offset 102", "id", "BIGINT", "no field of schema 4"),
        ("partition 3, offset 103", "", "an Avro record", "schema 1, which the registry does not have"),
    ]


def test_nested_columns_are_written_without_what_does_not_fit(tmp_path: Path) -> None:
    line = StructType(NestedField(10, "count", LongType(), required=True), NestedField(11, "note", StringType()))
    table = Schema(
        NestedField(1, "lines", ListType(5, line, element_required=True)),
        NestedField(2, "sizes", MapType(6, StringType(), 7, line, value_required=False)),
        NestedField(4, "_rescued", StringType()),
    )
    kind = record(("count", ["null", "long"]), ("note", ["string", "int"]), name="Line")
    schema = record(("lines", {"type": "array", "items": kind}), ("sizes", {"type": "map", "values": "Line"}))
    good, bad, half = ({"count": 1, "note": "a"}, {"count": None, "note": "b"}, {"count": 2, "note": 7})
    values = [
        {"lines": [good, half], "sizes": {"x": good}},
        {"lines": [good, bad, good], "sizes": {"x": good, "y": bad}},
        {"lines": [], "sizes": {}},
    ]
    plan = decoding(
        tmp_path,
        writer_schemas={1: json.dumps(schema)},
        schema_json=table.model_dump_json(),
        rescue_column="_rescued",
    )
    receipt = write(plan, [kafka(*(message(encoded(schema, value), 1) for value in values))])
    rows = rows_of(receipt.files)
    assert [(row["lines"], dict(row["sizes"])) for row in rows] == [
        ([good, {"count": 2, "note": None}], {"x": good}),
        (None, {"x": good, "y": None}),
        ([], {}),
    ]
    assert [row["_rescued"] and json.loads(row["_rescued"]) for row in rows] == [
        {"unfit": {"lines[1].note": {"expected": "STRING", "value": 7}}},
        {
            "unfit": {
                "lines": {"expected": "ARRAY", "value": [good, bad, good]},
                'sizes{"y"}': {"expected": "STRUCT", "value": bad},
            }
        },
        None,
    ]
