"""Lists and reads the markers in a sink's folder, and checks that each follows the one before it."""

import itertools
from collections.abc import Iterator

from lakesink.sinks.directory.layout import Layout, marker_number
from lakesink.sinks.directory.marker import HighWater, Marker, MarkerDamaged, parse_high_water, parse_marker
from lakesink.sinks.storage import Storage

MOST_READ_AT_ONCE = 256


def find_markers(storage: Storage, layout: Layout) -> tuple[list[int], bool]:
    """Sizes of all markers by number; True if the high water agrees with them, so that no other check is needed.

    The high water is read first, so a marker that is created meanwhile does not contradict it.
    """
    high_water = parse_high_water(storage.read(layout.high_water))
    sizes = marker_sizes(storage, layout)
    expected = HighWater(0, 0) if high_water is None else high_water
    if len(sizes) < max(expected.count, max(sizes, default=-1) + 1):
        raise MarkerDamaged(f"commit {_first_missing(sizes)} is missing")
    ordered = [sizes[number] for number in range(len(sizes))]
    as_recorded = high_water is not None and sum(ordered[: high_water.count]) == high_water.size_bytes
    return ordered, as_recorded


def read_marker(storage: Storage, layout: Layout, number: int) -> Marker:
    """One marker that must exist."""
    return _parsed(storage.read(layout.marker(number)), number, layout)


def read_markers(storage: Storage, layout: Layout, numbers: range) -> Iterator[Marker]:
    """Markers that must exist, ascending."""
    found = storage.read_all([layout.marker(number) for number in numbers])
    for number, data in zip(numbers, found, strict=True):
        yield _parsed(data, number, layout)


def read_history(storage: Storage, layout: Layout, count: int) -> Iterator[Marker]:
    """The first `count` markers, each checked and compared with the one before."""
    below: Marker | None = None
    for first in range(0, count, MOST_READ_AT_ONCE):
        for marker in read_markers(storage, layout, range(first, min(first + MOST_READ_AT_ONCE, count))):
            if below is not None:
                check_follows(below, marker)
            yield marker
            below = marker


def undamaged_history(storage: Storage, layout: Layout, count: int) -> tuple[list[Marker], str]:
    """The markers before the first missing or damaged one, and the damage; empty text if there is none."""
    markers: list[Marker] = []
    try:
        for marker in read_history(storage, layout, count):
            markers.append(marker)  # noqa: PERF402 - `list` would lose the markers before the damage
    except MarkerDamaged as damage:
        return markers, str(damage)
    return markers, ""


def check_follows(below: Marker, marker: Marker) -> None:
    """Check that `marker` is the next after `below`."""
    if (marker.previous, marker.directory_id) != (below.digest, below.directory_id):
        raise MarkerDamaged(f"commit {marker.number} does not follow commit {below.number}")


def marker_sizes(storage: Storage, layout: Layout) -> dict[int, int]:
    """Sizes by number, with gaps where markers are missing.

    A listing is not atomic: it may lack a marker that is older than the newest one in it. So each number that is not
    in it is looked up by name, up to the first that does not exist.
    """
    listed = storage.listing(layout.commits)
    sizes = {number: size for name, size in listed.items() if (number := marker_number(name)) is not None}
    for number in itertools.count():
        if number not in sizes:
            size = storage.size(layout.marker(number))
            if size is None:
                return sizes
            sizes[number] = size
    raise AssertionError("unreachable")


def _first_missing(sizes: dict[int, int]) -> int:
    return next(number for number in itertools.count() if number not in sizes)


def _parsed(data: bytes | None, number: int, layout: Layout) -> Marker:
    if data is None:
        raise MarkerDamaged(f"commit {number} is missing")
    return parse_marker(data, number, layout.sink_id)
