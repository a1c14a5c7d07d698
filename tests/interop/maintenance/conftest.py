"""One lake, and the engines beside the streams that write into it: each is started once."""

from collections.abc import Iterator

import pytest

from servers import duckdb_engine
from servers.flink import Flink, flink
from servers.jars import ICEBERG_SPARK, fetched
from servers.spark_sql import spark_sql
from servers.trino import trino
from tests.interop.maintenance.lake import Lake
from tests.interop.readers.engines import CATALOG, OfDuckDB, OfFlink, OfPyIceberg, OfTrino, Spark
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
def flink_server(lake: Lake) -> Iterator[Flink]:
    with flink(lake.root / "flink") as server:
        yield server


@pytest.fixture
def of_flink(lake: Lake, flink_server: Flink) -> Iterator[OfFlink]:
    """Its catalog is new for each test: it keeps tables by name, also if another one has the name now."""
    for statement in printed(lake.home, "flink", EMBEDDED, "demo.numbers").statements:
        flink_server.sql(statement)
    yield OfFlink(flink_server)
    flink_server.sql("USE CATALOG default_catalog")
    flink_server.sql(f"DROP CATALOG {CATALOG}")
