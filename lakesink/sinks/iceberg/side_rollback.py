"""What side tables still have of batches that were rolled back from the table of a sink."""

from collections.abc import Iterable, Iterator

from lakesink.sinks.iceberg.side_table import SideTableSink
from lakesink.words import counted
from lakesink_catalog.read.view import view_table
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.errors import BatchRefused, CatalogError, Reason
from lakesink_protocol.ledger import mark_of
from lakesink_protocol.situation import Situation


def with_side_tables(refused: BatchRefused, situation: Situation, sides: Iterable[SideTableSink]) -> BatchRefused:
    """The refusal, after a rollback with the side tables that have batches which the table has no more."""
    if refused.reason is not Reason.ROLLED_BACK:
        return refused
    left = " ".join(filter(None, (_left_in(side, situation) for side in sides)))
    action = refused.choices or refused.action
    return BatchRefused(refused.reason, refused.what, data=f"{refused.data} {left}", action=action) if left else refused


def _left_in(side: SideTableSink, situation: Situation) -> str:
    """What this one has of them, and the snapshot before them; empty if nothing, or if it cannot be told."""
    newest, query = situation.newest_mark, situation.batch.query_id
    if newest is None and not situation.ancestry_complete:
        return ""
    last = newest.batch_id if newest is not None and newest.query_id == query else -1
    key = side.kind.key_of(side.owner, query, side.table_uuid())
    try:
        table = load_table(side.connected(), side.table)
    except CatalogError:
        return ""
    snapshots = list(view_table(table, key).ancestry())
    marks = [
        mark if mark is not None and mark.key == key else None for mark in (mark_of(one.summary) for one in snapshots)
    ]
    found = {at: mark.batch_id for at, mark in enumerate(marks) if mark is not None and mark.batch_id > last}
    if not found:
        return ""
    oldest = max(found)
    batches = list(found.values())
    return " ".join(_in_words(side, batches, snapshots[oldest].parent_snapshot_id, marks[:oldest].count(None)))


def _in_words(side: SideTableSink, batches: list[int], before: int | None, others: int) -> Iterator[str]:
    first, last = min(batches), max(batches)
    named = f"batch {first}" if first == last else f"batches {first} to {last}"
    yield f"{side.table} still has {side.kind.keeps} of {named}, which the table no longer has."
    to = "Drop it" if before is None else f"Roll it back to snapshot {before}"
    yield f"{to} before the batches are replayed."
    if others:
        yield f"That also takes back {counted(others, 'later commit')} of others."
