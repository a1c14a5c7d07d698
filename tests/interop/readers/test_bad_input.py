"""What users meet beside other engines: said clearly by lakesink, or known by the engine's own words."""

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakesink_catalog.connect.catalog import EMBEDDED_NAME, connect
from lakesink_catalog.tables.tables import load_table
from lakesink_tools.cli.main import main
from servers.jars import ICEBERG_SPARK, fetched
from servers.spark_sql import SparkFailed, SparkSQL, spark_sql
from testkit.builders import SCHEMA, TABLE, Chance, FaultyCatalog, Lake, Stream, expected
from tests.interop.readers.conftest import Recipes
from tests.interop.readers.engines import CATALOG, Engine, OfFlink, Spark
from tests.interop.readers.places import EMBEDDED
from tests.interop.readers.printed import printed
from tests.interop.readers.tables import Told

pytestmark = pytest.mark.interop

KEYED = Schema(
    *(column.model_copy(update={"required": column.name == "batch"}) for column in SCHEMA.fields),
    identifier_field_ids=[1],
)
ONE = Schema(NestedField(1, "id", LongType(), required=False))


@pytest.fixture(scope="module")
def upserted(home: Path, of_flink: OfFlink, tables: dict[str, Told]) -> Lake:
    """A stream's table, in which Flink has put one row in the place of a batch, by equality; the stream goes on."""
    assert tables  # it is one of them
    uri, warehouse = f"sqlite:///{home}/catalog.db", f"file://{home}/warehouse"
    lake = Lake(home, FaultyCatalog(EMBEDDED_NAME, uri=uri, warehouse=warehouse))
    lake.create(KEYED)
    a_minute_ago = time.time_ns() // 1_000_000 - 60_000  # Java wants the history in order
    stream = Stream(lake, chance=Chance(itertools.count(a_minute_ago))).filled(3)
    hint = "/*+ OPTIONS('upsert-enabled'='true') */"
    of_flink.server.sql(f"INSERT INTO {CATALOG}.{TABLE} {hint} VALUES (CAST(1 AS BIGINT), CAST(77 AS BIGINT), 0)")
    stream.run(3)
    return lake


@pytest.mark.parametrize("engine", ["spark", "trino", "flink", "duckdb"], indirect=True)
def test_a_table_that_gains_equality_deletes_is_read_where_they_are_applied(engine: Engine, upserted: Lake) -> None:
    rows = engine.read(upserted.table(), KEYED)
    assert sorted((row["batch"], row["position"]) for row in rows) == sorted([*expected(0, 2, 3), (1, 77)])


def test_pyiceberg_is_not_sent_to_equality_deletes(home: Path, upserted: Lake) -> None:
    assert upserted.head() is not None
    assert refusal(home, TABLE, "pyiceberg")["code"] == "LAKESINK_DELETES_UNSUPPORTED"


def test_a_view_of_spark_is_said_to_be_one(home: Path, of_spark: Spark) -> None:
    of_spark.server.sql(f"CREATE VIEW {CATALOG}.demo.seen AS SELECT * FROM {CATALOG}.demo.evolved")
    error = refusal(home, "demo.seen", "trino")
    assert (error["code"], error["what"]) == (
        "LAKESINK_TABLE_IS_VIEW",
        "demo.seen in the catalog 'lakehouse' is a view.",
    )


@pytest.mark.parametrize("engine", ["spark", "trino", "flink", "duckdb", "pyiceberg"], indirect=True)
def test_a_table_of_version_3_is_read_and_said_to_be_one(engine: Engine, home: Path, of_spark: Spark) -> None:
    name = f"third_{engine.name}"
    of_spark.server.sql(f"CREATE TABLE {CATALOG}.demo.{name} (id BIGINT) TBLPROPERTIES ('format-version' = '3')")
    of_spark.server.sql(f"INSERT INTO {CATALOG}.demo.{name} VALUES (1), (2)")
    recipe = printed(home, engine.name, EMBEDDED, f"demo.{name}")
    assert "The table is of format version 3; this was tried with version 2." in recipe.text
    uri = f"sqlite:///{home}/catalog.db"
    table = load_table(connect(EMBEDDED_NAME, {"uri": uri, "warehouse": f"file://{home}/warehouse"}), f"demo.{name}")
    assert sorted(row["id"] for row in engine.read(table, ONE)) == [1, 2]


@pytest.fixture(scope="module")
def ill_configured(root: Path, recipes: Recipes) -> Iterator[SparkSQL]:
    """Spark without PostgreSQL's driver, and with the catalog under another name."""
    settings = recipes["spark"][EMBEDDED].settings
    renamed = {name.replace(f".{EMBEDDED}", ".another"): value for name, value in settings.items()}
    kept = {name: value for name, value in renamed.items() if name != "spark.jars.packages"}
    undriven = {name.replace(".another", ".undriven"): value for name, value in kept.items()}
    undriven["spark.sql.catalog.undriven.uri"] = "jdbc:postgresql://127.0.0.1:1/lake"
    jars = [str(jar) for jar in fetched(ICEBERG_SPARK) if not jar.name.startswith("postgresql")]
    with spark_sql(root / "ill-configured", {**undriven, **kept, "spark.jars": ",".join(jars)}) as server:
        yield server


def test_a_missing_driver_is_known_by_sparks_words(ill_configured: SparkSQL) -> None:
    with pytest.raises(SparkFailed, match="No suitable driver"):
        ill_configured.sql("SELECT * FROM undriven.demo.kinds")


def test_another_name_of_the_catalog_is_known_by_sparks_words(ill_configured: SparkSQL) -> None:
    assert ill_configured.sql("SHOW NAMESPACES IN another").num_rows == 0
    with pytest.raises(SparkFailed, match="TABLE_OR_VIEW_NOT_FOUND"):
        ill_configured.sql("SELECT * FROM another.demo.kinds")


def test_another_name_of_the_catalog_is_known_by_flinks_words(of_flink: OfFlink, recipes: Recipes) -> None:
    [create] = [part for part in recipes["flink"][EMBEDDED].statements if part.startswith("CREATE CATALOG")]
    of_flink.server.sql(create.replace(f"`{EMBEDDED}`", "`another`"))
    with pytest.raises(of_flink.failure, match="Object 'demo' not found within 'another'"):
        of_flink.server.sql("SELECT * FROM another.demo.kinds")


def refusal(home: Path, table: str, engine: str) -> dict[str, Any]:
    arguments = ["engines", table, "--for", engine, "--catalog", EMBEDDED, "--output", "json"]
    done = CliRunner().invoke(main, arguments, env={"LAKESINK_HOME": str(home)})
    assert done.exit_code == 2, done.output
    error: dict[str, Any] = json.loads(done.stdout)["error"]
    return error
