"""Iceberg's Java catalog and PyIceberg's write one table in one PostgreSQL, by turns and at once: each row once."""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_tools.audit.audit import audit
from servers.jars import ICEBERG_SPARK, fetched
from servers.postgres import USER, Postgres, postgres_server
from servers.spark_sql import SparkFailed, SparkSQL, spark_sql
from testkit.harness import Stream, expected, rows_of

pytestmark = pytest.mark.interop
PASSWORD = "s3cret-of-the-catalog"  # noqa: S105 - of a database that lives for these tests
FILES = 6
TURNS = 2
INSERTS = 12
FOREIGN_FILE = -1


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres_server(PASSWORD) as running:
        yield running


@pytest.fixture(scope="module")
def properties(server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    return {"uri": f"postgresql://{USER}:{PASSWORD}@{server.address}", "warehouse": f"file://{warehouse}"}


@pytest.fixture(scope="module")
def java(server: Postgres, properties: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSQL]:
    catalog = "spark.sql.catalog.lake"
    conf = {
        "spark.jars": ",".join(map(str, fetched(ICEBERG_SPARK))),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:postgresql://{server.address}",
        f"{catalog}.jdbc.user": USER,
        f"{catalog}.jdbc.password": PASSWORD,
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": properties["warehouse"],
        f"{catalog}.cache-enabled": "false",
    }
    with spark_sql(tmp_path_factory.mktemp("java"), conf) as session:
        yield session


@pytest.fixture
def stream(tmp_path: Path, properties: dict[str, Any], request: pytest.FixtureRequest) -> Stream:
    table = f"demo.{request.node.name.partition('[')[0][5:30]}"
    create_table(connect("lake", properties), table, pa.schema([("file", pa.int64()), ("row", pa.int64())]))
    environment = {f"PYICEBERG_CATALOG__LAKE__{key.upper()}": value for key, value in properties.items()}
    return Stream(tmp_path / "stream", {"catalog": "lake"}, table=table, environment=environment)


def load(stream: Stream, properties: dict[str, Any]) -> Table:
    return load_table(connect("lake", properties), stream.table)


def insert(java: SparkSQL, table: str, row: int) -> bool:
    """True if the row is in; a commit that came too late too often is given up by Spark, and is not."""
    try:
        java.sql(f"INSERT INTO lake.{table} VALUES ({FOREIGN_FILE}, {row})")
    except SparkFailed as error:
        if "CommitFailedException" not in str(error):
            raise
        return False
    return True


def check(stream: Stream, java: SparkSQL, properties: dict[str, Any], foreign: Counter[tuple[int, int]]) -> None:
    """PyIceberg and Java see the same rows, each once, and the audit is clean."""
    table = load(stream, properties)
    wanted = expected(range(FILES)) + foreign
    assert rows_of(table) == wanted
    found = java.sql(f"SELECT file, row FROM lake.{stream.table}").to_pylist()
    assert Counter((row["file"], row["row"]) for row in found) == wanted
    assert audit(table, sink=stream.sink_id).findings == ()


def test_a_stream_and_spark_write_by_turns(stream: Stream, java: SparkSQL, properties: dict[str, Any]) -> None:
    foreign: Counter[tuple[int, int]] = Counter()
    for turn in range(TURNS):
        assert insert(java, stream.table, turn)
        foreign[FOREIGN_FILE, turn] += 1
        stream.add_files(turn * FILES // TURNS, (turn + 1) * FILES // TURNS)
        assert stream.run() == 0, stream.log()
    check(stream, java, properties, foreign)


def test_a_stream_that_is_killed_and_spark_write_at_once(
    stream: Stream, java: SparkSQL, properties: dict[str, Any]
) -> None:
    stream.add_files(0, FILES)
    landed: list[int] = []

    def inserts() -> None:
        landed.extend(row for row in range(INSERTS) if insert(java, stream.table, row))

    beside = threading.Thread(target=inserts)
    beside.start()
    assert stream.run("after-call@1=kill") == -9, stream.log()
    assert stream.run("after-prepared@3=kill") == -9, stream.log()
    assert stream.run() == 0, stream.log()
    beside.join()
    assert landed
    check(stream, java, properties, Counter((FOREIGN_FILE, row) for row in landed))
