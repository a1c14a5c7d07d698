"""Reports what a reading query plans, and what it leaves out: nothing is left out silently."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakesink.read.batch_files import BatchFiles
from lakesink.read.steps import Unread
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.read.past import Past, PastCommit
from lakesink_protocol import events

WAITS_SECONDS = 60
"""A query that waits says so as often: the batches that it waits for may never come."""


@dataclass(slots=True)
class Progress:
    """Emits the events of one run of a reading query.

    Attributes:
        _seen: Sequence number of the newest snapshot of others that was reported.
        clock: Seconds.
        _told_at: When it was told last that the table is rolled back behind the position; None while it is not.
    """

    table: str
    sink: str
    emit: events.Listeners = LISTENERS
    clock: Callable[[], float] = time.monotonic
    _seen: int = -1
    _told_at: float | None = None

    def found(self, past: Past, unread: Unread) -> None:
        """Report rows of other writers, each snapshot once, and what was rolled back, each minute until it is back."""
        new = [commit for commit in unread.others if commit.sequence_number > self._seen]
        if new:
            self._seen = new[-1].sequence_number
            rows = sum(commit.rows for commit in new)
            self.emit(events.OthersNotRead(past.table, self.sink, len(new), rows))
        if not unread.is_rolled_back and not unread.lost_replay:
            self._told_at = None
        elif self._told_at is None or self.clock() - self._told_at >= WAITS_SECONDS:
            self._told_at = self.clock()
            rolled_back = events.ReadWaits(past.table, self.sink)
            lost = events.ReplayLost(past.table, self.sink, unread.lost_replay)
            self.emit(rolled_back if unread.is_rolled_back else lost)

    def planned(self, batches: Sequence[BatchFiles]) -> None:
        """Report the batches of a micro-batch."""
        if not batches:
            return
        ends = _short(batches[0].batch), _short(batches[-1].batch)
        counts = len(batches), sum(len(one.data) for one in batches), sum(one.batch.rows for one in batches)
        self.emit(events.ReadPlanned(self.table, self.sink, *ends, *counts))

    def hold_not_moved(self, reader: str, why: str) -> None:
        """Report that unread batches are not kept by the reader's branch."""
        self.emit(events.HoldNotMoved(self.table, reader, why))


def _short(batch: PastCommit) -> str:
    return f"replay-{batch.batch_id}" if batch.is_replay else str(batch.batch_id)
