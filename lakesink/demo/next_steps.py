"""Next steps: commands that work as printed, in the current folder."""

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from lakesink.demo.place import TABLE, Place
from lakesink.engines.spark_runtime import SPARK_RUNTIME
from lakesink.engines.target import SQLITE_DRIVER
from lakesink_catalog.connect.catalog import EMBEDDED_NAME, HOME_VARIABLE, CatalogConfig


@dataclass(frozen=True, slots=True)
class Step:
    """One command to try."""

    what: str  # in words
    command: str  # for a POSIX shell
    online: bool = False  # True if it downloads something


def next_steps(place: Place, as_of: tuple[int, int]) -> list[Step]:
    """Commands on the demo's table; `as_of` is a batch with its snapshot."""
    batch_id, snapshot_id = as_of
    home = f"{HOME_VARIABLE}={shlex.quote(str(place.lakehouse))}"
    command = shlex.quote(program("lakesink"))
    top = (
        "SELECT carrier, count(*) AS flights, sum(distance) AS miles FROM flights GROUP BY ALL ORDER BY 2 DESC LIMIT 5"
    )
    count = "SELECT count(*) AS flights, max(time_hour) AS last FROM flights"
    return [
        Step("every batch", f"{home} {command} log {TABLE} --catalog {EMBEDDED_NAME} --limit 100"),
        Step("state of the sink", f"{home} {command} status {TABLE} --catalog {EMBEDDED_NAME}"),
        Step("query with DuckDB", duckdb_command(TABLE, top)),
        Step(
            f"query with DuckDB as of batch {batch_id}",
            duckdb_command(TABLE, count, as_of=f"snapshot_id={snapshot_id}"),
        ),
        Step("query with Spark, which downloads Iceberg's runtime", _spark(place, snapshot_id), online=True),
    ]


def duckdb_command(table: str, query: str, *, as_of: str = "") -> str:
    """A query over the table's last name, with single quotes only, through PyIceberg alone: it does not need lakesink.

    The table is in the embedded catalog of ``LAKESINK_HOME``; `as_of` is an argument of PyIceberg's scan.
    """
    uri = CatalogConfig(EMBEDDED_NAME).find().properties["uri"]
    program = (
        "from pyiceberg.catalog import load_catalog; "
        f'load_catalog("{EMBEDDED_NAME}", type="sql", uri={json.dumps(uri)}).load_table("{table}")'
        f'.scan({as_of}).to_duckdb("{table.rpartition(".")[2]}").sql("{query}").show()'
    )
    return shlex.join([_shown(Path(sys.executable)), "-c", program])


def program(name: str) -> str:
    """The command for a program that is installed beside this Python."""
    beside = Path(sys.executable).with_name(name)
    return _shown(beside) if beside.exists() else name


def _spark(place: Place, snapshot_id: int) -> str:
    catalog = f"spark.sql.catalog.{EMBEDDED_NAME}"
    settings = {
        "spark.log.level": "ERROR",
        "spark.sql.catalogImplementation": "in-memory",  # else Spark leaves a Hive metastore in the current folder
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{place.lakehouse / 'catalog.db'}",
        f"{catalog}.warehouse": f"file://{place.lakehouse / 'warehouse'}",
    }
    query = f"SELECT count(*) FROM {EMBEDDED_NAME}.{TABLE} VERSION AS OF {snapshot_id}"
    confs = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    command = [program("spark-sql"), "--packages", f"{SPARK_RUNTIME},{SQLITE_DRIVER}", *confs, "-e", query]
    return f"PYSPARK_DRIVER_PYTHON={shlex.quote(_shown(Path(sys.executable)))} {shlex.join(command)}"


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
