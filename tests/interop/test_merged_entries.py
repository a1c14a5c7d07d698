"""Entries before and after a merge, as Iceberg's Java reads them: of lakesink's manifests, and of Java's own."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField

from servers.jars import ICEBERG_SPARK, fetched
from servers.spark_sql import SparkSQL, spark_sql
from testkit.builders import TABLE, Lake
from tests.catalog.raw_avro import raw_list
from tests.catalog.test_exact_manifests import Writer

pytestmark = pytest.mark.interop
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "value", DoubleType()))
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
X, Y = b"\x9a\x99\x99\x99\x99\x99\xb9\x3f", b"\xa0\xc8\xeb\x85\xf3\xcc\xe1\x7f"
"""A tenth, and 1e308."""
INSERTS = 3


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake.make(tmp_path_factory.mktemp("lake"), schema=SCHEMA, spec=SPEC)


@pytest.fixture(scope="module")
def java(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSQL]:
    catalog = "spark.sql.catalog.test"
    conf = {
        "spark.jars": ",".join(map(str, fetched(ICEBERG_SPARK))),
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{lake.folder / 'catalog.db'}",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": f"file://{lake.folder / 'warehouse'}",
        f"{catalog}.cache-enabled": "false",
    }
    with spark_sql(tmp_path_factory.mktemp("java"), conf) as session:
        yield session


def entries(java: SparkSQL, snapshot: Snapshot) -> dict[str, dict[str, Any]]:
    """Every field of the live entries of a snapshot but their status, by the path of the file."""
    rows = java.sql(
        "SELECT data_file.file_path, snapshot_id, sequence_number, file_sequence_number, to_json(data_file) AS file"
        f" FROM test.{TABLE}.entries VERSION AS OF {snapshot.snapshot_id} WHERE status < 2"
    )
    return {row["file_path"]: row for row in rows.to_pylist()}


def test_java_reads_every_field_of_an_entry_as_before_the_merge(java: SparkSQL, lake: Lake) -> None:
    for number in range(INSERTS):
        java.sql(f"INSERT INTO test.{TABLE} VALUES ({number}, 0.1D), ({number}, NULL), ({number}, 1e308D)")
    assert len(raw_list(lake.head())) == INSERTS
    writer, merged = Writer(lake, min_count=INSERTS), set[str]()
    for number in range(2 * INSERTS):
        known = entries(java, lake.head())
        after = writer.run(number, [(X,), (Y,), (None,)])
        found = entries(java, after)
        assert {path: found[path] for path in known} == known
        assert len(found) == len(known) + 3
        merged |= {one["manifest_path"] for one in raw_list(after) if one["existing_files_count"]}
    assert len(merged) > 1
