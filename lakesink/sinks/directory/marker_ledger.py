"""The markers of one sink as its ledger: the newest marker is the entry, earlier markers are its ancestry.

A start reads the high water, one listing and two markers. It reads all markers if listing and high water disagree.
Later, each decision reads the newest marker again, to check that it is unchanged, and the next number. A batch older
than the ledger's entry needs earlier markers, which are read in growing steps.
"""

import itertools
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lakesink.sinks.directory.layout import Layout, marker_number
from lakesink.sinks.directory.marker import HighWater, Marker, MarkerDamaged, parse_high_water, parse_marker
from lakesink.sinks.staged.ledger import LedgerDecision, decide_by
from lakesink.sinks.storage import Storage
from lakesink_protocol.events import HighWaterKept, Listener
from lakesink_protocol.identity import Batch
from lakesink_protocol.ledger import LedgerEntry
from lakesink_protocol.redact import describe
from lakesink_protocol.refusals.accept import Accept

MOST_READ_AT_ONCE = 256
_MARKERS_KEPT = 64


@dataclass(slots=True, eq=False)
class MarkerLedger(Mapping[int, Marker]):
    """The markers of one sink by number, read on demand."""

    storage: Storage
    layout: Layout
    emit: Listener
    _head: Marker | None = field(default=None, init=False)
    _size_bytes: int = field(default=0, init=False)
    _start_id: str = field(default="", init=False)
    _known: dict[int, Marker] = field(default_factory=dict, init=False)

    def decide_on(self, batch: Batch, accept: Accept | None) -> LedgerDecision[Marker]:
        """Find the newest marker and decide on a batch."""
        try:
            self._refresh()
            return self._decided(batch, accept, self._entry())
        except MarkerDamaged as damage:
            return self._decided(batch, None, None, str(damage))

    def landed(self, marker: Marker, size_bytes: int) -> None:
        """Remember a marker that this process created."""
        self._remember(marker, size_bytes)
        self.raise_high_water()
        self._known = {number: known for number, known in self._known.items() if number > marker.number - _MARKERS_KEPT}

    def raise_high_water(self) -> None:
        """Record the number and size of all markers. A failure is harmless: the next start reads all markers."""
        try:
            self.storage.replace(self.layout.high_water, HighWater(len(self), self._size_bytes).to_bytes())
        except Exception as error:  # noqa: BLE001 - a storage client raises any class, and the batch is committed
            self.emit(HighWaterKept(self.layout.sink_id, describe(error)))

    def __getitem__(self, number: int) -> Marker:
        if number not in self._known:
            self._read_back_to(number)
        return self._known[number]

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        return 0 if self._head is None else self._head.number + 1

    def _refresh(self) -> None:
        """Continue from the newest known marker if it is unchanged; else start with a listing."""
        if self._head is not None and self._read(self._head.number)[0] != self._head:
            self._head, self._known, self._size_bytes = None, {}, 0
        if self._head is None:  # find the newest marker; unless the high water agrees, check every marker
            sizes, as_recorded = find_markers(self.storage, self.layout)
            if not as_recorded:
                deque(read_history(self.storage, self.layout, len(sizes)), maxlen=0)
            if sizes:
                newest = self.storage.read(self.layout.marker(len(sizes) - 1))
                self._remember(_parsed(newest, len(sizes) - 1, self.layout), sum(sizes))
        while self._head is not None:
            later, size_bytes = self._read(self._head.number + 1)
            if later is None:
                return
            self._remember(later, size_bytes)

    def _remember(self, marker: Marker, size_bytes: int) -> None:
        below = self._known.get(marker.number - 1)
        if below is not None:
            check_follows(below, marker)
        self._head = self._known[marker.number] = marker
        self._size_bytes += size_bytes
        self._start_id = self._start_id or marker.directory_id

    def _read(self, number: int) -> tuple[Marker | None, int]:
        data = self.storage.read(self.layout.marker(number))
        return (None, 0) if data is None else (parse_marker(data, number, self.layout.sink_id), len(data))

    def _read_back_to(self, number: int) -> None:
        """Read earlier markers, at least as many as are known: few for a recent batch, few steps for an old one."""
        if not 0 <= number < len(self):
            raise KeyError(number)
        lowest = min(self._known)
        count = max(lowest - number, min(len(self._known), MOST_READ_AT_ONCE))
        for marker in reversed(list(read_markers(self.storage, self.layout, range(max(0, lowest - count), lowest)))):
            check_follows(marker, self._known[marker.number + 1])
            self._known[marker.number] = marker

    def _entry(self) -> LedgerEntry | None:
        """The newest marker as a ledger entry; the accepted replay of an old batch does not move the ledger."""
        head = self._head
        if head is None:
            return None
        moved = head
        while moved.ledger_batch_id != moved.batch.batch_id:
            if moved.number == 0:
                raise MarkerDamaged("no commit has the ledger batch of the newest commit")
            moved = self[moved.number - 1]
        return head.entry_of(moved.batch, head.directory_id)

    def _decided(
        self, batch: Batch, accept: Accept | None, entry: LedgerEntry | None, damage: str = ""
    ) -> LedgerDecision[Marker]:
        start_id, head = self._start_id, self._head
        target_id = head.directory_id if head is not None else start_id if damage else ""
        ids = {"sink_id": self.layout.sink_id, "target_id": target_id, "start_id": start_id}
        return decide_by(self, head, entry, damage, **ids, batch=batch, accept=accept)


def find_markers(storage: Storage, layout: Layout) -> tuple[list[int], bool]:
    """Sizes of all markers by number; True if the high water agrees with them, so that no other check is needed.

    The high water is read first, so a marker that is created meanwhile does not contradict it.
    """
    high_water = parse_high_water(storage.read(layout.high_water))
    sizes = marker_sizes(storage, layout)
    expected = HighWater(0, 0) if high_water is None else high_water
    if len(sizes) < max(expected.count, max(sizes, default=-1) + 1):
        raise MarkerDamaged(f"commit {next(number for number in itertools.count() if number not in sizes)} is missing")
    ordered = [sizes[number] for number in range(len(sizes))]
    as_recorded = high_water is not None and sum(ordered[: high_water.count]) == high_water.size_bytes
    return ordered, as_recorded


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


def _parsed(data: bytes | None, number: int, layout: Layout) -> Marker:
    if data is None:
        raise MarkerDamaged(f"commit {number} is missing")
    return parse_marker(data, number, layout.sink_id)
