"""The folder sink passes lakesink's suite: `python -m pytest examples/guarantees`."""

from pathlib import Path

import pytest

from lakesink.testing import SinkConformance

from .folders import FolderSink


class TestFolderSink(SinkConformance):
    """Every promise, at every point where a process can die."""

    @pytest.fixture
    def target(self, tmp_path: Path) -> Path:
        """An empty folder."""
        return tmp_path / "files"

    def open_sink(self, target: Path) -> FolderSink:
        """As a process that has just started opens it."""
        return FolderSink(target)

    def read_rows(self, target: Path) -> list[tuple[int, ...]]:
        """What a reader sees."""
        return FolderSink(target).rows()
