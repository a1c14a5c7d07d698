"""Queries whose columns change between two runs: by every adapter, the table follows in the batch's own commit."""

import json
from pathlib import Path
from typing import Any

import pytest

import lakesink
from lakesink.spark.source.data_source import LakesinkDataSource
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.errors import WriteError
from tests.spark.adapters import Adapter, by_format, embedded_catalog
from tests.spark.streams import failure, run

pytestmark = pytest.mark.usefixtures("home")
TABLE = "demo.orders"
OPTIONS: dict[str, Any] = {"sink_id": "orders", "checkpoint": "ck", "create_table": True}
BEFORE, AFTER = "id LONG, pieces INT", "id LONG, pieces LONG, customer STRUCT<name: STRING>, tags ARRAY<STRING>"
OLD = {"id": 1, "pieces": 3}
NEW = {"id": 2, "pieces": 3_000_000_000, "customer": {"name": "Ada"}, "tags": ["a", None]}
FOLLOWED: list[dict[str, Any]] = [OLD | {"customer": None, "tags": None}, NEW]


def orders(spark: Any, folder: Path, columns: str, row: dict[str, Any]) -> Any:
    """A stream of all orders so far, of which this is the newest."""
    folder.mkdir(exist_ok=True)
    (folder / f"{row['id']}.json").write_text(json.dumps(row))
    return spark.readStream.schema(columns).json(str(folder))


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = load_table(connect(create=False), TABLE).scan().to_arrow().sort_by("id").to_pylist()
    return found


def test_the_table_follows_a_query_with_other_columns(spark: Any, tmp_path: Path, either: Adapter) -> None:
    run(either(orders(spark, tmp_path / "in", BEFORE, OLD), TABLE, **OPTIONS))
    run(either(orders(spark, tmp_path / "in", AFTER, NEW), TABLE, **OPTIONS, schema_evolution="widen"))
    assert rows() == FOLLOWED
    first, second = lakesink.history(TABLE)
    assert (first.schema_change, second.schema_change) == ("", "added customer, tags; widened pieces")


def test_a_prepared_schema_change_is_committed_by_the_next_run(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(lakesink.stream(orders(spark, tmp_path / "in", BEFORE, OLD), TABLE, **OPTIONS))
    monkeypatch.setenv("LAKESINK_FAILPOINTS", "after-prepared@1=raise")
    query = orders(spark, tmp_path / "in", AFTER, NEW)
    assert "FailpointReached" in failure(lakesink.stream(query, TABLE, **OPTIONS, schema_evolution="widen"))
    monkeypatch.delenv("LAKESINK_FAILPOINTS")
    assert load_table(connect(create=False), TABLE).schema().column_names == ["id", "pieces"]
    run(by_format(query, TABLE, **OPTIONS, schema_evolution="widen"))
    assert rows() == FOLLOWED
    assert [one.outcome for one in lakesink.history(TABLE)] == ["committed", "recovered"]


def test_a_stream_whose_columns_differ_does_not_start(spark: Any, tmp_path: Path) -> None:
    run(lakesink.stream(orders(spark, tmp_path / "in", BEFORE, OLD), TABLE, **OPTIONS))
    query = orders(spark, tmp_path / "in", AFTER, NEW)
    for policy in ("fail", "add"):
        with pytest.raises(WriteError, match="SCHEMA_MISMATCH"):
            lakesink.stream(query, TABLE, **OPTIONS, schema_evolution=policy)
    assert rows() == [OLD]


def test_ignore_writes_the_columns_that_the_table_has(spark: Any, tmp_path: Path) -> None:
    run(lakesink.stream(orders(spark, tmp_path / "in", BEFORE, OLD), TABLE, **OPTIONS))
    columns = AFTER.replace("pieces LONG", "pieces INT")
    query = orders(spark, tmp_path / "in", columns, NEW | {"pieces": 4})
    run(lakesink.stream(query, TABLE, **OPTIONS, schema_evolution="ignore"))
    assert rows() == [OLD, {"id": 2, "pieces": 4}]


def test_an_append_and_a_batch_write_bring_their_columns(spark: Any) -> None:
    spark.dataSource.register(LakesinkDataSource)
    before, after = spark.createDataFrame([OLD], BEFORE), spark.createDataFrame([NEW], AFTER)
    lakesink.append(before, TABLE, txn=("load", 1), create_table=True)
    outcome = lakesink.append(after, TABLE, txn=("load", 2), schema_evolution="widen")
    assert isinstance(outcome, lakesink.Committed)
    assert outcome.schema_change == "added customer, tags; widened pieces"
    later = spark.createDataFrame([(3, True)], "id LONG, paid BOOLEAN")
    options = embedded_catalog() | {"table": TABLE, "txn-app-id": "nightly", "schema-evolution": "add"}
    later.write.format("lakesink").mode("append").options(**options, **{"txn-version": "1"}).save()
    bare: dict[str, Any] = {"id": 3, "pieces": None, "customer": None, "tags": None, "paid": True}
    assert rows() == [*(row | {"paid": None} for row in FOLLOWED), bare]
