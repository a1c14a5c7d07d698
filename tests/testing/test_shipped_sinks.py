"""The sinks that lakesink ships keep every promise that it asks of others."""

import functools
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import lakesink
from lakesink.settings import Settings
from lakesink.sinks.files.sink import FileSink
from lakesink.sinks.iceberg import IcebergSink
from lakesink.sinks.planning import SessionFacts
from lakesink.testing import ROWS, SinkConformance
from lakesink_catalog.identity import SinkKey
from tests.builders import TABLE, Lake, OpenCatalog

MOST_STEPS = 8
"""So many of several thousand steps in every run of the tests; the long tests try hundreds."""

FAILPOINTS = ("while-writing", "before-call", "after-call")
COLUMNS = Schema(*(NestedField(number, name, LongType()) for number, name in enumerate(ROWS.names, 1)))


@functools.cache
def rows_of(path: str) -> list[tuple[int, int]]:
    """A data file never changes."""
    read = pq.read_table(path).to_pydict()
    return list(zip(read["batch"], read["position"], strict=True))


class TestIcebergSink(SinkConformance):
    stepped_packages = ("lakesink", "lakesink_catalog")
    most_steps = MOST_STEPS
    failpoints = FAILPOINTS

    @pytest.fixture
    def target(self, tmp_path: Path) -> Path:
        Lake.make(tmp_path, schema=COLUMNS)
        return tmp_path

    def open_sink(self, target: Path) -> IcebergSink:
        return IcebergSink(
            table=TABLE,
            key=SinkKey("events"),
            catalog=OpenCatalog("test", {}, opened=Lake.connect(target)),
            settings=Settings.parse({"sink_id": "events", "checkpoint": "/nowhere"}),
            schema=ROWS,
            session=SessionFacts(),
        )

    def read_rows(self, target: Path) -> list[tuple[int, int]]:
        tasks = Lake(target, Lake.connect(target)).table().scan().plan_files()
        return [row for task in tasks for row in rows_of(task.file.file_path.removeprefix("file://"))]


class TestFileSink(SinkConformance):
    most_steps = MOST_STEPS
    failpoints = FAILPOINTS

    @pytest.fixture
    def target(self, tmp_path: Path) -> Path:
        return tmp_path / "out"

    def open_sink(self, target: Path) -> FileSink:
        return FileSink(target, "events")

    def read_rows(self, target: Path) -> list[tuple[int, int]]:
        if not target.exists():
            return []
        parts = lakesink.committed_files(target, sink_id="events")
        return [row for part in parts for row in rows_of(str(part))]
