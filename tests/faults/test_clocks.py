"""A driver whose clock is ahead is found out before it commits: by the time that the storage gives to a file."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from lakesink_catalog.commit.clock import ClockWatch, modified_ms
from lakesink_catalog.commit.effects import Effects
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.events import ClockAhead
from lakesink_protocol.outcome import Committed, Outcome
from lakesink_tools.audit.audit import audit
from lakesink_tools.audit.finding import Code
from testkit.builders import Lake, Stream, counted, expected

HOUR_MS = 3_600_000


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(Lake.make(tmp_path))


def real_ms() -> int:
    return time.time_ns() // 1_000_000


def run(stream: Stream, batch_id: int, *, ahead_hours: int = 0, **options: Any) -> Outcome:
    """One batch by a driver whose clock is ahead; that of the storage is the real one."""
    effects = Effects(now_ms=lambda: real_ms() + ahead_hours * HOUR_MS)
    sink = replace(stream.sink(**options), effects=effects)
    return stream.run_with(sink, batch_id)


def found(stream: Stream) -> list[Code]:
    return [finding.code for finding in audit(stream.lake.table(), now_ms=real_ms()).findings]


def test_a_driver_two_hours_ahead_commits_nothing_and_the_next_one_goes_on(stream: Stream) -> None:
    run(stream, 0)
    with pytest.raises(CatalogError, match=r"LAKESINK_CLOCK_AHEAD\] This driver's clock is 7,1\d\d s ahead") as refused:
        run(stream, 1, ahead_hours=2)
    assert "max_clock_ahead" in refused.value.action
    assert counted(stream.lake) == expected(0)
    assert isinstance(run(stream, 1), Committed)
    assert counted(stream.lake) == expected(0, 1)
    assert found(stream) == []


def test_told_otherwise_it_commits_and_warns_and_audit_shows_it(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    run(stream, 0)
    run(stream, 1, ahead_hours=2, max_clock_ahead="3 hours")
    assert "lakesink.clock.ahead seconds=71" in caplog.text
    assert found(stream) == [Code.CLOCK_AHEAD]
    run(stream, 2)  # by a clock that is right, and stamped by the wrong one
    assert "lakesink.clock.behind seconds=71" in caplog.text
    assert found(stream) == [Code.CLOCK_AHEAD]


class Asked:
    """A watch over a real file, and how often the storage is asked."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "list.avro"
        self.file.touch()
        self.times = 0
        self.watch = ClockWatch()

    def _ask(self) -> int | None:
        self.times += 1
        return modified_ms(load_file_io({}, "file:///"), f"file://{self.file}")

    def check(self, moved_ms: int = 0, passed_ms: int = 0) -> None:
        """The wall clock beside the file's time, and how long the process has run."""
        now_ms = int(self.file.stat().st_mtime * 1000) + moved_ms
        self.watch.check(now_ms, passed_ms, self._ask)


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path)


def test_the_storage_is_asked_once_a_run_and_again_after_a_jump(asked: Asked) -> None:
    for minute in range(100):
        asked.check(minute * 60_000, minute * 60_000)
    assert asked.times == 1
    with pytest.raises(CatalogError, match="CLOCK_AHEAD"):
        asked.check(moved_ms=2 * HOUR_MS)
    with pytest.raises(CatalogError, match="CLOCK_AHEAD"):  # and until the clock is right
        asked.check(moved_ms=2 * HOUR_MS)
    asked.check()
    assert asked.times == 3


def test_a_clock_that_jumps_back_or_is_a_minute_ahead_commits(asked: Asked) -> None:
    asked.check(moved_ms=60_000)
    asked.check(moved_ms=-HOUR_MS)
    assert asked.times == 2


@pytest.mark.parametrize(("jump_ms", "times"), [(60_000, 1), (60_001, 2), (-60_000, 1), (-60_001, 2)])
def test_the_storage_is_asked_again_after_a_jump_that_others_would_refuse(
    asked: Asked, jump_ms: int, times: int
) -> None:
    asked.check()
    asked.check(moved_ms=jump_ms)
    assert asked.times == times


@pytest.mark.parametrize(
    ("ahead_ms", "told"),
    [(-HOUR_MS, None), (0, None), (60_000, None), (60_001, ClockAhead(60)), (HOUR_MS, ClockAhead(3600))],
)
def test_a_clock_that_may_be_ahead_is_told_from_the_first_millisecond_that_others_refuse(
    ahead_ms: int, told: ClockAhead | None
) -> None:
    """The storage tells whole seconds, so one second proves nothing."""
    allowed = ClockWatch(most_ahead_ms=HOUR_MS)
    assert allowed.check(2**41 + ahead_ms + 1_000, 0, lambda: 2**41) == told
    with pytest.raises(CatalogError, match="CLOCK_AHEAD"):
        ClockWatch(most_ahead_ms=HOUR_MS).check(2**41 + HOUR_MS + 1_001, 0, lambda: 2**41)


@pytest.mark.parametrize("scheme", ["file", "nosuch"])
def test_a_storage_that_tells_no_time_fails_no_batch(tmp_path: Path, scheme: str) -> None:
    io = load_file_io({}, "file:///")
    assert modified_ms(io, f"{scheme}://{tmp_path}/gone") is None
    ClockWatch().check(2**45, 0, lambda: modified_ms(io, f"{scheme}://{tmp_path}/gone"))


def test_fsspec_tells_the_same_time_as_arrow(tmp_path: Path) -> None:
    (tmp_path / "list.avro").touch()
    path = f"file://{tmp_path}/list.avro"
    by_arrow, by_fsspec = (modified_ms(io, path) for io in (PyArrowFileIO({}), FsspecFileIO({})))
    assert by_arrow is not None
    assert by_fsspec is not None
    assert abs(by_arrow - by_fsspec) <= 1


@pytest.mark.parametrize("kind", [PyArrowFileIO, FsspecFileIO])
def test_a_storage_that_keeps_no_times_tells_none(tmp_path: Path, kind: type[FileIO]) -> None:
    (tmp_path / "list.avro").touch()
    os.utime(tmp_path / "list.avro", (0, 0))
    assert modified_ms(kind({}), f"file://{tmp_path}/list.avro") is None
