"""Writes the events of a batch into one transaction of Pravega's Python client, until the server has every byte.

The client sends events in the background and cannot be asked to flush. A commit by id knows nothing of events that are
still on their way: they would be lost without an error.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import pravega_client
from pravega_controller import Controller, PravegaFailed, SegmentPlace
from pravega_segments import connected

FRAME_BYTES = 8
"""Type and length in front of each event."""
_RENEWALS_PER_LEASE = 4
_EVENTS_PER_LOOK = 1000
_PAUSE_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Written:
    """A transaction whose events are durable."""

    transaction: int
    rows: int
    size_bytes: int


@dataclass(slots=True)
class _Lease:
    """Keeps a transaction open while it is written. The client's own lease is 90 seconds, renewed every 90 seconds."""

    controller: Controller
    transaction: int
    lease_ms: int
    _renewed: float = field(default=float("-inf"))

    def renew(self, *, now: bool = False) -> None:
        """Renew the lease if a part of it is over.

        Raises:
            PravegaFailed: The transaction is no longer open.
        """
        if now or time.monotonic() - self._renewed > self.lease_ms / 1000 / _RENEWALS_PER_LEASE:
            self._renewed = time.monotonic()
            if not self.controller.extend(self.transaction, self.lease_ms):
                state = self.controller.state(self.transaction).name
                raise PravegaFailed(f"transaction {self.transaction:032x} is {state} while it is written")


def write_transaction(controller: Controller, events: Iterable[tuple[str | None, bytes]], lease_ms: int) -> Written:
    """Write events into a new transaction, and return once all are durable and the lease has begun anew.

    Raises:
        PravegaFailed: The transaction could not be written. Pravega aborts it when its lease ends.
    """
    try:
        manager = pravega_client.StreamManager(f"tcp://{controller.address}")
        writer = manager.create_transaction_writer(controller.scope, controller.stream, 1)
        opened = writer.begin_txn()
        lease = _Lease(controller, opened.get_txn_id(), lease_ms)
        rows = size_bytes = 0
        for key, event in events:
            if rows % _EVENTS_PER_LOOK == 0:
                lease.renew()
            opened.write_event_bytes(event, key)
            rows, size_bytes = rows + 1, size_bytes + FRAME_BYTES + len(event)
    except (ValueError, pravega_client.TxnFailedException) as error:
        raise PravegaFailed(f"the client cannot write a transaction: {error}") from None
    _wait_until_durable(lease, size_bytes)
    del opened, writer  # ends the client's renewals, which would cut the lease back to 90 seconds
    lease.renew(now=True)
    return Written(lease.transaction, rows, size_bytes)


def is_durable(controller: Controller, transaction: int, size_bytes: int) -> bool:
    """True if the segment store has exactly so many bytes of an open transaction."""
    return _durable_bytes(controller.segments(transaction), controller.patience_seconds) == size_bytes


def _wait_until_durable(lease: _Lease, size_bytes: int) -> None:
    controller, before = lease.controller, -1
    places = controller.segments(lease.transaction)
    deadline = 0.0
    while True:
        there = _durable_bytes(places, controller.patience_seconds)
        if there == size_bytes:
            return
        if there != before:
            before, deadline = there, time.monotonic() + controller.patience_seconds
        if time.monotonic() > deadline:
            raise PravegaFailed(f"only {there} of {size_bytes} bytes of the transaction became durable")
        lease.renew()
        time.sleep(_PAUSE_SECONDS)


def _durable_bytes(places: Iterable[SegmentPlace], patience_seconds: float) -> int:
    """The sum over all segments; -1 if one of them is no longer there."""
    found = 0
    for place in places:
        with connected(place, patience_seconds) as segment:
            length = segment.length()
        if length is None:
            return -1
        found += length
    return found
