"""Reports what a reading query plans, and what it leaves out: nothing is left out silently."""

from collections.abc import Sequence
from dataclasses import dataclass

from lakesink.read.batch_files import BatchFiles
from lakesink.read.steps import Past, Unread
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol import events


@dataclass(slots=True)
class Progress:
    """Emits the events of one run of a reading query.

    Attributes:
        _seen: Sequence number of the newest snapshot of others that was reported.
        _waits: True while the table is rolled back behind the position.
    """

    table: str
    sink: str
    emit: events.Listeners = LISTENERS
    _seen: int = -1
    _waits: bool = False

    def found(self, past: Past, unread: Unread) -> None:
        """Report rows of other writers, each snapshot once, and a rollback once."""
        new = [step for step in unread.others if step.sequence_number > self._seen]
        if new:
            self._seen = new[-1].sequence_number
            rows = sum(step.added_rows for step in new)
            self.emit(events.OthersNotRead(past.table, self.sink, len(new), rows))
        if unread.is_rolled_back and not self._waits:
            self.emit(events.ReadWaits(past.table, self.sink))
        self._waits = unread.is_rolled_back

    def planned(self, batches: Sequence[BatchFiles]) -> None:
        """Report the batches of a micro-batch."""
        if not batches:
            return
        ends = batches[0].batch.batch_id, batches[-1].batch.batch_id
        counts = len(batches), sum(len(one.data) for one in batches), sum(one.batch.added_rows for one in batches)
        self.emit(events.ReadPlanned(self.table, self.sink, *ends, *counts))

    def hold_not_moved(self, reader: str, why: str) -> None:
        """Report that unread batches are not kept by the reader's branch."""
        self.emit(events.HoldNotMoved(self.table, reader, why))
