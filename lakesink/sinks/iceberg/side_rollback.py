"""What side tables still have of batches that were rolled back from the table of a sink."""

from collections.abc import Iterable

from lakesink.sinks.iceberg.side_batches import left_behind, way_back
from lakesink.sinks.iceberg.side_table import SideTableSink
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.errors import BatchRefused, CatalogError, Reason


def with_side_tables(refused: BatchRefused, sides: Iterable[SideTableSink]) -> BatchRefused:
    """The refusal, after a rollback with the side tables that have batches which the table has no more."""
    left = " ".join(filter(None, map(_left_in, sides))) if refused.reason is Reason.ROLLED_BACK else ""
    action = refused.choices or refused.action
    return BatchRefused(refused.reason, refused.what, data=f"{refused.data} {left}", action=action) if left else refused


def _left_in(side: SideTableSink) -> str:
    """What this one has of them, and the snapshot before them; empty if nothing, or if it cannot be told."""
    try:
        table = load_table(side.connected(), side.table)
    except CatalogError:
        return ""
    left = left_behind(table, side.kind.key_of, side.owner, side.own())
    if not left:
        return ""
    first, last = left[-1].batch_id, left[0].batch_id
    named = f"batch {first}" if first == last else f"batches {first} to {last}"
    back = way_back(table, left)
    said = f"{side.table} still has {side.kind.keeps} of {named}, which the table no longer has."
    if back is None:
        return f"{said} No rollback takes them out: name another {side.kind.option} before the batches are replayed."
    return f"{said} {back} Do it before the batches are replayed."
