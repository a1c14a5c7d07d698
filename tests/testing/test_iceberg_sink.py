"""The Iceberg sink keeps every promise that lakesink asks of others."""

from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.testing import ROWS, SinkConformance
from lakesink_protocol.identity import SinkKey
from testkit.builders import TABLE, Lake
from tests.testing.shipped import FAILPOINTS, MOST_STEPS, rows_of

pytestmark = [pytest.mark.dear, pytest.mark.filterwarnings("ignore:.*set most_steps")]


COLUMNS = Schema(*(NestedField(number, name, LongType()) for number, name in enumerate(ROWS.names, 1)))


class TestIcebergSink(SinkConformance):
    stepped_packages = ("lakesink", "lakesink_catalog", "lakesink_protocol")
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
            open_catalog=lambda: Lake.connect(target),
            settings=Settings.parse({"sink_id": "events", "checkpoint": "/nowhere"}),
            schema=ROWS,
        )

    def read_rows(self, target: Path) -> list[tuple[int, int]]:
        tasks = Lake(target, Lake.connect(target)).table().scan().plan_files()
        return [row for task in tasks for row in rows_of(task.file.file_path.removeprefix("file://"))]
