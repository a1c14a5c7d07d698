"""Compares the driver's clock with the clock of the storage.

Iceberg's Java library refuses every change of a table whose last snapshot is more than one minute in the future. One
commit by a driver whose clock is two hours ahead therefore stops Spark, Trino and Flink from writing for two hours. The
storage reports a time for each file that it stores. The check uses a manifest list that was just written, once per run,
and again after the clock has jumped.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from pyiceberg.io import FileIO

from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.events import ClockAhead, ClockUnknown

CLOCK_TOLERANCE_MS = 60_000
"""Iceberg's Java library accepts a new snapshot with a time at most this much before the last snapshot's."""
GRAIN_MS = 1_000
"""Object stores report the time of an object in whole seconds."""
_FIRST_PLAUSIBLE_MS = 946_684_800_000
"""The year 2000. A storage without file times reports 0."""


@dataclass(slots=True)
class ClockWatch:
    """Watches the clock of one driver: if it is more than `most_ahead_ms` ahead, nothing is committed."""

    most_ahead_ms: int = CLOCK_TOLERANCE_MS
    _seen_ms: int | None = field(default=None, init=False)

    def check(self, now_ms: int, monotonic_ms: int, ask_ms: Callable[[], int | None]) -> ClockAhead | None:
        """Compare the clocks, if a comparison is due; returns an event if the driver's is too far ahead for others.

        Args:
            now_ms: The driver's wall clock.
            monotonic_ms: The driver's monotonic clock. A changed difference of both clocks means a jump.
            ask_ms: Returns the storage's time of a file that was written after the clocks were read.
        """
        offset_ms = now_ms - monotonic_ms
        if self._seen_ms is not None and abs(offset_ms - self._seen_ms) <= CLOCK_TOLERANCE_MS:
            return None
        storage_ms = ask_ms()
        ahead_ms = 0 if storage_ms is None else now_ms - storage_ms - GRAIN_MS
        if ahead_ms > self.most_ahead_ms:
            raise CatalogError.of("CLOCK_AHEAD", seconds=ahead_ms // 1000)
        self._seen_ms = offset_ms
        return ClockAhead(ahead_ms // 1000) if ahead_ms > CLOCK_TOLERANCE_MS else None


def modified_ms(io: FileIO, path: str) -> int | None:
    """The storage's time of a file, milliseconds since the epoch; None if the storage does not report one."""
    storage_ms = _storage_time_ms(io, path)
    return None if storage_ms is None or storage_ms < _FIRST_PLAUSIBLE_MS else storage_ms


def _storage_time_ms(io: FileIO, path: str) -> int | None:
    try:
        match io.new_input(path):  # PyIceberg's classes are known by their fields: to import both takes 0.2 s
            case object(_filesystem=filesystem, _path=place):  # PyArrowFile
                storage_ns = filesystem.get_file_info(place).mtime_ns
                return None if storage_ns is None else int(storage_ns // 1_000_000)
            case object(_fs=filesystem, location=location):  # FsspecInputFile
                return int(filesystem.modified(location).timestamp() * 1000)
    except Exception as error:  # noqa: BLE001 - a failed check of the time must not fail a batch
        LISTENERS(ClockUnknown(type(error).__name__))  # an injected function gets no listeners
    return None
