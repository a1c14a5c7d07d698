"""Next steps: short commands that work as printed, in the current folder. The demo's folder has the files for them."""

import shlex
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from lakesink_catalog.connect.catalog import EMBEDDED_NAME, HOME_VARIABLE, CatalogConfig
from lakesink_catalog.tables.tables import load_table, parse_identifier
from lakesink_tools.demo.place import TABLE, Place
from lakesink_tools.engines import pyiceberg, spark
from lakesink_tools.engines.recipe_input import Target, target_of
from lakesink_tools.engines.spark_runtime import lacks_runtime

_QUERY = """
# Arguments: a snapshot to read instead of the newest one, and another query.
snapshot_id = int(sys.argv[1]) if sys.argv[1:] else None
query = sys.argv[2] if sys.argv[2:] else {query!r}
table.scan(snapshot_id=snapshot_id).to_duckdb({name!r}).sql(query).show()
"""


@dataclass(frozen=True, slots=True)
class NextStep:
    """One command to try."""

    what: str  # in words
    command: str  # for a POSIX shell
    online: bool = False  # True if it downloads something


def next_steps(place: Place, as_of: tuple[int, int]) -> list[NextStep]:
    """Commands on the demo's table; `as_of` is a batch with its snapshot."""
    batch_id, snapshot_id = as_of
    top = (
        "SELECT carrier, count(*) AS flights, sum(distance) AS miles FROM flights GROUP BY ALL ORDER BY 2 DESC LIMIT 5"
    )
    query, count = duckdb_command(place, TABLE, top), "SELECT count(*) AS flights, max(time_hour) AS last FROM flights"
    steps = [
        NextStep("every batch", lakesink_command(place, "log", TABLE)),
        NextStep("state of the sink", lakesink_command(place, "status", TABLE)),
        NextStep("query with DuckDB", query),
        NextStep(f"query with DuckDB as of batch {batch_id}", f'{query} {snapshot_id} "{count}"'),
    ]
    if not lacks_runtime(version("pyspark")):
        what = "query with Spark, which downloads Iceberg's runtime"
        steps.append(NextStep(what, _spark_command(place, snapshot_id), online=True))
    return steps


def lakesink_command(place: Place, *arguments: str) -> str:
    """A command of lakesink that names the demo's catalog, because the user may have another default."""
    beside = Path(sys.executable).with_name("lakesink")
    program = _shown(beside) if beside.exists() else beside.name
    variable = f"{HOME_VARIABLE}={shlex.quote(_shown(place.lakehouse))}"
    return f"{variable} {shlex.join([program, *arguments, '--catalog', EMBEDDED_NAME])}"


def duckdb_command(place: Place, table: str, query: str) -> str:
    """Write a program that queries a table, and return its command; a snapshot and another query may follow.

    It reads the table through PyIceberg alone: it does not need lakesink.
    """
    target, program = _target(table), place.home / "query.py"
    [loads] = pyiceberg.recipe(target).files
    program.write_text(f"import sys\n\n{loads.text}{_QUERY.format(query=query, name=target.parts[-1])}")
    return shlex.join([_shown(Path(sys.executable)), _shown(program)])


def _spark_command(place: Place, snapshot_id: int) -> str:
    [settings] = spark.recipe(_target(TABLE)).files
    file = place.home / "spark.conf"
    # In memory, or Spark leaves a Hive metastore in the current folder.
    file.write_text(f"{settings.text}spark.log.level ERROR\nspark.sql.catalogImplementation in-memory\n")
    query = f"SELECT count(*) FROM {EMBEDDED_NAME}.{TABLE} VERSION AS OF {snapshot_id}"
    # On the path, because spark-sql looks for a python3 that has PySpark.
    path = f"PATH={shlex.quote(_shown(Path(sys.executable).parent))}:$PATH"
    return f'{path} spark-sql --properties-file {shlex.quote(_shown(file))} -e "{query}"'


def _target(table: str) -> Target:
    found = CatalogConfig(EMBEDDED_NAME).find()
    return target_of(found, load_table(found.open(create=False), table), parse_identifier(table), None)


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
