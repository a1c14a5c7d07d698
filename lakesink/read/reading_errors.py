"""The errors of reading a sink's batches: what cannot be read is named, never skipped."""

from collections.abc import Sequence

from lakesink.read.position import Position
from lakesink.read.steps import SinkBatches, Why
from lakesink_catalog.read.past import Past, PastCommit
from lakesink_catalog.words import counted
from lakesink_protocol.catalogue import DataState
from lakesink_protocol.errors import CatalogError, SettingsError

_BACK = (
    "Take the reading query back: roll its table back to a batch that ended before, and `lakesink rewind` its"
    " checkpoint to that batch; lakesink log shows its offsets. If its first batch ended behind it already, roll that"
    " table back to before its first batch, or drop it if it has nothing else, and give --to-batch -1: it then reads"
    " all batches again."
)
_NEW_READER = (
    "Compare what was read with the table, and start a new checkpoint with the option starting-batch. The table that it"
    " writes refuses the first batch (LAKESINK_NEW_CHECKPOINT) until you accept it."
)
_UNPLANNED = "take the planned batch out of this query's checkpoint with `lakesink rewind`, and start it again."
_AGAIN = "To go on without what is missing, start a new checkpoint with the option starting-batch={batch}."


def batch_gone(table: str, batch: PastCommit, files_left: int) -> CatalogError:
    """The error for a batch whose snapshot has expired and whose files were compacted or deleted."""
    found = f"{files_left} of its {counted(batch.files, 'data file')}"
    following = "N, at the first batch after it (lakesink log shows it)" if batch.is_replay else str(batch.batch_id + 1)
    return CatalogError(
        "READ_BATCH_GONE",
        f"{batch.title.capitalize()} of {table} was not read, and its snapshot has expired: {found} can still be told.",
        data=DataState.UNCHANGED,
        action=(
            "Its rows may be in compacted files of the table, but not as a batch. " + _AGAIN.format(batch=following),
            "Copy the rows of the batch from the table by a query of your own, then do that.",
        ),
    )


def position_lost(
    past: Past, sink: SinkBatches, position: Position, why: Why, *, was_read: bool = True
) -> CatalogError:
    """The error for a position from which the next batch cannot be told, or up to which a micro-batch was planned."""
    oldest = next(iter(sink.of(past)), None)
    if why is Why.BEGINNING_EXPIRED:
        first = "none is known" if oldest is None else f"the first that is known is batch {oldest.batch_id}"
        return CatalogError(
            "READ_BATCH_GONE",
            f"The first batches of sink {sink.sink!r} in {past.table} have expired; {first}.",
            data=DataState.UNCHANGED,
            action="Start at a batch that is known, with the option starting-batch"
            + (f"={oldest.batch_id}." if oldest else "=latest."),
        )
    what, code = {
        Why.WRITTEN_OTHERWISE: ("was rolled back, and written again with other rows", "READ_BATCH_CHANGED"),
        Why.NEW_QUERY: ("was rolled back, and a new query has written since", "READ_BATCH_CHANGED"),
        Why.UNVERIFIABLE: ("has expired, and nothing proves that it is still in the table", "READ_UNVERIFIABLE"),
    }[why]
    read = "was read" if was_read else "was to be read"
    return CatalogError(
        code,
        f"Batch {position.batch_id} of sink {position.sink!r} in {past.table} {read}; it {what}.",
        data=DataState.UNCHANGED,
        action=(_BACK, _NEW_READER) if was_read else f"To read what is in the table now, {_UNPLANNED}",
    )


def batches_rolled_back(past: Past, start: Position, end: Position) -> CatalogError:
    """The error for planned batches that are not in the table."""
    went_back = start.batch_id > end.batch_id and (start.sink, start.query_id) == (end.sink, end.query_id)
    awaited = f"Start the query that writes {past.table} again, until it has written batch"
    action = (
        (f"{awaited} {start.batch_id}. Then {_UNPLANNED}",)
        if went_back
        else (
            f"{awaited} {end.batch_id}. Then start this query again.",
            f"If it will write other batches, {_UNPLANNED}",
        )
    )
    return CatalogError(
        "READ_ROLLED_BACK",
        f"The batches after {_named(start)} up to {_named(end)} were to be read, and {past.table} was rolled back.",
        data=DataState.UNCHANGED,
        action=action,
    )


def replay_rolled_back(past: Past, replay: int, *, was_read: bool) -> CatalogError:
    """The error for a replay of dead letters that was read, or is planned, and is not in the table."""
    again = f"Replay the dead letters again, until {past.table} has replay {replay}: lakesink dead-letters {past.table}"
    what = "was read" if was_read else "was to be read"
    other = (
        "Start it with Spark 4.2 or newer, which reads on: Spark 4.1 cannot begin behind the replay."
        if was_read
        else "If they shall not be replayed, take the planned batch out of the checkpoint with `lakesink rewind`."
    )
    return CatalogError(
        "READ_ROLLED_BACK",
        f"Replay {replay} of dead letters {what}, and {past.table} was rolled back behind it.",
        data=DataState.UNCHANGED,
        action=(f"{again} --replay FIX.sql. Then start this query again.", other),
    )


def replay_changed(past: Past, sink: SinkBatches, replay: int) -> CatalogError:
    """The error for a replay that was rolled back, and whose letters were replayed otherwise."""
    return CatalogError(
        "READ_BATCH_CHANGED",
        f"Replay {replay} of dead letters of sink {sink.sink!r} in {past.table} was read; it was rolled back, and its"
        " letters were replayed otherwise.",
        data=DataState.UNCHANGED,
        action=(_BACK, _NEW_READER),
    )


def begins_behind_plan(table: str, start: Position, end: Position) -> CatalogError:
    """The error for a first micro-batch that was planned and not completed, and whose beginning has moved since.

    Spark stores where a micro-batch ends. The options say where the first one began, and `latest` is a later batch now.
    """
    return CatalogError(
        "READ_ROLLED_BACK",
        f"The first micro-batch was planned up to {_named(end)} of {table}, and the options now begin at"
        f" {_named(start)}.",
        data=DataState.UNCHANGED,
        action=(
            (
                "The last run ended before its first micro-batch was complete. Start the query with this checkpoint and"
                f" the option starting-batch={max(end.batch_id, 0)}, or an earlier batch that it shall begin with;"
                " later starts ignore the option."
            ),
            "Or delete the checkpoint, if nothing of it was used: the query then begins at what is latest.",
        ),
    )


def rows_taken_away(past: Past, sink: SinkBatches, by: PastCommit, before: Sequence[PastCommit] = ()) -> CatalogError:
    """The error for a snapshot behind the position that removed or replaced rows; `before` it, batches are unread."""
    if before:
        return _stopped_before(past, by, before)
    if sink.have(by.mark):
        return CatalogError(
            "READ_CHANGES",
            f"Batch {by.batch_id} of {past.table} replaced or deleted rows, which a stream of new rows cannot show.",
            data=DataState.UNCHANGED,
            action="Write the changes into a table of their own with the option changelog_table of the writing query,"
            " and read that table: it has the changes of the batches from then on, and none of earlier ones.",
        )
    return CatalogError(
        "READ_ROWS_REMOVED",
        f"Another writer removed or replaced rows of {past.table} in snapshot {by.snapshot_id}.",
        data="No batch behind that snapshot was read.",
        action="Take the rows back where they were read to, if need be. Then start a new checkpoint with the option"
        " starting-batch, at the first batch after that snapshot (lakesink log shows the batches).",
    )


def _stopped_before(past: Past, by: PastCommit, before: Sequence[PastCommit]) -> CatalogError:
    """Spark 4.1 plans up to the newest batch when a query starts, and a plan is read whole or not at all."""
    numbers = before[0].title if len(before) == 1 else f"{before[0].title} to {before[-1].title}"
    return CatalogError(
        "READ_CHANGES" if by.mark is not None else "READ_ROWS_REMOVED",
        f"Snapshot {by.snapshot_id} of {past.table} removed or replaced rows, and {numbers} before it were not read.",
        data="Nothing of this micro-batch was read.",
        action=(
            "Read it with Spark 4.2 or newer and this checkpoint: it first reads the batches before that snapshot.",
            (
                "With Spark 4.1, take the planned batch out of the checkpoint with `lakesink rewind`, copy the rows of"
                f" {numbers} from their snapshots by a query of your own (lakesink as-of), and then start a new"
                " checkpoint with the option starting-batch at the first batch after that snapshot."
            ),
        ),
    )


def table_replaced(past: Past, position: Position) -> CatalogError:
    """The error for a name that belongs to another table now."""
    return CatalogError(
        "TABLE_REPLACED",
        f"{past.table} now has UUID {past.table_uuid}; the query has read from {position.table_uuid}.",
        data=DataState.UNCHANGED,
        action="If the table was dropped by mistake, restore it. To read the new table, start a new checkpoint.",
    )


def sink_changed(past: Past, sink: SinkBatches, position: Position) -> SettingsError:
    """The error for a checkpoint that has read the batches of another sink or branch."""
    return SettingsError(
        "OPTION_INVALID",
        f"The query reads sink {sink.sink!r} on branch {sink.branch} of {past.table}; its checkpoint has read"
        f" {position.sink!r} on {position.branch}.",
        data=DataState.UNCHANGED,
        action="Set sink-id and branch back. To read other batches, start a new checkpoint.",
    )


def version_unsupported(table: str, version: int) -> CatalogError:
    """The error for a table of another format version."""
    return CatalogError(
        "UNSUPPORTED",
        f"{table} has format version {version}; lakesink reads the batches of tables of version 2.",
        data=DataState.UNCHANGED,
        action="Read it with Iceberg's own Spark catalog.",
    )


def type_unsupported(table: str, column: str) -> CatalogError:
    """The error for a column that Spark cannot have."""
    return CatalogError(
        "TYPE_UNSUPPORTED",
        f"Column {column[:60]!r} of {table} is a time of day, which Spark cannot read.",
        data=DataState.UNCHANGED,
        action="Read the table with Trino, DuckDB or PyIceberg, or drop the column.",
    )


def sink_unknown(table: str, branch: str, sink_id: str, known: Sequence[str]) -> SettingsError:
    """The error for a sink without batches, or for a table without sinks."""
    wanted = f"sink {sink_id[:60]!r}" if sink_id else "a sink"
    there = f"It has batches of {', '.join(known)}. " if known else ""
    return SettingsError(
        "SINK_UNKNOWN",
        f"Branch {branch} of {table} knows no batch of {wanted}.",
        data=DataState.UNCHANGED,
        action=f"{there}Start the query that writes the table first; `lakesink status {table}` shows every sink.",
    )


def sink_ambiguous(table: str, branch: str, sinks: Sequence[str]) -> SettingsError:
    """The error if several sinks write and none is named."""
    return SettingsError(
        "SINK_AMBIGUOUS",
        f"Several sinks write to branch {branch} of {table}: {', '.join(sinks)[:100]}.",
        data=DataState.UNCHANGED,
        action='Name one: .option("sink-id", "..."). To read several, read each one and unite the rows.',
    )


def batch_unknown(past: Past, sink: SinkBatches, batch_id: int, batches: Sequence[PastCommit]) -> SettingsError:
    """The error for a beginning at a batch that the table does not show."""
    known = f"batches {batches[0].batch_id} to {batches[-1].batch_id}" if batches else "no batch"
    return SettingsError(
        "OPTION_INVALID",
        f"The option starting-batch is {batch_id}; {past.table} shows {known} of sink {sink.sink!r}.",
        data=DataState.UNCHANGED,
        action="Name a batch that `lakesink log` shows, or earliest, or latest.",
    )


def schema_changed(table: str, batch: PastCommit, columns: Sequence[str]) -> CatalogError:
    """The error for columns that a running query does not know."""
    kind = "replay" if batch.is_replay else "batch"
    return CatalogError(
        "READ_SCHEMA_CHANGED",
        f"{batch.title.capitalize()} of {table} has columns that the query began without: {', '.join(columns)[:100]}.",
        data=DataState.UNCHANGED,
        action=f"They were added or widened while it ran. Start the query again: it then reads them, from this {kind}.",
    )


def _named(position: Position) -> str:
    return "the beginning" if position.is_before_all else f"batch {position.batch_id}"
