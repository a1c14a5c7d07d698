"""Engines see the same history, files and properties that PyIceberg reads from the metadata."""

from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, IntegerType, LongType, MapType, NestedField, StringType

from tests.interop.readers.engines import CATALOG, Engine
from tests.interop.readers.tables import Told

pytestmark = [pytest.mark.interop, pytest.mark.nightly]

TABLES = ("kinds", "evolved", "by_bucket")
BY_COLUMN = MapType(10, IntegerType(), 11, LongType(), value_required=False)
BOUNDS = MapType(20, IntegerType(), 21, BinaryType(), value_required=False)
SNAPSHOTS = Schema(
    NestedField(1, "snapshot_id", LongType(), required=False),
    NestedField(2, "parent_id", LongType(), required=False),
    NestedField(3, "operation", StringType(), required=False),
    NestedField(4, "summary", MapType(5, StringType(), 6, StringType(), value_required=False), required=False),
)
REFS = Schema(
    NestedField(1, "name", StringType(), required=False),
    NestedField(2, "type", StringType(), required=False),
    NestedField(3, "snapshot_id", LongType(), required=False),
)
FILES = Schema(
    NestedField(1, "file_path", StringType(), required=False),
    NestedField(2, "record_count", LongType(), required=False),
    NestedField(3, "file_size_in_bytes", LongType(), required=False),
    NestedField(4, "value_counts", BY_COLUMN, required=False),
    NestedField(5, "null_value_counts", BY_COLUMN.model_copy(update={"key_id": 12, "value_id": 13}), required=False),
)
STATISTICS = Schema(
    NestedField(1, "file_path", StringType(), required=False),
    NestedField(2, "lower_bounds", BOUNDS, required=False),
    NestedField(3, "upper_bounds", BOUNDS.model_copy(update={"key_id": 22, "value_id": 23}), required=False),
    NestedField(4, "nan_value_counts", BY_COLUMN, required=False),
)
PROPERTIES = Schema(
    NestedField(1, "key", StringType(), required=False), NestedField(2, "value", StringType(), required=False)
)


def of(engine: Engine, table: str, what: str, schema: Schema) -> list[dict[str, Any]]:
    """All rows of a metadata table."""
    name = f"{CATALOG}.demo.{table}.{what}"
    if engine.name == "trino":
        name = f'{CATALOG}.demo."{table}${what}"'
    if engine.name == "flink":
        name = f"{CATALOG}.demo.`{table}${what}`"
    columns = ", ".join('"key"' if column.name == "key" else column.name for column in schema.fields)
    if engine.name == "flink":
        columns = ", ".join(f"`{column.name}`" for column in schema.fields)
    return engine.rows(f"SELECT * FROM (SELECT {columns} FROM {name}) AS t", schema)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("engine", ["spark", "trino", "flink"], indirect=True)
def test_snapshots_and_their_summaries_are_seen_alike(engine: Engine, table: str, tables: dict[str, Told]) -> None:
    found = {row["snapshot_id"]: row for row in of(engine, table, "snapshots", SNAPSHOTS)}
    snapshots = tables[table].load().metadata.snapshots
    assert len(found) == len(snapshots) == len(tables[table].batches)
    for snapshot in snapshots:
        assert snapshot.summary is not None
        row = found[snapshot.snapshot_id]
        assert (row["parent_id"], row["operation"]) == (snapshot.parent_snapshot_id, snapshot.summary.operation.value)
        seen = dict(row["summary"])
        seen.pop("iceberg-version", None)
        assert seen == snapshot.summary.additional_properties


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("engine", ["spark", "trino", "flink"], indirect=True)
def test_branches_and_tags_are_seen_alike(engine: Engine, table: str, tables: dict[str, Told]) -> None:
    found = {(row["name"], row["type"], row["snapshot_id"]) for row in of(engine, table, "refs", REFS)}
    refs = tables[table].load().metadata.refs
    assert found == {(name, ref.snapshot_ref_type.value.upper(), ref.snapshot_id) for name, ref in refs.items()}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("engine", ["spark", "trino", "flink"], indirect=True)
def test_files_and_their_counts_are_seen_alike(engine: Engine, table: str, tables: dict[str, Told]) -> None:
    found = {row["file_path"]: tidy(row) for row in of(engine, table, "files", FILES)}
    assert found == {row["file_path"]: tidy(row) for row in inspected(tables[table], FILES)}


@pytest.mark.parametrize("table", TABLES)
def test_bounds_are_seen_alike_by_spark(of_spark: Engine, table: str, tables: dict[str, Told]) -> None:
    found = {row["file_path"]: tidy(row) for row in of(of_spark, table, "files", STATISTICS)}
    wanted = {row["file_path"]: tidy(row) for row in inspected(tables[table], STATISTICS)}
    assert found == wanted
    assert any(row["lower_bounds"] for row in wanted.values())


@pytest.mark.parametrize("table", TABLES)
def test_properties_are_seen_alike(of_spark: Engine, of_trino: Engine, table: str, tables: dict[str, Told]) -> None:
    properties = tables[table].load().properties
    by_trino = {row["key"]: row["value"] for row in of(of_trino, table, "properties", PROPERTIES)}
    assert properties.items() <= by_trino.items()
    by_spark = of_spark.rows(f"SHOW TBLPROPERTIES {CATALOG}.demo.{table}", PROPERTIES)
    assert properties.items() <= {row["key"]: row["value"] for row in by_spark}.items()


def inspected(told: Told, schema: Schema) -> list[dict[str, Any]]:
    """The same from the manifests, by PyIceberg."""
    table = told.load()
    head = table.current_snapshot()
    assert head is not None
    files = [
        entry.data_file for manifest in head.manifests(table.io) for entry in manifest.fetch_manifest_entry(table.io)
    ]
    return [{column.name: getattr(file, column.name) for column in schema.fields} for file in files]


def tidy(row: dict[str, Any]) -> dict[str, Any]:
    """A map that is not there is an empty one."""
    return {name: dict(value or []) if name.endswith(("counts", "bounds")) else value for name, value in row.items()}
