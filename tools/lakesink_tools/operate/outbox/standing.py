"""Whether a table still has what an outbox has produced; the outbox stops if not, and never guesses. Pure."""

from lakesink.read.position import Position
from lakesink.read.steps import Unread, is_batch_of
from lakesink_catalog.read.past import Past
from lakesink_protocol.catalogue import DataState
from lakesink_protocol.errors import CatalogError
from lakesink_tools.operate.outbox.position import Outbox

_ANEW = "delete the topic, create it again, and start an outbox with a new --id: it produces all batches again."


def check_standing(past: Past, unread: Unread, position: Position, outbox: Outbox) -> None:
    """Refuse a table that was rolled back behind the position.

    A reader of new rows may go on behind any batch that ends at the same offsets. An outbox may not: its topic has the
    rows of the batch as it was, and the table has others.

    Raises:
        CatalogError: READ_ROLLED_BACK, or READ_BATCH_CHANGED if other batches were written in the place of those that
            were produced.
    """
    if unread.is_rolled_back:
        raise CatalogError(
            "READ_ROLLED_BACK",
            f"{_named(position, outbox)} was produced, and {outbox.table} was rolled back behind it.",
            data=DataState.UNCHANGED,
            action=(
                "If the rollback was a mistake, take it back.",
                f"If the stream writes the same batches again, start the outbox behind batch {position.batch_id}.",
                f"If the stream will write other rows, {_ANEW}",
            ),
        )
    if unread.lost_replay:
        raise CatalogError(
            "READ_ROLLED_BACK",
            f"Replay {unread.lost_replay} of dead letters of sink {outbox.sink.sink!r} was produced, and {outbox.table}"
            " was rolled back behind it.",
            data=DataState.UNCHANGED,
            action=(
                "If the rollback was a mistake, take it back.",
                f"To replay the same rows: lakesink dead-letters {outbox.table} --replay FIX.sql, then the outbox.",
                f"If the replay will have other rows, {_ANEW}",
            ),
        )
    if not _has_produced(past, position):
        raise CatalogError(
            "READ_BATCH_CHANGED",
            f"{_named(position, outbox)} was produced; it was rolled back, and other batches were written instead.",
            data=DataState.UNCHANGED,
            action=("Roll the table back to a version that has the batch.", f"If the table is right, {_ANEW}"),
        )


def _has_produced(past: Past, position: Position) -> bool:
    """True if the branch has the position's snapshot, or the same batch written again with the same input."""
    if position.is_before_all or past.parent_id == position.snapshot_id:
        return True
    return any(one.snapshot_id == position.snapshot_id or is_batch_of(one, position) for one in past.commits)


def _named(position: Position, outbox: Outbox) -> str:
    return f"Batch {position.batch_id} of sink {outbox.sink.sink!r}"
