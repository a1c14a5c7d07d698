"""Files of other writers in a table that a stream changes by key: rows in them are found, or the batch is refused."""

import re
from dataclasses import replace
from decimal import Decimal

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform

from lakesink_catalog.errors import CatalogError
from testkit.builders import TABLE
from testkit.change_table import Change
from tests.interop.maintenance.changing import NAME, Changing, changing
from tests.interop.maintenance.foreign import NEW
from tests.interop.maintenance.lake import Lake
from tests.interop.readers.engines import OfFlink

pytestmark = pytest.mark.interop
BY_KEY = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "bucket"))
STATEMENT = re.compile(r"CALL system\.(\w+)\(table => '\.\.\.'(?:, (options => map\([^)]*\)))?\)")


def test_rows_that_spark_imported_without_field_ids_are_found(lake: Lake) -> None:
    """Iceberg's ``add_files`` takes Parquet files as they are; their columns are found by name."""
    with changing(lake) as stream:
        folder = lake.root / "imported"
        lake.spark.sql(
            "CREATE TABLE parquet_rows USING parquet LOCATION"
            f" '{folder}' AS SELECT 'x' AS value, 0L AS version, id, 'a' AS part, CAST(id AS DECIMAL(38, 2)) AS amount"
            " FROM range(0, 40)"
        )
        lake.spark.sql(f"CALL lakehouse.system.add_files(table => '{TABLE}', source_table => '`parquet`.`{folder}`')")
        lake.spark.sql("DROP TABLE parquet_rows")
        imported = [Change(key, 0, "a", "x", Decimal(key).quantize(Decimal("0.01"))) for key in range(40)]
        stream.reference.rows = {row.key: row for row in imported}
        stream.assert_read()
        stream.run(6)
        stream.assert_read()


def test_a_row_that_spark_inserted_twice_is_replaced_by_one(lake: Lake) -> None:
    with changing(lake, partitioned=True) as stream:
        stream.run(4)
        lake.spark.sql(f"INSERT INTO {NAME} SELECT id, version, 'c', 'twice', amount FROM {NAME}")
        stream.change([replace(row, version=10**6 + row.version) for row in stream.reference.rows.values()])
        stream.assert_read()


@pytest.mark.parametrize("partitioned", [False, True])
def test_equality_deletes_of_flink_are_refused_until_spark_applied_them(
    lake: Lake, of_flink: OfFlink, *, partitioned: bool
) -> None:
    """One data file cannot have the key of the delete, so that Spark has no reason to rewrite it."""
    with changing(lake, spec=BY_KEY if partitioned else UNPARTITIONED_PARTITION_SPEC) as stream:
        stream.run(4)
        stream.change([replace(NEW, version=1)])
        row = next(iter(stream.reference.rows.values()))
        upserted = replace(row, version=10**6, value="flink")
        of_flink.server.sql("SET 'table.dml-sync' = 'true'")
        of_flink.server.sql(
            f"INSERT INTO {NAME} /*+ OPTIONS('upsert-enabled'='true') */ VALUES"
            f" ({row.key}, {upserted.version}, '{row.part}', '{upserted.value}', CAST({row.amount} AS DECIMAL(38, 2)))"
        )
        stream.reference.rows[row.key] = upserted
        do_as_refused(stream, "EQUALITY_DELETES")


@pytest.mark.parametrize("form", ["avro", "orc"])
def test_rows_in_other_formats_are_refused_until_spark_rewrote_them(lake: Lake, form: str) -> None:
    with changing(lake) as stream:
        stream.run(6)
        lake.spark.sql(f"ALTER TABLE {NAME} SET TBLPROPERTIES ('write.format.default' = '{form}')")
        lake.spark.sql(f"UPDATE {NAME} SET value = 'spark'")
        lake.spark.sql(f"ALTER TABLE {NAME} UNSET TBLPROPERTIES ('write.format.default')")
        stream.reference.rows = {key: replace(row, value="spark") for key, row in stream.reference.rows.items()}
        do_as_refused(stream, "FILES_NOT_PARQUET")


def do_as_refused(stream: Changing, code: str) -> None:
    """The next batch is refused; what the error says to do helps."""
    with pytest.raises(CatalogError) as refused:
        stream.run()
    assert refused.value.code == f"LAKESINK_{code}"
    found = STATEMENT.search(str(refused.value))
    assert found is not None
    procedure, options = found.groups()
    more = f", {options}" if options else ""
    stream.lake.spark.sql(f"CALL lakehouse.system.{procedure}(table => '{TABLE}'{more})")
    stream.run(4)
    stream.assert_read()
