"""The sink passes lakesink's suite: `pytest examples/custom_sink`. Nothing more is needed to know that it holds."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlite_sink import SqliteSink

from lakesink.testing import SinkConformance


class TestSqliteSink(SinkConformance):
    """Every promise, at every point where a process can die."""

    @pytest.fixture
    def target(self, tmp_path: Path) -> Path:
        """An empty table."""
        with closing(sqlite3.connect(tmp_path / "rows.db")) as database:
            database.execute("CREATE TABLE events (batch INTEGER, position INTEGER)")
        return tmp_path

    def open_sink(self, target: Path) -> SqliteSink:
        """As a process that has just started opens it."""
        return SqliteSink(target / "rows.db", "events", "events", target / "staging")

    def read_rows(self, target: Path) -> list[tuple[int, int]]:
        """What a reader sees."""
        with closing(sqlite3.connect(target / "rows.db")) as database:
            return database.execute("SELECT batch, position FROM events").fetchall()
