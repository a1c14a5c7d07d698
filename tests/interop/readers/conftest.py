"""The tables and the engines, each made or started once. Engines are configured by what `lakesink engines` prints."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from servers import duckdb_engine
from servers.flink import flink
from servers.jars import ICEBERG_AWS_FLINK, ICEBERG_FLINK, fetched
from servers.spark_sql import spark_sql
from servers.trino import trino
from testkit.harness import Stream
from tests.interop.readers.engines import Engine, OfDuckDB, OfFlink, OfPyIceberg, OfTrino, Spark
from tests.interop.readers.places import EMBEDDED, TABLE, configured
from tests.interop.readers.printed import Printed, flink_jars, printed, spark_conf
from tests.interop.readers.tables import Told, all_tables

ENGINES = ("spark", "trino", "duckdb", "flink", "pyiceberg")
Recipes = Mapping[str, Mapping[str, Printed]]
"""By engine and place."""


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


@pytest.fixture(scope="session")
def places(root: Path, tables: dict[str, Told]) -> Iterator[Mapping[str, Told]]:
    """One table in a catalog of every kind."""
    with configured(root) as others:
        yield {EMBEDDED: tables[TABLE], **others}


@pytest.fixture(scope="session")
def recipes(home: Path, places: Mapping[str, Told]) -> Recipes:
    return {engine: {place: printed(home, engine, place, f"demo.{TABLE}") for place in places} for engine in ENGINES}


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Engine:
    """The engine of the test's parameter, which is its name."""
    found: Engine = request.getfixturevalue(f"of_{request.param}")
    return found


@pytest.fixture(scope="session")
def of_spark(root: Path, recipes: Recipes) -> Iterator[Engine]:
    with spark_sql(root / "spark", spark_conf(recipes["spark"].values())) as server:
        yield Spark(server)


@pytest.fixture(scope="session")
def of_trino(root: Path, recipes: Recipes) -> Iterator[Engine]:
    files = dict(recipe.file for recipe in recipes["trino"].values())
    catalogs = {name.removesuffix(".properties"): text for name, text in files.items()}
    with trino(root / "trino", catalogs) as server:
        yield OfTrino(server)


@pytest.fixture(scope="session")
def of_flink(root: Path, recipes: Recipes) -> Iterator[Engine]:
    told = list(recipes["flink"].values())
    assert flink_jars(told) == {jar.name for jar in (*fetched(ICEBERG_FLINK), *fetched(ICEBERG_AWS_FLINK))}
    with flink(root / "flink") as server:
        for statement in [statement for recipe in told for statement in recipe.statements]:
            server.sql(statement)
        yield OfFlink(server)


@pytest.fixture(scope="session")
def of_duckdb(recipes: Recipes) -> Engine:
    return OfDuckDB(duckdb_engine.installed(), recipes["duckdb"][EMBEDDED].statements)


@pytest.fixture(scope="session")
def of_pyiceberg() -> Engine:
    return OfPyIceberg()
