"""The markers in a sink's folder: which there are, and whether each follows the one before it."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from lakesink.sinks.directory.high_water import HighWater, parse_high_water
from lakesink.sinks.directory.layout import Layout, batch_of_part, batch_of_record, marker_number
from lakesink.sinks.directory.marker import Marker, MarkerDamaged, parse_marker
from lakesink.sinks.storage import Storage

MOST_READ_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class MarkersThere:
    """Markers by number, without a gap.

    Attributes:
        count: How many there are, from number 0.
        size_bytes: Their size together.
        as_recorded: True if they are those of the high water: each was read once, and none was cut since.
    """

    count: int
    size_bytes: int
    as_recorded: bool


def find_markers(storage: Storage, layout: Layout) -> MarkersThere:
    """The markers that there are. The high water is read first, so that what is created meanwhile is no contradiction.

    Raises:
        MarkerDamaged: One is missing.
    """
    high_water = parse_high_water(storage.read(layout.high_water))
    sizes = marker_sizes(storage, layout)
    expected = HighWater(0, 0) if high_water is None else high_water
    if len(sizes) < max(expected.count, max(sizes, default=-1) + 1):
        raise MarkerDamaged(f"commit {_first_missing(sizes)} is missing")
    if not sizes and high_water is None:
        _check_beginning(storage, layout)
    ordered = [sizes[number] for number in range(len(sizes))]
    as_recorded = high_water is not None and sum(ordered[: high_water.count]) == high_water.size_bytes
    return MarkersThere(len(ordered), sum(ordered), as_recorded)


def read_marker(storage: Storage, layout: Layout, number: int) -> Marker:
    """One marker that is known to be there.

    Raises:
        MarkerDamaged: It is missing or damaged.
    """
    return _parsed(storage.read(layout.marker(number)), number, layout)


def read_markers(storage: Storage, layout: Layout, numbers: range) -> Iterator[Marker]:
    """Markers that are known to be there, ascending.

    Raises:
        MarkerDamaged: One is missing or damaged.
    """
    found = storage.read_all([layout.marker(number) for number in numbers])
    for number, data in zip(numbers, found, strict=True):
        yield _parsed(data, number, layout)


def read_history(storage: Storage, layout: Layout, count: int) -> Iterator[Marker]:
    """The first `count` markers, each checked and compared with the one before.

    Raises:
        MarkerDamaged: One is missing or damaged, or does not follow the one before it.
    """
    below: Marker | None = None
    for first in range(0, count, MOST_READ_AT_ONCE):
        for marker in read_markers(storage, layout, range(first, min(first + MOST_READ_AT_ONCE, count))):
            if below is not None:
                check_follows(below, marker)
            yield marker
            below = marker


def sound_history(storage: Storage, layout: Layout, count: int) -> tuple[list[Marker], str]:
    """The markers up to the first that is missing or damaged, and what is wrong with it; empty if nothing is."""
    sound: list[Marker] = []
    try:
        for marker in read_history(storage, layout, count):
            sound.append(marker)  # noqa: PERF402 - `list` would lose those before the damage
    except MarkerDamaged as damage:
        return sound, str(damage)
    return sound, ""


def check_follows(below: Marker, marker: Marker) -> None:
    """Check that one marker is the other's next.

    Raises:
        MarkerDamaged: It is not.
    """
    if (marker.previous, marker.directory_id) != (below.digest, below.directory_id):
        raise MarkerDamaged(f"commit {marker.number} does not follow commit {below.number}")


def marker_sizes(storage: Storage, layout: Layout) -> dict[int, int]:
    """Sizes by number, with gaps where markers are missing.

    A listing is not one moment: it may lack a marker that is older than the last one it shows. So each number that it
    does not show is looked for by name, up to the first that is not there.
    """
    listed = storage.listing(layout.commits)
    sizes = {number: size for name, size in listed.items() if (number := marker_number(name)) is not None}
    for number in itertools.count():
        if number not in sizes:
            size = storage.size(layout.marker(number))
            if size is None:
                return sizes
            sizes[number] = size
    raise AssertionError("numbers do not end")


def _first_missing(sizes: dict[int, int]) -> int:
    return next(number for number in itertools.count() if number not in sizes)


def _check_beginning(storage: Storage, layout: Layout) -> None:
    """Without a marker, only a first batch can have left anything; an older lakesink left no high water.

    Raises:
        MarkerDamaged: Two batches have, so the first of them was committed.
    """
    parts = (batch_of_part(name, layout.sink_id) for name in storage.names(layout.parts))
    records = (batch_of_record(name) for name in storage.names(layout.prepared))
    batches = {batch for batch in (*parts, *records) if batch is not None}
    if len(batches) > 1:
        raise MarkerDamaged("commit 0 is missing")


def _parsed(data: bytes | None, number: int, layout: Layout) -> Marker:
    if data is None:
        raise MarkerDamaged(f"commit {number} is missing")
    return parse_marker(data, number, layout.sink_id)
