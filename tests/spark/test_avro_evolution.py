"""The table follows the writers' schemas of Avro messages: no restart, and one commit has the columns and the rows."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakesink
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_protocol.errors import WriteError
from tests.decode.avro.messages import encoded, logical, message, record
from tests.spark.streams import failure, run

TABLE, STRICT = "demo.events", "demo.strict"
OLD = record(("id", "long"), ("size", "int"))
LINE = record(("sku", "string"), ("count", "int"), name="Line")
NEW = record(
    ("id", "long"),
    ("size", "long"),
    ("price", ["null", logical("bytes", "decimal", precision=9, scale=2)]),
    ("lines", {"type": "array", "items": LINE}),
    ("tags", {"type": "map", "values": "string"}),
)
WITHOUT_ID = record(("name", "string"))
MIXED = record(("id", "long"), ("mixed", ["null", "int", "string"]), ("at", ["null", logical("int", "time-millis")]))
SCHEMAS = {1: OLD, 2: NEW, 3: MIXED, 4: WITHOUT_ID}
OPTIONS: dict[str, Any] = {
    "sink_id": "events",
    "checkpoint": "ck",
    "decode": "avro",
    "schema_evolution": "add",
}


@pytest.fixture(autouse=True)
def table(home: Path) -> None:  # noqa: ARG001 - where the embedded catalog is
    Path("schemas.json").write_text(json.dumps(SCHEMAS))
    OPTIONS["schema_registry"] = str(Path("schemas.json").absolute())
    create_table(connect(), TABLE, pa.schema([("id", pa.int64()), ("size", pa.int32())]))


def old(number: int) -> bytes:
    return message(encoded(OLD, {"id": number, "size": number}), 1)


def new(number: int, size: int = 1) -> bytes:
    lines = [{"sku": "a", "count": number}]
    return message(
        encoded(NEW, {"id": number, "size": size, "price": Decimal("1.10"), "lines": lines, "tags": {"k": "v"}}), 2
    )


def mixed(number: int, value: Any, at: Any = None) -> bytes:
    return message(encoded(MIXED, {"id": number, "mixed": value, "at": at}), 3)


def without_id(name: str) -> bytes:
    return message(encoded(WITHOUT_ID, {"name": name}), 4)


def messages(spark: Any, folder: Path, *values: bytes) -> Any:
    folder.mkdir(exist_ok=True)
    column = pa.table({"value": pa.array(values, pa.binary())})
    pq.write_table(column, folder / f"{len(list(folder.iterdir()))}.parquet")
    return spark.readStream.schema("value BINARY").parquet(str(folder))


def append(spark: Any, table: str, *values: bytes, **options: Any) -> None:
    """Version 1, without a query."""
    found = spark.createDataFrame([(value,) for value in values], "value BINARY")
    chosen = {name: OPTIONS[name] for name in ("decode", "schema_evolution", "schema_registry")} | options
    lakesink.append(found, table, txn=("load", 1), **chosen)


def rows() -> list[dict[str, Any]]:
    found = load_table(connect(create=False), TABLE).scan().to_arrow().to_pylist()
    return sorted(({key: row[key] for key in row if row[key] is not None} for row in found), key=lambda row: row["id"])


def columns() -> dict[str, str]:
    return {field.name: str(field.field_type) for field in load_table(connect(create=False), TABLE).schema().fields}


def followed(number: int) -> dict[str, Any]:
    lines = [{"count": number, "sku": "a"}]
    return {"id": number, "size": 1, "price": Decimal("1.10"), "lines": lines, "tags": [("k", "v")]}


@pytest.mark.dear
def test_the_fields_of_a_new_schema_become_columns_in_the_commit_of_their_batch(spark: Any, tmp_path: Path) -> None:
    run(lakesink.stream(messages(spark, tmp_path / "in", old(1), new(2), old(3)), TABLE, **OPTIONS))
    assert rows() == [{"id": 1, "size": 1}, followed(2), {"id": 3, "size": 3}]
    assert columns() == {
        "id": "long",
        "size": "int",
        "lines": "list<struct<5: count: optional int, 6: sku: optional string>>",
        "price": "decimal(9, 2)",
        "tags": "map<string, string>",
    }
    run(lakesink.stream(messages(spark, tmp_path / "in", new(4)), TABLE, **OPTIONS))
    assert rows()[3] == followed(4)
    changes = [one.schema_change for one in lakesink.history(TABLE)]
    assert changes == ["added lines, price, tags", ""]
    assert len(load_table(connect(create=False), TABLE).snapshots()) == 2


def test_widen_follows_the_declared_types_and_makes_columns_optional(spark: Any) -> None:
    create_table(connect(), STRICT, pa.schema([pa.field("id", pa.int64(), nullable=False), ("size", pa.int32())]))
    append(spark, STRICT, old(1), new(2, size=2**40), without_id("x"), schema_evolution="widen")
    found = load_table(connect(create=False), STRICT)
    assert [(field.name, field.required, str(field.field_type)) for field in found.schema().fields[:2]] == [
        ("id", False, "long"),
        ("size", False, "long"),
    ]
    assert sorted(row["size"] or 0 for row in found.scan().to_arrow().to_pylist()) == [0, 1, 2**40]


def test_a_crash_before_the_commit_leaves_the_old_columns_and_the_replay_adds_them_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = messages(spark, tmp_path / "in", new(1), old(2))
    monkeypatch.setenv("LAKESINK_FAILPOINTS", "after-prepared@0=raise")
    failure(lakesink.stream(query, TABLE, **OPTIONS))
    monkeypatch.delenv("LAKESINK_FAILPOINTS")
    assert list(columns()) == ["id", "size"]
    run(lakesink.stream(query, TABLE, **OPTIONS))
    assert rows() == [followed(1), {"id": 2, "size": 2}]
    [one] = lakesink.history(TABLE)
    assert (one.outcome, one.schema_change) == ("recovered", "added lines, price, tags")


def test_ignore_counts_the_fields_without_a_column(spark: Any) -> None:
    append(spark, TABLE, new(1), old(2), schema_evolution="ignore")
    [snapshot] = load_table(connect(create=False), TABLE).snapshots()
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    assert (summary["lakesink.unknown-keys"], summary["lakesink.unknown-key-names"]) == (
        "3",
        '["lines","price","tags"]',
    )


def test_fail_names_the_fields_their_types_and_the_commands(spark: Any) -> None:
    said = r"Documents of batch 1 do not fit the table's columns: lines, price, tags, size\."
    with pytest.raises(WriteError, match=said) as failed:
        append(spark, TABLE, old(1), new(2), schema_evolution="fail")
    assert "ALTER TABLE demo.events ADD COLUMN price DECIMAL(9,2)" in str(failed.value)
    assert not rows()


def test_a_field_without_a_type_fails_or_is_put_aside_where_it_has_a_value(spark: Any) -> None:
    values = mixed(1, 1), mixed(2, "x"), mixed(3, None), mixed(4, None, 5), old(5)
    with pytest.raises(WriteError, match=r"have keys that cannot become columns: at, mixed\."):
        append(spark, TABLE, *values)
    append(spark, TABLE, *values, on_malformed="quarantine", max_dead_letter_ratio=1)
    assert rows() == [{"id": 3}, {"id": 5, "size": 5}]
    letters = load_table(connect(create=False), f"{TABLE}__dead_letters").scan().to_arrow().to_pylist()
    found = [(one["payload_bytes"] or one["payload"].encode(), one["column_name"]) for one in letters]
    assert sorted(found) == [
        (mixed(1, 1), "mixed"),
        (mixed(2, "x"), "mixed"),
        (mixed(4, None, 5), "at"),
    ]
