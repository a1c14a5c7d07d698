"""Spark SQL with Iceberg's own catalog. Pure."""

from lakesink_tools.engines.recipe import File, Recipe, first_queries, newest_batches, properties_file, quoted
from lakesink_tools.engines.recipe_input import Target, jars, java_catalog
from lakesink_tools.engines.spark_runtime import NEWEST_SPARK, SPARK_RUNTIME

ENGINE = f"Spark {NEWEST_SPARK}"


def recipe(target: Target) -> Recipe:
    """Settings for ``spark-defaults.conf``, and queries."""
    table = quoted((target.catalog, *target.parts), "`")
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
        queries=first_queries(
            target.moment,
            table=table,
            newest=newest_batches(f"{table}.snapshots", "summary['{}']"),
            at_snapshot="VERSION AS OF {}",
            at_tag="VERSION AS OF {}",
        ),
        notes=target.notes,
    )


def _settings(target: Target) -> dict[str, str]:
    catalog = f"spark.sql.catalog.{target.catalog}"
    return {
        "spark.jars.packages": ",".join(jars(target, SPARK_RUNTIME)),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc" if target.is_sql else "rest",
        **{f"{catalog}.{name}": value for name, value in java_catalog(target).items()},
        f"{catalog}.cache-enabled": "false",  # the cache shows tables as they were half a minute ago
    }
