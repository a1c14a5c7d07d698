"""The errors of reading a sink's batches: what cannot be read is named, never skipped."""

from collections.abc import Sequence

from lakesink.read.position import Position
from lakesink.read.steps import SinkBatches, Why
from lakesink_catalog.read.past import Past, PastCommit
from lakesink_catalog.words import counted, cut
from lakesink_protocol.errors import CatalogError, SettingsError


def batch_gone(table: str, batch: PastCommit, files_left: int) -> CatalogError:
    """The error for a batch whose snapshot has expired and whose files were compacted or deleted."""
    found = f"{files_left} of its {counted(batch.files, 'data file')}"
    following = "N, at the first batch after it (lakesink log shows it)" if batch.is_replay else str(batch.batch_id + 1)
    return CatalogError.of(
        "READ_BATCH_GONE", title=batch.title.capitalize(), table=table, found=found, following=following
    )


def position_lost(
    past: Past, sink: SinkBatches, position: Position, why: Why, *, was_read: bool = True
) -> CatalogError:
    """The error for a position from which the next batch cannot be told, or up to which a micro-batch was planned."""
    oldest = next(iter(sink.of(past)), None)
    if why is Why.BEGINNING_EXPIRED:
        first = "none is known" if oldest is None else f"the first that is known is batch {oldest.batch_id}"
        start = "latest" if oldest is None else oldest.batch_id
        return CatalogError.of("READ_BATCH_GONE.beginning", sink=sink.sink, table=past.table, first=first, start=start)
    code = "READ_UNVERIFIABLE" if why is Why.UNVERIFIABLE else "READ_BATCH_CHANGED"
    what = {
        Why.WRITTEN_OTHERWISE: "was rolled back, and written again with other rows",
        Why.NEW_QUERY: "was rolled back, and a new query has written since",
        Why.UNVERIFIABLE: "has expired, and nothing proves that it is still in the table",
    }[why]
    return CatalogError.of(
        code if was_read else f"{code}.planned",
        batch_id=position.batch_id,
        sink=position.sink,
        table=past.table,
        what=what,
    )


def batches_rolled_back(past: Past, start: Position, end: Position) -> CatalogError:
    """The error for planned batches that are not in the table."""
    went_back = start.batch_id > end.batch_id and (start.sink, start.query_id) == (end.sink, end.query_id)
    return CatalogError.of(
        "READ_ROLLED_BACK.behind_start" if went_back else "READ_ROLLED_BACK",
        start=_named(start),
        end=_named(end),
        table=past.table,
        batch_id=start.batch_id if went_back else end.batch_id,
    )


def begins_behind_plan(table: str, start: Position, end: Position) -> CatalogError:
    """The error for a first micro-batch that was planned and not completed, and whose beginning has moved since.

    Spark stores where a micro-batch ends. The options say where the first one began, and `latest` is a later batch now.
    """
    return CatalogError.of(
        "READ_ROLLED_BACK.first_plan", end=_named(end), table=table, start=_named(start), batch_id=max(end.batch_id, 0)
    )


def rows_taken_away(past: Past, sink: SinkBatches, by: PastCommit, before: Sequence[PastCommit] = ()) -> CatalogError:
    """The error for a snapshot behind the position that removed or replaced rows; `before` it, batches are unread."""
    if before:  # Spark 4.1 plans up to the newest batch when a query starts, and a plan is read whole or not at all
        numbers = before[0].title if len(before) == 1 else f"{before[0].title} to {before[-1].title}"
        code = "READ_ROWS_REMOVED.planned" if by.mark is None else "READ_CHANGES.planned"
        return CatalogError.of(code, snapshot_id=by.snapshot_id, table=past.table, numbers=numbers)
    if sink.have(by.mark):
        return CatalogError.of("READ_CHANGES", batch_id=by.batch_id, table=past.table)
    return CatalogError.of("READ_ROWS_REMOVED", table=past.table, snapshot_id=by.snapshot_id)


def sink_unknown(table: str, branch: str, sink_id: str, known: Sequence[str]) -> SettingsError:
    """The error for a sink without batches, or for a table without sinks."""
    wanted = f"sink {sink_id[:60]!r}" if sink_id else "a sink"
    hint = f"It has batches of {', '.join(known)}." if known else ""
    return SettingsError.of("SINK_UNKNOWN", branch=branch, table=table, wanted=wanted, hint=hint)


def batch_unknown(past: Past, sink: SinkBatches, batch_id: int, batches: Sequence[PastCommit]) -> SettingsError:
    """The error for a beginning at a batch that the table does not show."""
    known = f"batches {batches[0].batch_id} to {batches[-1].batch_id}" if batches else "no batch"
    return SettingsError.of(
        "OPTION_INVALID.starting_batch", batch_id=batch_id, table=past.table, known=known, sink=sink.sink
    )


def schema_changed(table: str, batch: PastCommit, columns: Sequence[str]) -> CatalogError:
    """The error for columns that a running query does not know."""
    kind = "replay" if batch.is_replay else "batch"
    return CatalogError.of(
        "READ_SCHEMA_CHANGED",
        title=batch.title.capitalize(),
        table=table,
        columns=cut(", ".join(columns), 100),
        kind=kind,
    )


def _named(position: Position) -> str:
    return "the beginning" if position.is_before_all else f"batch {position.batch_id}"
