"""The sinks of the table at work: how each is put together over a stream, and what a reader sees of its target."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

import duckdb
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

import lakesink
from examples.guarantees.at_least_once import AtLeastOnce
from examples.guarantees.at_most_once import AtMostOnce
from examples.guarantees.folders import FolderSink
from examples.guarantees.key_value import KeyValue
from examples.guarantees.store import Store
from examples.guarantees.write_ahead_log import WriteAheadLog
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.errors import CatalogError
from proof.guarantees.cells import Row
from proof.guarantees.pravega_streams import events_in_pravega, events_into_pravega, pravega_of
from proof.guarantees.topics import address_of, broker_of, committed_rows, topic_of
from proof.oracle import facts_of
from proof.processes.evidence import local

TABLE = "demo.readings"
Rows = Counter[Row]


@dataclass(frozen=True, slots=True)
class View:
    """What a reader sees at one moment.

    Attributes:
        rows: Every row that it finds, as often as it finds it.
        newest: Number of the newest reading, by device.
    """

    rows: Rows
    newest: dict[int, int]


@dataclass(frozen=True, slots=True)
class Wiring:
    """How a sink is used. Its folder is all that it has.

    Attributes:
        writer: Puts it together over a stream; given the rows and the folder.
        view: Reads the target.
        look_seconds: Pause of a reader between two looks.
        server: Runs what the target needs, for all cells of the sink, given their folder.
    """

    writer: Callable[[DataFrame, Path], DataStreamWriter]
    view: Callable[[Path], View]
    look_seconds: float = 0.01
    server: Callable[[Path], AbstractContextManager[object]] = nullcontext


def _plain(make: Callable[[Path], Callable[[DataFrame, int], None]]) -> Callable[[DataFrame, Path], DataStreamWriter]:
    def writer(rows: DataFrame, folder: Path) -> DataStreamWriter:
        return rows.writeStream.option("checkpointLocation", checkpoint(folder)).foreachBatch(make(folder))

    return writer


def checkpoint(folder: Path) -> str:
    """Of the stream of a cell."""
    return str(folder / "checkpoint")


def catalog(folder: Path) -> dict[str, str]:
    """Properties of a catalog of the cell's own."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}


def _at_most_once(folder: Path) -> AtMostOnce:
    return AtMostOnce(_store(folder), folder / "done")


def _at_least_once(folder: Path) -> AtLeastOnce:
    return AtLeastOnce(_store(folder))


def _key_value(folder: Path) -> KeyValue:
    return KeyValue(_store(folder))


def _write_ahead_log(rows: DataFrame, folder: Path) -> DataStreamWriter:
    return lakesink.stream_to(rows, WriteAheadLog(_store(folder), folder), checkpoint=checkpoint(folder))


def _folders(rows: DataFrame, folder: Path) -> DataStreamWriter:
    return lakesink.stream_to(rows, FolderSink(folder / "files"), checkpoint=checkpoint(folder))


def _lakesink(rows: DataFrame, folder: Path) -> DataStreamWriter:
    return lakesink.stream(
        rows,
        TABLE,
        sink_id="readings",
        checkpoint=checkpoint(folder),
        catalog="lake",
        catalog_properties=catalog(folder),
        create_table=True,
    )


def _kafka(rows: DataFrame, folder: Path) -> DataStreamWriter:
    sink = lakesink.KafkaSink(
        address_of(folder), sink_id=f"of-{folder.name.lower()}", staging=folder / "staging", topic=topic_of(folder)
    )
    return lakesink.stream_to(rows.selectExpr("to_json(struct(*)) AS value"), sink, checkpoint=checkpoint(folder))


def _pravega(rows: DataFrame, folder: Path) -> DataStreamWriter:
    return events_into_pravega(rows, folder, checkpoint(folder))


def _store(folder: Path) -> Store:
    return Store(folder / "store.db")


def _inserted(folder: Path) -> View:
    return _seen(_query(folder, "SELECT device, reading FROM readings"))


def _put(folder: Path) -> View:
    history, newest = (_query(folder, f"SELECT device, reading FROM {table}") for table in ("history", "newest"))  # noqa: S608 - names of ours
    return View(Counter(history), dict(newest))


def _query(folder: Path, query: str) -> list[Row]:
    if not (folder / "store.db").exists():
        return []
    with closing(sqlite3.connect(folder / "store.db", timeout=60)) as database:
        try:
            return database.execute(query).fetchall()
        except sqlite3.OperationalError:  # the tables are not made yet
            return []


def _listed(folder: Path) -> View:
    return _seen((row[0], row[1]) for row in FolderSink(folder / "files").rows())


def _committed(folder: Path) -> View:
    if not (folder / "catalog.db").exists():
        return _seen([])
    try:
        table = load_table(connect("lake", catalog(folder)), TABLE)
    except CatalogError:  # the table is not made yet
        return _seen([])
    paths = [str(local(file.path)) for file in facts_of(table, "readings").files]
    if not paths:
        return _seen([])
    with duckdb.connect() as connection:
        return _seen(connection.execute("SELECT device, reading FROM read_parquet(?)", [paths]).fetchall())


def _produced(folder: Path) -> View:
    return _seen(committed_rows(folder))


def _streamed(folder: Path) -> View:
    return _seen(events_in_pravega(folder))


def _seen(rows: Iterable[Row]) -> View:
    found = Counter(rows)
    newest: dict[int, int] = {}
    for device, reading in found:
        newest[device] = max(reading, newest.get(device, reading))
    return View(found, newest)


WIRINGS = {
    "at-most-once": Wiring(_plain(_at_most_once), _inserted),
    "at-least-once": Wiring(_plain(_at_least_once), _inserted),
    "key-value": Wiring(_plain(_key_value), _put),
    "write-ahead-log": Wiring(_write_ahead_log, _inserted),
    "folders": Wiring(_folders, _listed),
    "lakesink": Wiring(_lakesink, _committed, look_seconds=0.1),
    "kafka": Wiring(_kafka, _produced, look_seconds=0.2, server=broker_of),
    "pravega": Wiring(_pravega, _streamed, look_seconds=0.2, server=pravega_of),
}
