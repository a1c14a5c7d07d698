"""What each engine is told, by kind of catalog and storage: nothing secret, names where a secret belongs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from lakesink_catalog.connect.catalog import CatalogConfig, FoundCatalog
from lakesink_tools.engines import duckdb, flink, pyiceberg, spark, trino
from lakesink_tools.engines.recipe import Moment, Recipe
from lakesink_tools.engines.recipe_input import Rest, Target, postgres, sqlite, target_of
from lakesink_tools.past.resolve_snapshot import queries
from testkit.builders import Lake

CANARY = "c4n4ry-Sw0rdfish"
RECIPES: Mapping[str, Callable[[Target], Recipe]] = {
    "spark": spark.recipe,
    "trino": trino.recipe,
    "flink": flink.recipe,
    "duckdb": duckdb.recipe,
    "pyiceberg": pyiceberg.recipe,
}
S3 = {
    "s3.endpoint": "http://127.0.0.1:9000",
    "s3.region": "eu-central-1",
    "s3.access-key-id": CANARY,
    "s3.secret-access-key": CANARY,
}
SECRET: Mapping[str, Mapping[str, str]] = {
    "postgres": {"uri": f"postgresql://lake:{CANARY}@db:5433/lake?sslmode=require", "warehouse": "s3://lake/w", **S3},
    "rest-token": {"type": "rest", "uri": f"https://me:{CANARY}@host/api", "token": CANARY, "prefix": "main", **S3},
    "rest-credential": {"type": "rest", "uri": "https://host", "credential": f"me:{CANARY}", "header.X-Key": CANARY},
}


def target(lake: Lake, properties: Mapping[str, Any], name: str = "lake") -> Target:
    found = FoundCatalog(name, CatalogConfig(name, properties).find().properties)
    return target_of(found, lake.table(), ("demo", "events"), None)


def everything(recipe: Recipe) -> str:
    return "\n".join(
        [*recipe.needs, *recipe.notes, *(file.text for file in recipe.files), *(query.text for query in recipe.queries)]
    )


@pytest.mark.parametrize("engine", RECIPES)
@pytest.mark.parametrize("kind", SECRET)
def test_no_secret_of_the_configuration_is_printed(lake: Lake, engine: str, kind: str) -> None:
    wanted = target(lake, SECRET[kind])
    assert CANARY not in repr(wanted)
    assert CANARY not in everything(RECIPES[engine](wanted))


def test_a_database_is_told_without_its_password(lake: Lake) -> None:
    assert target(lake, SECRET["postgres"]).backend == postgres("db", 5433, "lake", "lake", "require")
    text = everything(spark.recipe(target(lake, SECRET["postgres"])))
    assert "spark.sql.catalog.lake.uri jdbc:postgresql://db:5433/lake?sslmode=require\n" in text
    assert "db:5433:lake:lake:..." in text


def test_a_sqlite_file_is_told_by_its_absolute_path(lake: Lake) -> None:
    found = target(lake, {"uri": f"sqlite:///{lake.folder}/catalog.db"})
    assert found.backend == sqlite(f"{lake.folder}/catalog.db")


def test_secrets_of_a_service_are_named_by_variables(lake: Lake) -> None:
    backend = target(lake, SECRET["rest-token"], "lake-1").backend
    assert isinstance(backend, Rest)
    assert (backend.uri, backend.properties, backend.secrets) == (
        "https://host/api",
        {"prefix": "main"},
        {"token": "LAKE_1_TOKEN"},
    )


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        ("spark", "spark.sql.catalog.lake.token env:LAKE_TOKEN"),
        ("trino", "iceberg.rest-catalog.oauth2.token=${ENV:LAKE_TOKEN}"),
        ("flink", "'token' = 'env:LAKE_TOKEN'"),
        ("duckdb", "CREATE SECRET lakesink_catalog (TYPE iceberg, TOKEN '<LAKE_TOKEN>');"),
        ("pyiceberg", "'token': os.environ['LAKE_TOKEN'],"),
    ],
)
def test_each_engine_takes_a_token_from_where_it_can(lake: Lake, engine: str, line: str) -> None:
    assert line in everything(RECIPES[engine](target(lake, SECRET["rest-token"])))


@pytest.mark.parametrize(
    ("engine", "lines"),
    [
        ("spark", ("spark.sql.catalog.lake.io-impl org.apache.iceberg.aws.s3.S3FileIO", "iceberg-aws-bundle:1.12.0")),
        ("trino", ("fs.native-s3.enabled=true", "s3.path-style-access=true", "s3.region=eu-central-1")),
        ("flink", ("'s3.endpoint' = 'http://127.0.0.1:9000'", "iceberg-aws-bundle-1.11.0.jar")),
        ("duckdb", ("ENDPOINT '127.0.0.1:9000', URL_STYLE 'path', USE_SSL false",)),
        ("pyiceberg", ("'s3.endpoint': 'http://127.0.0.1:9000',",)),
    ],
)
def test_an_object_store_is_told_where_the_table_is_on_one(lake: Lake, engine: str, lines: tuple[str, ...]) -> None:
    properties = {"uri": f"sqlite:///{lake.folder}/catalog.db", **S3}
    table = lake.table()
    table.metadata = table.metadata.model_copy(update={"location": "s3://lake/demo/events"})
    found = CatalogConfig("lake", properties).find()
    text = everything(RECIPES[engine](target_of(found, table, ("demo", "events"), None)))
    for line in lines:
        assert line in text


@pytest.mark.parametrize("engine", ["spark", "trino", "flink", "duckdb"])
def test_no_object_store_is_told_where_the_table_is_in_local_files(lake: Lake, engine: str) -> None:
    text = everything(RECIPES[engine](target(lake, {"uri": f"sqlite:///{lake.folder}/catalog.db", **S3})))
    assert "eu-central-1" not in text
    assert "AWS" not in text


@pytest.mark.parametrize(("snapshot_id", "shown"), [(2**31 - 1, "BIGINT '2147483647'"), (2**31, "2147483648")])
def test_trino_is_told_a_small_snapshot_id_as_what_it_is(lake: Lake, snapshot_id: int, shown: str) -> None:
    found = replace(target(lake, {"uri": f"sqlite:///{lake.folder}/catalog.db"}), moment=Moment("then", snapshot_id))
    assert trino.recipe(found).queries[2].text.endswith(f"FOR VERSION AS OF {shown}")
    assert shown in queries(("demo", "events"), "file:///m.json", snapshot_id, None)["Trino"]


def test_trino_says_what_it_has_no_setting_for(lake: Lake) -> None:
    assert trino.recipe(target(lake, SECRET["rest-credential"])).notes[0] == (
        "Trino has no equivalent setting for header.X-Key."
    )


@pytest.mark.parametrize("name", ["it's", "select", "a`b", 'a"b', "with blank", "日本"])
def test_names_are_quoted_as_each_engine_does(lake: Lake, name: str) -> None:
    found = target(lake, {"uri": f"sqlite:///{lake.folder}/catalog.db"}, "lake")
    odd = replace(found, parts=("demo", name))
    assert f"`{name.replace('`', '``')}`" in spark.recipe(odd).queries[0].text
    assert f'"{name.replace(chr(34), chr(34) * 2)}"' in trino.recipe(odd).queries[0].text
    assert f"('demo', {name!r})" in pyiceberg.recipe(odd).files[0].text
