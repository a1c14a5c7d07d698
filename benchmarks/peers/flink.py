"""Flink's Iceberg sink, by Flink SQL: one job that goes on, two tasks, a checkpoint every 2 seconds."""

import sys
from functools import partial
from pathlib import Path

from benchmarks.peers.measure import NAMESPACE, Lake, PeerFailed, PeerRun, measured, warm_topic
from servers.flink import Flink, FlinkFailed
from servers.jars import FLINK_KAFKA

PARALLELISM = 2
_OPENED = ("lang", "lang.reflect", "math", "net", "nio", "text", "time", "util", "util.concurrent")
JAVA_OPTIONS = ("-Xmx3g", *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED))
CONFIG = {
    "execution.runtime-mode": "streaming",
    "execution.checkpointing.interval": "2s",
    "table.dml-sync": "true",  # so that an operation is its job
    "restart-strategy.type": "none",  # an error is told, not tried again
    "parallelism.default": str(PARALLELISM),
    "taskmanager.memory.managed.size": "128m",
}
_COLUMNS = """id BIGINT, customer BIGINT, quantity BIGINT, price DOUBLE, weight DOUBLE, amount DECIMAL(12, 2),
    `at` TIMESTAMP_LTZ(6), paid BOOLEAN, city STRING, note STRING"""


def run(broker: str, topic: str, rows: int, place: Path) -> PeerRun:
    """Read a topic of `benchmarks.peers.events` into a table, once to warm up and once for the clock.

    Args:
        broker: For ``bootstrap.servers``.
        topic: Holds the events.
        rows: As many as it has.
        place: An empty folder.

    Raises:
        PeerFailed: It did not get there.
        JarsMissing: See `servers.jars.fetched`.
    """
    lake = Lake(place)
    lake.create("warm", "events")
    server = Flink(place, java_options=JAVA_OPTIONS, config=CONFIG, more_jars=(FLINK_KAFKA,))
    try:
        server.start()
        create_catalog(server, lake)
        warm, warm_rows = warm_topic(broker, topic, rows)
        warming = start(server, lake, broker, warm, "warm")
        lake.wait("warm", warm_rows, partial(check, server, warming))
        server.cancel(warming)
        assert server.process is not None
        return measured(
            lake,
            "events",
            rows,
            server.process.pid,
            lambda: partial(check, server, start(server, lake, broker, topic, "events")),
        )
    except FlinkFailed as error:
        raise PeerFailed(str(error)) from error
    finally:
        server.stop()


def create_catalog(server: Flink, lake: Lake) -> None:
    """Make the lake known to a session, under its catalog's name."""
    properties = {"type": "iceberg", **lake.java_properties}
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    server.sql(f"CREATE CATALOG {lake.catalog} WITH ({listed})")


def start(server: Flink, lake: Lake, broker: str, topic: str, table: str, columns: str = _COLUMNS) -> str:
    """Start the job that reads a topic of JSON into a table; returns the handle of its operation."""
    source = {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": broker,
        "scan.startup.mode": "earliest-offset",
        "format": "json",
        "json.timestamp-format.standard": "ISO-8601",
    }
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in source.items())
    server.sql(f"CREATE TEMPORARY TABLE from_{table} ({columns}) WITH ({listed})")
    return server.begin(f"INSERT INTO {lake.catalog}.{NAMESPACE}.{table} SELECT * FROM from_{table}")


def check(server: Flink, operation: str) -> None:
    """Raise `FlinkFailed` or `PeerFailed` if the job has ended."""
    status = server.status(operation)
    if status == "ERROR":
        server.result(operation)
    if status == "FINISHED":
        raise PeerFailed("Flink's job has ended by itself")


if __name__ == "__main__":
    print(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])))
