"""The sink of files keeps every promise that lakesink asks of others, also with row features in front of it."""

from pathlib import Path

import pyarrow as pa
import pytest

import lakesink
from lakesink.settings.settings import Settings
from lakesink.sinks.directory.directory_sink import FileSink
from lakesink.sinks.iceberg.side.checked_sink import CheckedSink
from lakesink.testing import SinkConformance
from lakesink_protocol.identity import SinkKey
from tests.testing.shipped import FAILPOINTS, MOST_STEPS, rows_of

pytestmark = [pytest.mark.dear, pytest.mark.filterwarnings("ignore:.*set most_steps")]


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


class TestCheckedFileSink(TestFileSink):
    def open_sink(self, target: Path) -> CheckedSink:  # type: ignore[override] # another sink with the same target
        return CheckedSink(super().open_sink(target), SinkKey("events"), Settings(), pa.schema([]))
