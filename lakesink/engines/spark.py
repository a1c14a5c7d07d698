"""Spark SQL with Iceberg's own catalog. Pure."""

from lakesink.engines.java import jars, java_catalog
from lakesink.engines.queries import Words, first_queries, newest_batches, quoted
from lakesink.engines.recipe import ICEBERG_OF_SPARK, SAME_NAME, SPARK_RUNTIME, File, Recipe, properties_file
from lakesink.engines.target import Target

ENGINE = "Spark 4.1"


def recipe(target: Target) -> Recipe:
    """Settings for ``spark-defaults.conf``, and queries."""
    return Recipe(
        engine=ENGINE,
        needs=target.access,
        files=(
            File(
                f"{target.catalog}-spark.conf",
                "add it to spark-defaults.conf, or give it to spark-sql --properties-file",
                properties_file(_settings(target), " "),
            ),
        ),
        queries=first_queries(_words(target), target.moment),
        notes=(SAME_NAME.format(target.catalog),) if target.is_sql else (),
    )


def _settings(target: Target) -> dict[str, str]:
    catalog = f"spark.sql.catalog.{target.catalog}"
    return {
        "spark.jars.packages": ",".join((SPARK_RUNTIME, *jars(target, ICEBERG_OF_SPARK))),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc" if target.is_sql else "rest",
        **{f"{catalog}.{name}": value for name, value in java_catalog(target).items()},
        f"{catalog}.cache-enabled": "false",  # the cache shows tables as they were half a minute ago
    }


def _words(target: Target) -> Words:
    table = quoted((target.catalog, *target.parts), "`")
    return Words(
        table=table,
        newest=newest_batches(f"{table}.snapshots", "summary['{}']"),
        at_snapshot="VERSION AS OF {}",
        at_tag="VERSION AS OF {}",
    )
