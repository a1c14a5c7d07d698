"""Views of tables made by hand, for rules that need no table: chains of small snapshots with or without marks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lakesink_protocol.identity import Batch, SinkKey, stream_batch
from lakesink_protocol.ledger import LedgerEntry, Mark, TableView, next_entry, stated_of

UUID = "11111111-1111-1111-1111-111111111111"
OTHER_UUID = "22222222-2222-2222-2222-222222222222"
KEY = SinkKey("events")
FOREIGN = None


@dataclass(frozen=True, slots=True)
class Snap:
    snapshot_id: int
    parent_snapshot_id: int | None
    sequence_number: int | None
    summary: Mapping[str, str] | None = field(default=None)


def batch(batch_id: int, query: str = "q1", *, start: Any = "follows", end: Any = None) -> Batch:
    """Batch n reads offsets n to n+1, unless told otherwise; start None is unknown."""
    starts = None if start is None else [batch_id if start == "follows" else start]
    return stream_batch(batch_id, query, start=starts, end=[batch_id + 1 if end is None else end])


def mark(of: Batch, key: SinkKey = KEY, *, ledger: int | None = None) -> Mark:
    moved = of.batch_id if ledger is None else ledger
    return Mark(key, outcome="committed", accepted="", ledger_batch_id=moved, **stated_of(of))


@dataclass(frozen=True, slots=True)
class Epoch:
    """What Iceberg's own sink says in its snapshot."""

    epoch_id: int | str
    query: str = "q1"

    def to_summary(self) -> dict[str, str]:
        return {"spark.sql.streaming.queryId": self.query, "spark.sql.streaming.epochId": str(self.epoch_id)}


def chain(*marks: Mark | Batch | Epoch | None, first: int = 1, parent: int | None = None) -> list[Snap]:
    """Snapshots one on the other, oldest first; the id is 100 and the sequence number."""
    snaps = []
    for sequence_number, item in enumerate(marks, first):
        own = mark(item) if isinstance(item, Batch) else item
        summary = own.to_summary() if own else {"operation": "append"}
        snaps.append(Snap(100 + sequence_number, parent, sequence_number, summary))
        parent = 100 + sequence_number
    return snaps


def entry(of: Batch, sequence_number: int, **changed: Any) -> LedgerEntry:
    """The ledger entry of a batch whose snapshot has this sequence number."""
    written = next_entry(of, snapshot_id=100 + sequence_number, sequence_number=sequence_number, table_uuid=UUID)
    return replace(written, **changed)


def view(
    walk: Sequence[Snap] = (),
    ledger: LedgerEntry | None = None,
    *,
    elsewhere: Sequence[Snap] = (),
    contained: bool | None = None,
    **changed: Any,
) -> TableView:
    """A view whose head is the last of `walk`.

    `elsewhere` is in the metadata and not under the head; `contained` is the answer of a search for evidence, which
    nobody may ask for where it is None.
    """

    def branch_contains(_: int) -> bool:
        assert contained is not None, "evidence is sought only where expiry cut the walk"
        return contained

    every = [*walk, *elsewhere]
    seen = TableView(
        table_uuid=UUID,
        format_version=2,
        branch_exists=True,
        head=walk[-1].snapshot_id if walk else None,
        entry=ledger,
        entry_damage="",
        snapshots={snap.snapshot_id: snap for snap in every},
        tag_snapshot_id=ledger.snapshot_id if ledger else None,
        last_sequence_number=max((snap.sequence_number or 0 for snap in every), default=0),
        branch_contains=branch_contains,
    )
    return replace(seen, **changed)
