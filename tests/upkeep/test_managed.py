"""A table that another service compacts is known by properties that say so, and by nothing else."""

import pytest

from lakesink.sinks.iceberg.upkeep.policy import manager_of

S3_TABLES = "Amazon S3 Tables"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rest.signing-name", "s3tables"),
        ("warehouse", "arn:aws:s3tables:us-east-1:111122223333:bucket/analytics"),
        ("warehouse", "arn:aws-cn:s3tables:cn-north-1:111122223333:bucket/analytics"),
        ("warehouse", "111122223333:s3tablescatalog/analytics"),
        ("uri", "https://s3tables.eu-central-1.amazonaws.com/iceberg"),
    ],
)
def test_a_catalog_of_table_buckets_maintains_its_tables(name: str, value: str) -> None:
    found = manager_of({"type": "rest", name: value}, {})
    assert found is not None
    assert (found.name, found.said_by) == (S3_TABLES, f"the catalog's property {name}")


@pytest.mark.parametrize(
    "catalog",
    [
        {},
        {"rest.signing-name": "glue", "uri": "https://glue.eu-central-1.amazonaws.com/iceberg", "warehouse": "1111"},
        {"warehouse": "s3://s3tables/warehouse", "uri": "https://catalog.example/s3tables."},
        {"warehouse": "s3tables", "uri": None},
    ],
)
def test_other_catalogs_do_not(catalog: dict[str, str]) -> None:
    assert manager_of(catalog, {}) is None


@pytest.mark.parametrize(("value", "maintained"), [("true", True), ("TRUE", True), ("false", False), ("", False)])
def test_a_table_says_that_amoro_optimizes_it(value: str, maintained: bool) -> None:  # noqa: FBT001 - a value of the table
    found = manager_of({}, {"self-optimizing.enabled": value, "self-optimizing.group": "default"})
    assert (found is not None and found.name == "Apache Amoro") is maintained
