"""One lake, and the engines beside the streams that write into it: each is started once."""

from collections.abc import Iterator

import pytest

from servers import duckdb_engine
from servers.flink import flink
from servers.jars import ICEBERG_SPARK, fetched
from servers.spark_sql import spark_sql
from servers.trino import trino
from tests.interop.maintenance.lake import Lake
from tests.interop.readers.engines import OfDuckDB, OfFlink, OfPyIceberg, OfTrino, Spark
from tests.interop.readers.places import EMBEDDED
from tests.interop.readers.printed import printed


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    root = tmp_path_factory.mktemp("maintained")
    home, table = root / "home", "demo.numbers"
    Lake.create(home, table)
    recipes = {engine: printed(home, engine, EMBEDDED, table) for engine in ("spark", "trino", "duckdb")}
    name, properties = recipes["trino"].file
    conf = {"spark.jars": ",".join(map(str, fetched(ICEBERG_SPARK))), **recipes["spark"].settings}
    del conf["spark.jars.packages"]
    with (
        spark_sql(root / "spark", conf) as spark,
        trino(root / "trino", {name.removesuffix(".properties"): properties}) as server,
    ):
        duckdb = OfDuckDB(duckdb_engine.installed(), recipes["duckdb"].statements)
        yield Lake(root, home, spark, server, (Spark(spark), OfTrino(server), duckdb, OfPyIceberg()))


@pytest.fixture(scope="session")
def of_flink(lake: Lake) -> Iterator[OfFlink]:
    with flink(lake.root / "flink") as server:
        for statement in printed(lake.home, "flink", EMBEDDED, "demo.numbers").statements:
            server.sql(statement)
        yield OfFlink(server)
