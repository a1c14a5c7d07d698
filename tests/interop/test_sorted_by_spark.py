"""Orders that Spark SQL gives to tables are kept, also of rows that it wrote, and Spark reads them from the files."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lakesink.sinks.iceberg.upkeep import rewrite
from lakesink.sinks.iceberg.upkeep.maintenance import Maintenance
from lakesink.sinks.iceberg.upkeep.policy import Policy
from lakesink_catalog.connect.catalog import EMBEDDED_NAME
from servers.jars import ICEBERG_SPARK, fetched
from servers.spark_sql import SparkSQL, spark_sql
from testkit.builders import Chance, FaultyCatalog, Lake, Stream
from testkit.tasks import local
from tests.interop.maintenance import lake as spark_lake
from tests.interop.readers.engines import CATALOG, Spark
from tests.interop.readers.kinds import SCHEMA, arrow, rows
from tests.interop.readers.places import EMBEDDED
from tests.interop.readers.printed import printed
from tests.readers import lake as streams
from tests.readers.engines import canonical_rows
from tests.upkeep.orders import check_orders
from tests.writer.random_tables import ROW

pytestmark = pytest.mark.interop
ORDERS = (
    "c_float DESC NULLS LAST, c_string",
    "c_double, c_binary DESC NULLS LAST",
    "c_string DESC NULLS FIRST, truncate(2, c_long) DESC NULLS FIRST",
    "bucket(4, c_decimal38), days(c_timestamptz) DESC, c_fixed",
    "truncate(3, c_binary) DESC NULLS LAST, c_decimal9 DESC, c_boolean",
    "hours(n_struct.at) NULLS LAST, c_uuid DESC, years(c_date)",
    "truncate(3, c_string) DESC, c_decimal18, months(c_timestamp) NULLS LAST, bucket(3, c_int) DESC",
)
"""Each type comes first or behind transforms with few values, in both directions and with its NULLs at both ends."""
COPIED = 60


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("sorted")
    spark_lake.Lake.create(home, "demo.numbers")
    return home


@pytest.fixture(scope="module")
def spark(home: Path) -> Iterator[SparkSQL]:
    conf = printed(home, "spark", EMBEDDED, "demo.numbers").settings
    del conf["spark.jars.packages"]
    with spark_sql(home / "spark", {**conf, "spark.jars": ",".join(map(str, fetched(ICEBERG_SPARK)))}) as session:
        yield session


def test_spark_reads_the_order_of_each_file(home: Path, spark: SparkSQL) -> None:
    uri, warehouse = f"sqlite:///{home}/catalog.db", f"file://{home}/warehouse"
    lake = Lake(home, FaultyCatalog(EMBEDDED_NAME, uri=uri, warehouse=warehouse), "demo.sorted")
    chance = Chance(itertools.count(int(time.time() * 1000) - 600_000, 1000))  # Spark follows none of the future
    stream = Stream(
        lake, chance=chance, options={"create_table": True, "sort_by": "bucket(4, position), position desc"}
    )
    stream.run(0, rows=50)
    table = f"{CATALOG}.demo.sorted"
    spark.sql(f"ALTER TABLE {table} WRITE LOCALLY ORDERED BY position DESC NULLS FIRST, truncate(10, batch)")
    stream.run(1, rows=50)
    spark.sql(f"ALTER TABLE {table} WRITE UNORDERED")
    stream.run(2, rows=50)
    found = spark.sql(f"SELECT CAST(sort_order_id AS INT) AS id FROM {table}.files ORDER BY 1")
    assert found["id"].to_pylist() == [0, 1, 2]
    assert spark.sql(f"SELECT sum(position) AS s FROM {table}")["s"].to_pylist() == [3 * sum(range(50))]
    by_spark = spark.sql(f"SELECT position AS p FROM {table} WHERE batch = 1 ORDER BY position DESC")
    [ordered] = [one for one in lake.table().inspect.files().to_pylist() if one["sort_order_id"] == 2]
    assert pq.read_table(local(ordered["file_path"])).column("position").to_pylist() == by_spark["p"].to_pylist()


def test_rows_that_spark_wrote_are_sorted_as_a_whole_by_a_compaction(
    home: Path, spark: SparkSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark takes -0.0 for 0.0, so that its own files can state an order that they do not have."""
    monkeypatch.setattr(rewrite, "CHUNK_BYTES", 10_000)
    stream, told = streams.Lake(home, EMBEDDED_NAME).new_table(SCHEMA, name="kinds"), arrow(SCHEMA, rows(0, COPIED))
    stream.write([told.to_batches()], told.schema)
    wanted, others = told.to_pylist(), ", ".join(field.name for field in SCHEMA.fields[1:])
    table = f"{CATALOG}.demo.kinds"
    for number, order in enumerate(ORDERS, 1):
        spark.sql(f"ALTER TABLE {table} WRITE LOCALLY ORDERED BY {order}")
        spark.sql(f"INSERT INTO {table} SELECT {ROW} + {number * COPIED}, {others} FROM {table} WHERE {ROW} < {COPIED}")
        wanted += [{**row, ROW: row[ROW] + number * COPIED} for row in told.to_pylist()]
        Maintenance(stream.load, policy=Policy(min_input_files=2)).run()
        assert check_orders(stream.load()) == [number]
        assert spark.sql(f"SELECT sort_order_id FROM {table}.files")["sort_order_id"].to_pylist() == [number]
        found = Spark(spark).read(stream.load(), SCHEMA)
        assert canonical_rows(found, SCHEMA) == canonical_rows(wanted, SCHEMA)
