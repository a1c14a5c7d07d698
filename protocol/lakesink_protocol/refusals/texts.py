"""The messages of refusals, as texts with the names of facts in braces; `refusal` selects and fills them. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakesink_protocol.errors import Reason
from lakesink_protocol.identity import SinkKind
from lakesink_protocol.refusals.choices import goes_on_at, reads_files
from lakesink_protocol.situation import Situation


def _of_application(s: Situation) -> bool:
    return s.key.kind is SinkKind.TXN


NEW_CHECKPOINT = (
    "Batch {n} is from a new checkpoint, but sink {sink} has batches up to {last}: restore the old one"
    " (other choices below)."
)


@dataclass(frozen=True, slots=True)
class Words:
    """What happened and what to do, for a reason, in situations that fulfil `when`. Names of facts are in braces.

    Each line of `action` is one way to go on.
    """

    reason: Reason
    what: str
    action: str
    when: Callable[[Situation], bool] = lambda _: True


URGENT = (
    # Accepting the batch unchanged would duplicate rows, or leave a gap.
    Words(
        Reason.UNKNOWN_HISTORY,
        "Iceberg's own sink has written batches up to {iceberg_sink_epoch} of this checkpoint, unknown to sink {sink}.",
        "To continue with lakesink, stop the query with that sink permanently and run `lakesink adopt <table>"
        " --sink {name} --checkpoint <checkpoint>`: it prints the next batch.",
        when=lambda s: bool(s.iceberg_sink_epochs),
    ),
    # Decision 0001: if others rewrote every file and expiry cut the history, both cases look the same.
    Words(
        Reason.ROLLED_BACK,
        "The table no longer shows that it has batch {last} of sink {sink}: rolled back, or rewritten and expired.",
        "If the rows of batch {last} are not in the table, it was rolled back: stop the stream, determine the newest"
        " batch from the rows, and run `lakesink rewind <checkpoint> --to-batch <that batch>`.\n"
        "If they are in the table, nothing was rolled back: accept as below if the rows of batch {n} are not in the"
        " table.",
        when=lambda s: s.rolled_back and not s.rollback_is_proven,
    ),
)
"""Messages for all targets; they have precedence."""

WORDS: Sequence[Words] = (
    Words(
        Reason.UNSUPPORTED,
        "The table has format version {format_version}; lakesink writes version 2.",
        "Stream into a version 2 table.",
    ),
    Words(
        Reason.BRANCH_MISSING,
        "The branch {branch!r} is not in the table.",
        "Correct the option branch.\n"
        "Create the branch (Spark SQL: ALTER TABLE ... CREATE BRANCH ...). Sink {sink} has no readable ledger entry for"
        " it, so no snapshot is known that has every row of the sink.",
        when=lambda s: s.entry is None,
    ),
    Words(
        Reason.BRANCH_MISSING,
        "The branch {branch!r} is not in the table.",
        "Correct the option branch.\n"
        "Create the branch (Spark SQL: ALTER TABLE ... CREATE BRANCH ... AS OF VERSION {entry_snapshot}). At that"
        " snapshot it has every row up to batch {last} of this sink. At another snapshot it can lack rows, and the"
        " next batch is then refused as rolled back.",
    ),
    Words(
        Reason.TABLE_REPLACED,
        "The table now has UUID {table_uuid}; this stream wrote to {known_uuid}.",
        "Restore the old table. This table is a copy: it has the batches of sink {sink} up to {newest}.\n"
        "To continue in the copy, use a new sink id and a new checkpoint that starts where these batches end:"
        " {newest_end}. A checkpoint that starts earlier brings their rows twice; file sources start at the"
        " beginning.",
        when=lambda s: s.newest_mark is not None,
    ),
    Words(
        Reason.TABLE_REPLACED,
        "The table now has UUID {table_uuid}; this stream wrote to {known_uuid}.",
        "Restore the old table. This table shows no batch of sink {sink}.\n"
        "If it was dropped and recreated on purpose, use a new sink id and a new checkpoint: they read the source"
        " from its beginning, rows that the source no longer has are lost, and rows that this table already has"
        " come twice.",
    ),
    Words(
        Reason.LEDGER_DAMAGED,
        "The ledger entry of sink {sink} cannot be trusted: {damage}.",
        "A person or a program set the table property {property}, perhaps to an older value. Stop that, then run"
        " `lakesink restore <table> --sink {name}{options}`: it sets the entry from the newest batch in the table,"
        " {newest}, and changes no row.",
        when=lambda s: s.entry is not None and s.unread_version is None and s.newest_known is not None,
    ),
    Words(
        Reason.LEDGER_DAMAGED,
        "The ledger entry of sink {sink} cannot be trusted: {damage}.",
        "Compare the table property {property} with the newest snapshot of this sink; update lakesink if the"
        " entry was written by a newer version.",
    ),
    Words(
        Reason.LEDGER_LOST,
        "The table has batches of sink {sink}, but their ledger entry is missing.",
        "If `lakesink forget` removed this sink, use another sink id.\n"
        "If the table property {property} was removed in another way, run `lakesink restore <table> --sink"
        " {name}{options}`: it sets the entry from the newest batch in the table, {newest}, and changes no row.",
    ),
    Words(
        Reason.UNKNOWN_HISTORY,
        "Version {n} of application {sink} is already in this branch; it was written to another branch.",
        "{landed}. For other rows use a higher version.",
        when=lambda s: _of_application(s) and s.landed is not None,
    ),
    Words(
        Reason.UNKNOWN_HISTORY,
        "Version {n} of application {sink} may already be in this branch: expiry hides the history before a fork.",
        "Check whether the rows of version {n} are in this branch, and choose below if there is a choice. The table"
        " has {elsewhere} of this application from another branch; higher versions are appended without this check.\n"
        "Use a separate application id.",
        when=_of_application,
    ),
    Words(
        Reason.UNKNOWN_HISTORY,
        "Batch {n} of sink {sink} is already in this branch, under another sink id or branch.",
        "{landed}. To continue here, give the query the checkpoint that ends with batch {newest_of_stream}, its"
        " newest batch in this branch.",
        when=lambda s: s.newest_of_stream is not None and (s.landed is not None or s.later_landed is not None),
    ),
    Words(
        Reason.UNKNOWN_HISTORY,
        "Batch {n} of sink {sink} is for a branch that has batches of its query under another sink id or branch.",
        "Check table, branch and sink id.\n"
        "If the query continues here on purpose, run `lakesink rewind <checkpoint> --to-batch {newest_of_stream}`,"
        " the newest of those batches, and accept the next batch, {after_stream}.",
        when=lambda s: s.newest_of_stream is not None,
    ),
    Words(
        Reason.UNKNOWN_HISTORY,
        "Batch {n} of sink {sink} is for a branch that may have its batches: expiry hides the history before a fork.",
        "Check table, branch and sink id.\n"
        "The table has {elsewhere} of this sink from another branch. Determine from the rows which of its batches"
        " this branch has, and choose below. They come twice if they are read again, also by a new checkpoint, which"
        " reads the source from its beginning.",
        when=lambda s: s.hidden,
    ),
    Words(
        Reason.UNKNOWN_HISTORY,
        "Batch {n} of sink {sink} is for a table or branch that has no record of the batches before it.",
        "Check table, branch and sink id. If earlier batches were written elsewhere on purpose, choose below.\n"
        "Start a new checkpoint, which reads the source from its beginning: rows that the table has come twice.",
    ),
    Words(
        Reason.ROLLED_BACK,
        "The table was rolled back behind version {last} of application {sink}; the newest in it is {newest}.",
        "Append again every version that the rollback removed, in this order: {undone}. Then no row is lost,"
        " and none comes twice.",
        when=_of_application,
    ),
    # A rewind to the beginning would duplicate the rows in the table.
    Words(
        Reason.ROLLED_BACK,
        "The table was rolled back behind batch {last} of sink {sink}; expiry hides the newest batch that it has.",
        "Stop the stream and determine from the rows the newest batch in the table. Run `lakesink rewind"
        " <checkpoint> --to-batch <that batch>`, start the stream, and accept the batch after it.",
        when=lambda s: s.newest_mark is None and not s.ancestry_complete,
    ),
    Words(
        Reason.ROLLED_BACK,
        "The table was rolled back behind batch {last} of sink {sink}; the newest in it is of another checkpoint.",
        "If this checkpoint began where that batch ends, at {newest_end}, then its first batches were rolled back too:"
        " stop the stream, run `lakesink rewind <checkpoint> --to-batch -1`, and start it again.\n"
        "Otherwise start with the checkpoint of that batch, after `lakesink rewind <that checkpoint> --to-batch"
        " {newest_id}`.",
        when=lambda s: s.newest_mark is not None and s.newest_mark.query_id != s.batch.query_id,
    ),
    Words(
        Reason.ROLLED_BACK,
        "The table was rolled back behind batch {last} of sink {sink}; the newest batch in it is {newest}:"
        " rewind the checkpoint to it.",
        "Stop the stream, run `lakesink rewind <checkpoint> --to-batch {newest_id}` (it deletes from commits/ and"
        " offsets/ every file above {newest_id}), and start it again: the batches after it are replayed, and no row"
        " comes twice. The table ends at {newest_end}. This does not restore batches of other sink ids that the"
        " rollback removed.",
    ),
    Words(
        Reason.NEW_CHECKPOINT,
        NEW_CHECKPOINT,
        "Restore the old checkpoint: then no row is lost and none comes twice.\n"
        "If you no longer have it, move every file that the sink has read out of the source's directory (a file"
        " source always starts at the beginning). What is left of the old checkpoint names these files, in its folder"
        " sources; the table does not. Then start with another new checkpoint, and accept its first batch.",
        when=reads_files,
    ),
    Words(
        Reason.NEW_CHECKPOINT,
        NEW_CHECKPOINT,
        "Restore the old checkpoint: then no row is lost and none comes twice.\n"
        "Start the reading query on another new checkpoint with the option starting-batch={goes_on_at}, and accept its"
        " first batch: then no row is lost and none comes twice.",
        when=lambda s: goes_on_at(s) is not None,
    ),
    Words(
        Reason.NEW_CHECKPOINT,
        NEW_CHECKPOINT,
        "Restore the old checkpoint: then no row is lost and none comes twice.\n"
        "Start the new checkpoint exactly where the sink ended: {end}. Then no row is lost and none comes twice.",
    ),
    Words(
        Reason.BATCH_CHANGED,
        "Batch {changed} of sink {sink} was replayed with other data than the table has: restore its checkpoint.",
        "Restore the checkpoint that belongs to the table: then no row is lost and none comes twice. The source or"
        " the checkpoint changed since batch {last} was committed, which ended at {end}.",
    ),
    Words(
        Reason.REWOUND,
        "Version {n} of application {sink} is older than its last version {last}, and {why_rewound}.",
        "Versions of one application must increase. Give a load of older data a separate application id, such as"
        ' txn=("load-2026-01-01", 1): that load is then exactly once.',
        when=_of_application,
    ),
    Words(
        Reason.REWOUND,
        "Batch {n} of sink {sink} is older than the ledger's batch {last}, and {why_rewound}.",
        "Restore the newest checkpoint: this one is older than the table. The ledger ended at {end}. Nothing was"
        " rolled back. An accept does not change the ledger: it stays at batch {last}.",
    ),
    Words(
        Reason.GAP,
        "Batch {n} of sink {sink} does not follow the ledger's batch {last}: batches are missing. Rewind to {last}.",
        "Stop the stream, run `lakesink rewind <checkpoint> --to-batch {last}`, and start it again: batches {next}"
        " to {n} are replayed. The checkpoint is newer than the table, or two queries share this sink id.",
    ),
    Words(
        Reason.INPUT_MISSING,
        "Batch {n} of sink {sink} reads files of which {missing_count} cannot be found, and would lack their rows."
        " Put them back.",
        "Put the files back where they were (a source with cleanSource moves or deletes the files of earlier"
        " batches) and start the query again: then no row is lost and none comes twice. Missing: {missing}.",
    ),
)
"""Messages for tables; the first one that fulfils `when` is used."""
