"""The sinks of ``examples/guarantees``: how each is put together over a stream, and what a reader sees of its store."""

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

import lakesink
from examples.guarantees.at_least_once import AtLeastOnce
from examples.guarantees.at_most_once import AtMostOnce
from examples.guarantees.folders import FolderSink
from examples.guarantees.key_value import KeyValue
from examples.guarantees.store import Store
from examples.guarantees.write_ahead_log import WriteAheadLog
from proof.contest.target import Target, View, seen
from proof.oracle import Key

FunctionOfBatch = Callable[[DataFrame, int], None]


def plain(make: Callable[[Target], FunctionOfBatch]) -> Callable[[DataFrame, Target], DataStreamWriter]:
    """A sink that is a function for `foreachBatch`."""

    def writer(rows: DataFrame, target: Target) -> DataStreamWriter:
        return rows.writeStream.option("checkpointLocation", target.checkpoint).foreachBatch(make(target))

    return writer


def at_most_once(target: Target) -> FunctionOfBatch:
    """Remembers the batch, then writes it."""
    return AtMostOnce(_store(target), target.folder / "done")


def at_least_once(target: Target) -> FunctionOfBatch:
    """Writes the batch."""
    return AtLeastOnce(_store(target))


def key_value(target: Target) -> FunctionOfBatch:
    """Sets a key for every row."""
    return KeyValue(_store(target))


def write_ahead_log(rows: DataFrame, target: Target) -> DataStreamWriter:
    """Logs the batch, sends it, and confirms."""
    log = WriteAheadLog(_store(target), target.folder)
    return lakesink.stream_to(rows, log, checkpoint=target.checkpoint)


def folders(rows: DataFrame, target: Target) -> DataStreamWriter:
    """Renames a folder."""
    return lakesink.stream_to(rows, FolderSink(target.folder / "files"), checkpoint=target.checkpoint)


def inserted(target: Target) -> View:
    """What was inserted into a store."""
    return seen(_query(target, "SELECT device, reading FROM readings"))


def put(target: Target) -> View:
    """What was put under its key, and what is there now."""
    history, newest = (_query(target, f"SELECT device, reading FROM {table}") for table in ("history", "newest"))  # noqa: S608 - names of ours
    return View(Counter(history), dict(newest))


def renamed(target: Target) -> View:
    """What is in the folders that have their final name."""
    return seen((row[0], row[1]) for row in FolderSink(target.folder / "files").rows())


def _store(target: Target) -> Store:
    return Store(target.folder / "store.db")


def _query(target: Target, query: str) -> list[Key]:
    path = target.folder / "store.db"
    if not path.exists():
        return []
    with closing(sqlite3.connect(path, timeout=60)) as database:
        try:
            return database.execute(query).fetchall()
        except sqlite3.OperationalError:  # the tables are not made yet
            return []
