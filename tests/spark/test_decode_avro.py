"""Avro in a stream's column ``value`` becomes the table's rows, with schemas from a file or a registry."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakesink
from lakesink.settings.option_types import Options
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_protocol.measures import DEAD_LETTERS, RESCUED_ROWS, Tally
from lakesink_protocol.quality import Quality
from tests.decode.avro.messages import encoded, logical, message, record
from tests.decode.avro.schema_registry import SchemaRegistry, registered, schema_registry

TABLE = "demo.events"
FIRST = record(("id", "long"))
SECOND = record(("id", "long"), ("name", "string"))


@pytest.fixture
def table(home: Path) -> None:  # noqa: ARG001 - where the embedded catalog is
    create_table(connect(), TABLE, pa.schema([("id", pa.int64()), ("name", pa.string())]))


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as found:
        found.schemas[1] = registered(FIRST)
        yield found


def rows() -> list[tuple[int, str | None]]:
    found = load_table(connect(create=False), TABLE).scan().to_arrow().sort_by("id").to_pylist()
    return [(row["id"], row["name"]) for row in found]


def first(number: int) -> bytes:
    return message(encoded(FIRST, {"id": number}), 1)


def second(number: int) -> bytes:
    return message(encoded(SECOND, {"id": number, "name": "new"}), 2)


def append(spark: Any, version: int, registry: str, *messages: bytes, **options: Any) -> None:
    """A batch without a query."""
    rows = spark.createDataFrame([(one,) for one in messages], "value binary")
    lakesink.append(rows, TABLE, txn=("events", version), decode="avro", schema_registry=registry, **options)


@pytest.mark.usefixtures("table")
def test_a_schema_that_comes_later_is_found_in_the_registry(
    spark: Any, tmp_path: Path, registry: SchemaRegistry
) -> None:
    folder = tmp_path / "in"

    def run(number: int, *messages: bytes) -> None:
        folder.mkdir(exist_ok=True)
        column = pa.table({"value": pa.array(messages, pa.binary())})
        pq.write_table(column, folder / f"{number}.parquet")
        rows = spark.readStream.schema("value binary").format("parquet").load(str(folder))
        options: dict[str, Any] = {"sink_id": "events", "checkpoint": tmp_path / "checkpoint", "decode": "avro"}
        writer = lakesink.stream(rows, TABLE, **options, schema_registry=registry.url)
        writer.trigger(availableNow=True).start().awaitTermination()

    run(0, first(1))
    with pytest.raises(
        Exception,
        match=r"LAKESINK_VALUE_MALFORMED\] .*1.parquet, row 2: .* found schema 2, which",
    ):
        run(1, first(2), second(3))
    registry.schemas[2] = registered(SECOND)
    run(1, first(2), second(3))
    assert rows() == [(1, None), (2, None), (3, "new")]


@pytest.mark.usefixtures("table")
def test_a_registry_file_is_read_with_every_batch_by_the_driver(spark: Any, tmp_path: Path) -> None:
    file = tmp_path / "schemas.json"
    file.write_text(json.dumps({"1": FIRST}))
    append(spark, 1, str(file), first(1))
    file.write_text(json.dumps({"1": FIRST, "2": SECOND}))
    append(spark, 2, str(file), second(2))
    assert rows() == [(1, None), (2, "new")]


@pytest.mark.usefixtures("table")
def test_an_outage_of_the_registry_loses_nothing_and_makes_no_dead_letter(spark: Any, registry: SchemaRegistry) -> None:
    registry.broken = [(503, b"")] * 4
    with pytest.raises(Exception, match=r"LAKESINK_REGISTRY_UNREACHABLE\]"):
        append(spark, 1, registry.url, first(1), on_malformed="quarantine")
    assert rows() == []
    append(spark, 1, registry.url, first(1), on_malformed="quarantine")
    assert rows() == [(1, None)]


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"decode": "avro"}, "OPTION_INVALID"),
        ({"decode": "json", "schema_registry": "schemas.json"}, "OPTION_INVALID"),
        ({"schema_registry": "schemas.json"}, "OPTION_INVALID"),
        ({"decode": "avro", "schema_registry": "http://reader:hunter2@127.0.0.1"}, "OPTION_INVALID"),
        ({"decode": "avro", "schema_registry": "http://127.0.0.1/?token=hunter2"}, "OPTION_INVALID"),
        ({"decode": "avro", "schema_registry": "missing.json"}, "REGISTRY_UNREACHABLE"),
    ],
)
def test_options_that_do_not_go_together_are_refused_before_a_task_runs(
    spark: Any, options: Options, code: str
) -> None:
    frame = spark.createDataFrame([(b"",)], "value binary")
    with pytest.raises(lakesink.LakesinkError) as refused:
        lakesink.append(frame, TABLE, txn=("load", 1), **options)
    assert refused.value.code == f"LAKESINK_{code}"
    assert "hunter2" not in str(refused.value)


@pytest.mark.usefixtures("table")
def test_text_is_no_avro(spark: Any) -> None:
    frame = spark.createDataFrame([("text",)], "value string")
    with pytest.raises(lakesink.WriteError, match="'value' of BINARY; the query has STRING"):
        lakesink.append(frame, TABLE, txn=("load", 1), decode="avro", schema_registry="http://127.0.0.1:1")


@pytest.mark.usefixtures("table")
def test_an_append_keeps_what_does_not_fit_and_puts_aside_what_cannot_be_read(spark: Any, tmp_path: Path) -> None:
    tags = {"type": "array", "items": "long"}
    other = record(("id", "string"), ("name", ["null", "string", "double"]), ("tags", tags))
    registry = tmp_path / "schemas.json"
    registry.write_text(json.dumps({"1": FIRST, "3": other}))
    values = [{"id": "x", "name": None, "tags": []}, {"id": "y", "name": 0.1, "tags": [2**53 + 1]}]
    bad = [first(2)[:-1], second(3)]
    messages = [first(1), *(message(encoded(other, value), 3) for value in values), *bad]
    outcome = lakesink.append(
        spark.createDataFrame([(one,) for one in messages], "value binary"),
        TABLE,
        txn=("load", 1),
        decode="avro",
        schema_registry=str(registry),
        rescue_column="_rescued",
        on_malformed="quarantine",
    )
    assert isinstance(outcome, lakesink.Committed)
    reasons = {"id: not BIGINT": 2, "name: not STRING": 1, "tags: no column": 2}
    letters_table = load_table(connect(create=False), f"{TABLE}__dead_letters")
    assert outcome.quality == Quality(
        Tally({DEAD_LETTERS: 2, RESCUED_ROWS: 2}),
        letters_table=f"{TABLE}__dead_letters",
        letters_since=f"1:{letters_table.metadata.table_uuid.hex[:12]}",
        rescued=reasons,
    )
    misfits = [
        {"id": {"expected": "BIGINT", "value": "x"}},
        {"id": {"expected": "BIGINT", "value": "y"}, "name": {"expected": "STRING", "value": 0.1}},
    ]
    found = load_table(connect(create=False), TABLE).scan().to_arrow().to_pylist()
    told = [(row["id"], row["name"], row["_rescued"] and json.loads(row["_rescued"])) for row in found]
    assert sorted(told, key=str) == [
        (1, None, None),
        (None, None, {"unknown": {"tags": [2**53 + 1]}, "unfit": misfits[1]}),
        (None, None, {"unknown": {"tags": []}, "unfit": misfits[0]}),
    ]
    [version] = lakesink.history(TABLE)
    assert (version.rescued_rows, version.rescued, version.schema_change) == (2, reasons, "added _rescued")
    letters = letters_table.scan().to_arrow().to_pylist()
    assert {row["payload_bytes"] or row["payload"].encode() for row in letters} == set(bad)


@pytest.mark.usefixtures("table")
def test_a_field_of_a_schema_that_comes_later_is_rescued(spark: Any, registry: SchemaRegistry) -> None:
    append(spark, 1, registry.url, first(1), rescue_column="_rescued")
    later = record(("new", logical("long", "timestamp-micros")), ("id", "long"))
    registry.schemas[2] = registered(later)
    newer = message(encoded(later, {"new": datetime(2024, 2, 29, tzinfo=UTC), "id": 2}), 2)
    append(spark, 2, registry.url, newer, rescue_column="_rescued")
    found = load_table(connect(create=False), TABLE).scan().to_arrow().sort_by("id").to_pylist()
    assert [row["_rescued"] for row in found] == [None, '{"unknown":{"new":"2024-02-29T00:00:00.000000Z"}}']
