"""What `lakesink engines` prints runs as it is printed: configuration, first queries, and the way back to a batch."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from servers.duckdb_engine import DuckDB, installed
from tests.interop.readers.conftest import Recipes
from tests.interop.readers.engines import Engine, Rows
from tests.interop.readers.known import as_read
from tests.interop.readers.places import EMBEDDED, OBJECTS, PASSWORD, POSTGRES, REST
from tests.interop.readers.printed import Printed, printed
from tests.interop.readers.tables import Batch, Told
from tests.readers.engines import canonical_rows

pytestmark = pytest.mark.interop

PLACES = (EMBEDDED, POSTGRES, REST, OBJECTS)
COUNT = Schema(NestedField(1, "found", LongType(), required=False))
NEWEST = Schema(
    NestedField(1, "committed_at", TimestamptzType(), required=False),
    NestedField(2, "snapshot_id", LongType(), required=False),
    NestedField(3, "sink_id", StringType(), required=False),
    NestedField(4, "batch_id", StringType(), required=False),
    NestedField(5, "added_records", StringType(), required=False),
)
AS_OF, BY_TAG = "the table as of batch {}", "the table as of batch {}, by its tag"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("engine", ["spark", "trino", "flink"], indirect=True)
def test_first_queries_run_as_they_are_printed(
    engine: Engine, place: str, recipes: Recipes, places: Mapping[str, Told]
) -> None:
    told, recipe = places[place], recipes[engine.name][place]
    assert counted(engine, recipe.query("how many rows")) == len(told.head.rows)
    newest = engine.rows(recipe.query("the newest batches"), NEWEST)
    assert [(row["snapshot_id"], row["sink_id"], row["batch_id"], row["added_records"]) for row in newest] == [
        (batch.snapshot_id, "rows", str(batch.number), "12") for batch in reversed(told.batches)
    ]
    for way in (AS_OF, BY_TAG):
        same(engine.name, engine.rows(recipe.query(way.format(2)), told.head.schema), told.batches[2])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["spark", "trino", "flink", "duckdb"])
def test_an_earlier_batch_is_asked_for_by_its_number(
    name: str, place: str, home: Path, places: Mapping[str, Told], request: pytest.FixtureRequest
) -> None:
    told, recipe = places[place], printed(home, name, place, "demo.kinds", "--batch", "0")
    if name == "duckdb":
        found: Rows = by_duckdb(recipe, AS_OF.format(0)).to_pylist()
    else:
        engine: Engine = request.getfixturevalue(f"of_{name}")
        found = engine.rows(recipe.query(AS_OF.format(0)), told.head.schema)
    same(name, found, told.batches[0])


@pytest.mark.parametrize("place", PLACES)
def test_duckdb_runs_what_is_printed_for_it(place: str, recipes: Recipes, places: Mapping[str, Told]) -> None:
    told, recipe = places[place], recipes["duckdb"][place]
    assert by_duckdb(recipe, "how many rows").to_pylist() == [{"count_star()": 36}]
    snapshots = by_duckdb(recipe, "the newest batches").column("snapshot_id").to_pylist()
    assert snapshots == [batch.snapshot_id for batch in reversed(told.batches)]
    same("duckdb", by_duckdb(recipe, AS_OF.format(2)).to_pylist(), told.batches[2])


@pytest.mark.parametrize("place", PLACES)
def test_pyiceberg_runs_what_is_printed_for_it(place: str, recipes: Recipes, places: Mapping[str, Told]) -> None:
    told, recipe = places[place], recipes["pyiceberg"][place]
    known: dict[str, Any] = {}
    exec(recipe.file[1], known)  # noqa: S102 - the program that was printed
    assert evaluated(recipe, "how many rows", known) == 36
    newest = evaluated(recipe, "the newest batches", known)
    assert newest.column("snapshot_id").to_pylist() == [batch.snapshot_id for batch in reversed(told.batches)]
    for way in (AS_OF, BY_TAG):
        same("pyiceberg", evaluated(recipe, way.format(2), known).to_pylist(), told.batches[2])


def test_no_secret_is_in_what_is_printed(recipes: Recipes) -> None:
    for recipe in recipes.values():
        for one in recipe.values():
            for secret in (PASSWORD, "c4n4ry", os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]):
                assert secret not in f"{one.text}{one.document}"


def counted(engine: Engine, query: str) -> int:
    [row] = engine.rows(f"SELECT found FROM ({query}) AS t (found)", COUNT)
    return int(row["found"])


def by_duckdb(recipe: Printed, what: str) -> Any:
    duckdb: DuckDB = installed()
    return duckdb.sql(*recipe.statements, recipe.query(what))


def evaluated(recipe: Printed, what: str, known: dict[str, Any]) -> Any:
    return eval(recipe.query(what), known)  # noqa: S307 - the expression that was printed


def same(engine: str, found: Rows, batch: Batch) -> None:
    wanted = as_read(engine, "kinds", batch.rows, batch.schema)
    assert canonical_rows(found, batch.schema) == canonical_rows(wanted, batch.schema)
