"""The world outside, as most of it is: it takes one row after the other, and knows no transaction.

A SQLite file stands for it, so that anybody can look. Every row is there at once, and each takes the time of a request.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from lakesink.testing import reached

REQUEST_SECONDS = 0.01
TABLES = """
CREATE TABLE IF NOT EXISTS readings (device INTEGER, reading INTEGER);
CREATE TABLE IF NOT EXISTS history (device INTEGER, reading INTEGER, PRIMARY KEY (device, reading));
CREATE TABLE IF NOT EXISTS newest (device INTEGER PRIMARY KEY, reading INTEGER);
"""
Row = tuple[int, int]
"""Device, and the number of its reading."""


class Store:
    """A store of readings.

    Args:
        path: Its file; made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(self._connect()) as database:
            database.executescript(TABLES)

    def insert(self, rows: Iterable[Row], batch_id: int) -> None:
        """Add rows, one by one: what is added twice is there twice."""
        self._each(rows, batch_id, lambda database, row: database.execute("INSERT INTO readings VALUES (?, ?)", row))

    def put(self, rows: Iterable[Row], batch_id: int) -> None:
        """Set the keys of rows, one by one: what is set twice is there once."""

        def one(database: sqlite3.Connection, row: Row) -> None:
            database.execute("INSERT OR REPLACE INTO history VALUES (?, ?)", row)
            database.execute("INSERT OR REPLACE INTO newest VALUES (?, ?)", row)

        self._each(rows, batch_id, one)

    def _each(self, rows: Iterable[Row], batch_id: int, write: Callable[[sqlite3.Connection, Row], object]) -> None:
        todo = sorted(rows, key=lambda row: row[1])  # readings come in their order
        with closing(self._connect()) as database:
            for position, row in enumerate(todo):
                if position == len(todo) // 2:
                    reached("example.half-written", batch_id)
                write(database, row)
                time.sleep(REQUEST_SECONDS)
        reached("example.written", batch_id)

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, timeout=60, isolation_level=None)  # each statement by itself
        database.execute("PRAGMA synchronous = OFF")  # who dies here is the driver, not the machine
        return database
