"""The sinks that lakesink ships keep every promise that it asks of others."""

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

FAILPOINTS = ("while-writing", "before-call", "after-call")
COLUMNS = Schema(*(NestedField(number, name, LongType()) for number, name in enumerate(ROWS.names, 1)))


class TestIcebergSink(SinkConformance):
    stepped_packages = ("lakesink", "lakesink_catalog")
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
        table = Lake(target, Lake.connect(target)).table()
        read = table.scan().to_arrow().to_pydict()
        return list(zip(read["batch"], read["position"], strict=True))


class TestFileSink(SinkConformance):
    failpoints = FAILPOINTS

    @pytest.fixture
    def target(self, tmp_path: Path) -> Path:
        return tmp_path / "out"

    def open_sink(self, target: Path) -> FileSink:
        return FileSink(target, "events")

    def read_rows(self, target: Path) -> list[tuple[int, int]]:
        if not target.exists():
            return []
        parts = [pq.read_table(path).to_pydict() for path in lakesink.committed_files(target, sink_id="events")]
        return [row for part in parts for row in zip(part["batch"], part["position"], strict=True)]
