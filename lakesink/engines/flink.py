"""Flink SQL with Iceberg's own catalog. Pure."""

from lakesink.engines.java import jars, java_catalog
from lakesink.engines.queries import Words, first_queries, newest_batches, quoted, text_literal
from lakesink.engines.recipe import FLINK_RUNTIME, ICEBERG_OF_FLINK, SAME_NAME, File, Recipe
from lakesink.engines.target import Target

ENGINE = "Flink 2.1"
_HADOOP = ("hadoop-client-api-3.4.2.jar", "hadoop-client-runtime-3.4.2.jar", "commons-logging-1.3.0.jar")


def recipe(target: Target) -> Recipe:
    """Statements for the SQL client or the SQL gateway."""
    names = [f"{'-'.join(jar.split(':')[1:])}.jar" for jar in (FLINK_RUNTIME, *jars(target, ICEBERG_OF_FLINK))]
    return Recipe(
        engine=ENGINE,
        needs=(f"in Flink's lib folder: {', '.join((*names, *_HADOOP))}", *target.access),
        files=(
            File(
                f"{target.catalog}-flink.sql",
                "run it in every session, for example by sql-client.sh -i",
                _setup(target),
            ),
        ),
        queries=first_queries(_words(target), target.moment),
        notes=(
            *((SAME_NAME.format(target.catalog),) if target.is_sql else ()),
            "Flink shows a snapshot of the past under the table's present columns.",
        ),
    )


def _setup(target: Target) -> str:
    jdbc, rest = {"catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog"}, {"catalog-type": "rest"}
    properties = {"type": "iceberg", **(jdbc if target.is_sql else rest), **java_catalog(target)}
    lines = ",\n".join(f"  {text_literal(name)} = {text_literal(value)}" for name, value in properties.items())
    catalog = quoted((target.catalog,), "`")
    return f"SET 'execution.runtime-mode' = 'batch';\nCREATE CATALOG {catalog} WITH (\n{lines}\n);\n"


def _words(target: Target) -> Words:
    *namespaces, table = target.parts
    database = (target.catalog, ".".join(namespaces))
    snapshots = quoted((*database, f"{table}$snapshots"), "`")
    return Words(
        table=quoted((*database, table), "`"),
        newest=newest_batches(snapshots, "summary['{}']"),
        at_snapshot="/*+ OPTIONS('snapshot-id'='{}') */",
        at_tag="/*+ OPTIONS('tag'={}) */",
    )
