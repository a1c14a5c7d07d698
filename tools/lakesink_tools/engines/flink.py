"""Flink SQL with Iceberg's own catalog. Pure."""

from lakesink_tools.engines.recipe import File, Query, Recipe, first_queries, newest_batches, quoted, text_literal
from lakesink_tools.engines.recipe_input import FLINK_RUNTIME, Target, jars, java_catalog

ENGINE = "Flink 2.1"
_HADOOP = ("hadoop-client-api-3.4.2.jar", "hadoop-client-runtime-3.4.2.jar", "commons-logging-1.3.0.jar")


def recipe(target: Target) -> Recipe:
    """Statements for the SQL client or the SQL gateway."""
    names = [f"{'-'.join(jar.split(':')[1:])}.jar" for jar in jars(target, FLINK_RUNTIME)]
    jdbc, rest = {"catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog"}, {"catalog-type": "rest"}
    properties = {"type": "iceberg", **(jdbc if target.is_sql else rest), **java_catalog(target)}
    lines = ",\n".join(f"  {text_literal(name)} = {text_literal(value)}" for name, value in properties.items())
    catalog = quoted((target.catalog,), "`")
    return Recipe(
        engine=ENGINE,
        needs=(f"in Flink's lib folder: {', '.join((*names, *_HADOOP))}", *target.access),
        files=(
            File(
                f"{target.catalog}-flink.sql",
                "run it in every session, for example by sql-client.sh -i",
                f"SET 'execution.runtime-mode' = 'batch';\nCREATE CATALOG {catalog} WITH (\n{lines}\n);\n",
            ),
        ),
        queries=_queries(target),
        notes=(*target.notes, "Flink shows an earlier snapshot with the table's current columns."),
    )


def _queries(target: Target) -> tuple[Query, ...]:
    *namespaces, table = target.parts
    database = (target.catalog, ".".join(namespaces))
    snapshots = quoted((*database, f"{table}$snapshots"), "`")
    return first_queries(
        target.moment,
        table=quoted((*database, table), "`"),
        newest=newest_batches(snapshots, "summary['{}']"),
        at_snapshot="/*+ OPTIONS('snapshot-id'='{}') */",
        at_tag="/*+ OPTIONS('tag'={}) */",
    )
