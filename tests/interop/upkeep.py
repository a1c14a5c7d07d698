"""Upkeep of a test's table by Iceberg's own procedures, in a Spark with its jars beside the streams."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from servers.jars import ICEBERG_SPARK, fetched
from servers.spark_sql import SparkSQL, spark_sql
from testkit.builders import TABLE, Lake

CATALOG = "test"


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Compaction and expiry of a table. Use `upkeep`."""

    spark: SparkSQL

    def compact(self, table: str = TABLE) -> None:
        self._call("rewrite_data_files", table, "options => map('rewrite-all', 'true')")

    def rewrite_manifests(self, table: str = TABLE) -> None:
        self._call("rewrite_manifests", table)

    def expire(self, table: str = TABLE) -> None:
        """Expire all that may expire, however young it is; deletes its files."""
        self._call("expire_snapshots", table, "older_than => TIMESTAMP '2100-01-01', retain_last => 1")

    def _call(self, procedure: str, table: str, *arguments: str) -> None:
        self.spark.sql(f"REFRESH TABLE {CATALOG}.{table}")
        given = ", ".join((f"table => '{table}'", *arguments))
        self.spark.sql(f"CALL {CATALOG}.system.{procedure}({given})")


@contextmanager
def upkeep(lake: Lake) -> Iterator[Upkeep]:
    """Spark over the catalog of a lake, until the end of the block."""
    catalog = f"spark.sql.catalog.{CATALOG}"
    conf = {
        "spark.jars": ",".join(map(str, fetched(ICEBERG_SPARK))),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{lake.folder / 'catalog.db'}",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": f"file://{lake.folder / 'warehouse'}",
        f"{catalog}.cache-enabled": "false",
    }
    (lake.folder / "spark").mkdir(exist_ok=True)
    with spark_sql(lake.folder / "spark", conf) as spark:
        yield Upkeep(spark)
