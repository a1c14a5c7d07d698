"""The tables and the engines, each made or started once, when the first test asks for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from servers import duckdb_engine
from servers.flink import flink
from servers.jars import ICEBERG_SPARK, fetched
from servers.spark_sql import spark_sql
from servers.trino import trino
from tests.interop.readers.engines import CATALOG, Engine, OfDuckDB, OfFlink, OfPyIceberg, OfTrino, Spark
from tests.interop.readers.tables import Told, all_tables
from tests.processes.harness import Stream

ENGINES = ("spark", "trino", "duckdb", "flink", "pyiceberg")


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("interop")


@pytest.fixture(scope="session")
def home(root: Path) -> Path:
    """Of the embedded catalog that has all tables."""
    return Stream(root).home


@pytest.fixture(scope="session")
def tables(home: Path) -> dict[str, Told]:
    return all_tables(home)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Engine:
    """The engine of the test's parameter, which is its name."""
    found: Engine = request.getfixturevalue(f"of_{request.param}")
    return found


@pytest.fixture(scope="session")
def of_spark(root: Path, home: Path, tables: dict[str, Told]) -> Iterator[Engine]:
    assert tables
    catalog = f"spark.sql.catalog.{CATALOG}"
    conf = {
        "spark.jars": ",".join(map(str, fetched(ICEBERG_SPARK))),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{home}/catalog.db",
        f"{catalog}.warehouse": f"file://{home}/warehouse",
        f"{catalog}.cache-enabled": "false",
    }
    with spark_sql(root / "spark", conf) as server:
        yield Spark(server)


@pytest.fixture(scope="session")
def of_trino(root: Path, home: Path, tables: dict[str, Told]) -> Iterator[Engine]:
    assert tables
    properties = {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "jdbc",
        "iceberg.jdbc-catalog.driver-class": "org.sqlite.JDBC",
        "iceberg.jdbc-catalog.connection-url": f"jdbc:sqlite:{home}/catalog.db",
        "iceberg.jdbc-catalog.catalog-name": CATALOG,
        "iceberg.jdbc-catalog.default-warehouse-dir": f"file://{home}/warehouse",
        "iceberg.jdbc-catalog.schema-version": "V1",
        "fs.native-local.enabled": "true",
        "local.location": "/",
    }
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    with trino(root / "trino", {CATALOG: text}) as server:
        yield OfTrino(server)


@pytest.fixture(scope="session")
def of_flink(root: Path, home: Path, tables: dict[str, Told]) -> Iterator[Engine]:
    assert tables
    with flink(root / "flink") as server:
        server.sql(
            f"CREATE CATALOG {CATALOG} WITH ('type'='iceberg', 'catalog-impl'='org.apache.iceberg.jdbc.JdbcCatalog',"
            f" 'uri'='jdbc:sqlite:{home}/catalog.db', 'warehouse'='file://{home}/warehouse',"
            " 'jdbc.schema-version'='V1')"
        )
        yield OfFlink(server)


@pytest.fixture(scope="session")
def of_duckdb(tables: dict[str, Told]) -> Engine:
    assert tables
    setup = [f"INSTALL {name}" for name in duckdb_engine.EXTENSIONS]
    return OfDuckDB(duckdb_engine.installed(), [*setup, "LOAD iceberg"])


@pytest.fixture(scope="session")
def of_pyiceberg() -> Engine:
    return OfPyIceberg()
