"""Orders that Spark SQL gives to tables are kept, and Spark reads them from the files that lakesink writes."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lakesink_catalog.connect.catalog import EMBEDDED_NAME
from servers.jars import ICEBERG_SPARK, fetched
from servers.spark_sql import SparkSQL, spark_sql
from testkit.builders import Chance, FaultyCatalog, Lake, Stream
from testkit.tasks import local
from tests.interop.maintenance import lake as spark_lake
from tests.interop.readers.engines import CATALOG
from tests.interop.readers.places import EMBEDDED
from tests.interop.readers.printed import printed

pytestmark = pytest.mark.interop


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
