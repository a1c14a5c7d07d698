"""Which batches of a sink a table has: another table, which commits before it, may have more."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.table import Table

from lakesink_catalog.read.view import newest_summary, view_table
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.ledger import LARGEST_NUMBER, LedgerEntry, Mark, SnapshotLike
from lakesink_protocol.situation import Situation


def newest_batch(table: Table, key: SinkKey) -> LedgerEntry | Mark | None:
    """The newest batch of a sink that the table has, also after a rollback; None if it has none."""
    return _newest(Situation(view_table(table, key), key))


class Landed:
    """The batches of one sink in its branch, as far as ledger and history show them.

    Attributes:
        key: The sink.
        newest: See `newest_batch`.
        may_lack_all: The branch was rolled back, as far as it shows, and shows no batch that was left.
    """

    def __init__(self, table: Table, key: SinkKey) -> None:
        seen = Situation(view_table(table, key), key)
        self.key = key
        self.newest = _newest(seen)
        self.may_lack_all = seen.rolled_back and self.newest is None
        self._seen = seen
        self._marked = defaultdict[tuple[str, int], list[SnapshotLike]](list)
        for mark, snapshot in seen.own_marks:
            self._marked[mark.query_id, mark.batch_id].append(snapshot)
        numbers = (snapshot.sequence_number or 0 for snapshot in seen.view.ancestry())
        self._shown_from = LARGEST_NUMBER if seen.is_blind else min(numbers, default=0)

    def has(self, query_id: str, batch_id: int, after: int | None) -> bool | None:
        """True if the branch has a batch, False if it does not, None if neither ledger nor history tells.

        `after` is a sequence number that the table had before it could get the batch; None if it is unknown.
        """
        newest = self.newest if self.newest is not None and self.newest.query_id == query_id else None
        if (query_id, batch_id) in self._marked or (newest is not None and newest.batch_id == batch_id):
            return True
        if after is not None and self._shown_from <= after + 1:
            return False
        return None if newest is None else batch_id < newest.batch_id

    def summaries(self, query_id: str, batch_id: int) -> Sequence[Mapping[str, Any]]:
        """What the commits of a batch say, as far as their snapshots are retained. An old batch can land again."""
        return [self._seen.summary_of(one) or {} for one in self._marked.get((query_id, batch_id), ())]

    def newest_summary(self, query_id: str | None = None) -> Mapping[str, Any]:
        """What the newest batch of a query says, or of any."""
        return newest_summary(self._seen, query_id)


def _newest(seen: Situation) -> LedgerEntry | Mark | None:
    return seen.newest_mark if seen.rolled_back else seen.entry
