"""The messages of refusals, as texts with the names of facts in braces; `refusal` selects and fills them. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakesink_protocol.choices import reads_files
from lakesink_protocol.errors import Reason
from lakesink_protocol.identity import SinkKind
from lakesink_protocol.situation import Situation


def _always(_: Situation) -> bool:
    return True


def _of_application(s: Situation) -> bool:
    return s.key.kind is SinkKind.TXN


def _can_be_restored(s: Situation) -> bool:
    """Restoring needs a readable entry and readable marks."""
    return s.entry is not None and s.unread_version is None and s.newest_known is not None


@dataclass(frozen=True, slots=True)
class Words:
    """What happened and what to do, for a reason; `when` they fit, if not always. Names of facts are in braces."""

    reason: Reason
    what: str
    action: str
    when: Callable[[Situation], bool] = _always


URGENT = (
    # Accepting the batch unchanged would duplicate rows, or leave a gap.
    Words(
        Reason.UNKNOWN_HISTORY,
        "Iceberg's own sink has written batches up to {others_epoch} of this checkpoint, unknown to sink {sink}.",
        "To go on with lakesink, stop the query with that sink for good and run `lakesink adopt <table>"
        " --sink {name} --checkpoint <checkpoint>`: it tells which batch comes next.",
        when=lambda s: bool(s.others_epochs),
    ),
    # Decision 0001: if others rewrote every file and expiry cut the history, both cases look the same.
    Words(
        Reason.ROLLED_BACK,
        "The table no longer shows that batch {last} of sink {sink} is in it: rolled back, or rewritten and expired.",
        "Look whether the rows of batch {last} are in the table. If they are not, the table was rolled back:"
        " stop the stream, find out by the rows which batch is the newest, and run `lakesink rewind <checkpoint>"
        " --to-batch <that batch>`. If they are there, nothing was rolled back: accept as below if batch {n} is"
        " not among them.",
        when=lambda s: s.gone and not s.rollback_is_proven,
    ),
)
"""Words that hold for every target."""

WORDS: Sequence[Words] = (
    Words(
        Reason.UNSUPPORTED,
        "The table has format version {format_version}; lakesink writes version 2.",
        "Stream into a version 2 table.",
    ),
    Words(
        Reason.BRANCH_MISSING,
        "The branch {branch!r} is not in the table.",
        "Correct the option branch, or create it (Spark SQL: ALTER TABLE ... CREATE BRANCH ... AS OF VERSION"
        " {entry_snapshot}). Created there, it has every row up to batch {last} of this sink; created elsewhere, it"
        " lacks them, and the next batch is refused as rolled back.",
    ),
    Words(
        Reason.TABLE_REPLACED,
        "The table now has UUID {table_uuid}; this stream wrote to {known_uuid}.",
        "This table is a copy: it has the batches of sink {sink} up to {newest}. To go on in the copy, take a"
        " new sink id and a new checkpoint that starts where these end: {newest_end}. A checkpoint that starts"
        " anywhere before brings their rows twice; file sources start at the beginning. Else restore the old"
        " table.",
        when=lambda s: s.newest_mark is not None,
    ),
    Words(
        Reason.TABLE_REPLACED,
        "The table now has UUID {table_uuid}; this stream wrote to {known_uuid}.",
        "This table shows no batch of sink {sink}. If it was dropped and made again on purpose, take a new sink id"
        " and a new checkpoint: they read the source from its beginning, what the source no longer has is lost,"
        " and rows that this table has already, as a copy has, come twice. Else restore the old table.",
    ),
    Words(
        Reason.LEDGER_DAMAGED,
        "The ledger entry of sink {sink} cannot be trusted: {damage}.",
        "Somebody set the table property {property}, perhaps to an older value of it. Stop whatever does, run"
        " `lakesink restore <table> --sink {name}{options}`: it sets the entry from the newest batch in the table,"
        " {newest}, and changes no row.",
        when=_can_be_restored,
    ),
    Words(
        Reason.LEDGER_DAMAGED,
        "The ledger entry of sink {sink} cannot be trusted: {damage}.",
        "Compare the table property {property} with the newest snapshot of this sink; update lakesink if the"
        " entry was written by a newer version.",
    ),
    Words(
        Reason.LEDGER_LOST,
        "The table has batches of sink {sink}, but its ledger entry is not there.",
        "If `lakesink forget` retired this sink, take another sink id. If somebody removed the table property"
        " {property}, run `lakesink restore <table> --sink {name}{options}`: it sets the entry from the newest"
        " batch in the table, {newest}, and changes no row.",
    ),
    Words(
        Reason.UNKNOWN_HISTORY,
        "Version {n} of application {sink} is in this branch already, written to another branch.",
        "{landed}. For other rows take a higher version.",
        when=lambda s: _of_application(s) and s.landed is not None,
    ),
    Words(
        Reason.UNKNOWN_HISTORY,
        "Version {n} of application {sink} may be in this branch already: expiry hides what was before a fork.",
        "The table knows {elsewhere} of this application from another branch; versions above that are appended"
        " without this question. Look whether the rows of version {n} are here, and choose below if there is a"
        " choice; else give them an application id of their own.",
        when=_of_application,
    ),
    Words(
        Reason.UNKNOWN_HISTORY,
        "Batch {n} of sink {sink} is in this branch already, under another sink id or branch.",
        "{landed}. To go on here, give the query the checkpoint that ends with batch {newest_of_stream}, the newest"
        " of its batches in this branch.",
        when=lambda s: s.newest_of_stream is not None and (s.landed is not None or s.later_landed is not None),
    ),
    Words(
        Reason.UNKNOWN_HISTORY,
        "Batch {n} of sink {sink} comes to a branch that has batches of its query under another sink id or branch.",
        "The newest of them is batch {newest_of_stream}. If the query goes on here on purpose, let batch"
        " {after_stream} come next (`lakesink rewind <checkpoint> --to-batch {newest_of_stream}`), and accept that"
        " one. Else check table, branch and sink id.",
        when=lambda s: s.newest_of_stream is not None,
    ),
    Words(
        Reason.UNKNOWN_HISTORY,
        "Batch {n} of sink {sink} comes to a branch that may have batches of it: expiry hides what was before a fork.",
        "The table knows {elsewhere} of this sink from another branch. Look by the rows which of its batches are"
        " here: they come twice if they are read again, also by a new checkpoint, which reads the source from its"
        " beginning. Check table, branch and sink id, or choose below.",
        when=lambda s: s.hidden,
    ),
    Words(
        Reason.UNKNOWN_HISTORY,
        "Batch {n} of sink {sink} comes to a table or branch that knows none of the batches before it.",
        "Check table, branch and sink id. If earlier batches went elsewhere on purpose, choose below, or start a"
        " new checkpoint, which reads the source from its beginning: rows that are there come twice.",
    ),
    Words(
        Reason.ROLLED_BACK,
        "The table was rolled back behind version {last} of application {sink}; the newest in it is {newest}.",
        "Append every version that the rollback removed once more, in their order: {undone}. Then no row is lost,"
        " and none comes twice.",
        when=_of_application,
    ),
    # A rewind to the beginning would duplicate the rows in the table.
    Words(
        Reason.ROLLED_BACK,
        "The table was rolled back behind batch {last} of sink {sink}; expiry has removed what tells its newest batch.",
        "Stop the stream and find out by the rows which batch is the newest in the table. Run `lakesink rewind"
        " <checkpoint> --to-batch <that batch>`, start the stream, and accept the batch after it.",
        when=lambda s: s.newest_mark is None and not s.walk_complete,
    ),
    Words(
        Reason.ROLLED_BACK,
        "The table was rolled back behind batch {last} of sink {sink}; the newest batch in it is {newest}.",
        "Stop the stream, run `lakesink rewind <checkpoint> --to-batch {newest_id}` (it deletes from commits/ and"
        " offsets/ every file above {newest_id}), and start it again: the batches after it are replayed, and no row"
        " comes twice. The table ends at {newest_end}. Batches of other sink ids that the rollback removed do not"
        " come back by this.",
    ),
    Words(
        Reason.NEW_CHECKPOINT,
        "Batch {n} comes from a new checkpoint, but sink {sink} has already written up to batch {last}.",
        "Restore the old checkpoint: then no row is lost and none comes twice. If it is lost, move every file"
        " that the sink has read out of the source's directory (a file source cannot start in the middle), start"
        " again with another new checkpoint, and accept its first batch.",
        when=reads_files,
    ),
    Words(
        Reason.NEW_CHECKPOINT,
        "Batch {n} comes from a new checkpoint, but sink {sink} has already written up to batch {last}.",
        "Restore the old checkpoint, or start the new one exactly where the sink ended: {end}. Then no row is lost"
        " and none comes twice.",
    ),
    Words(
        Reason.BATCH_CHANGED,
        "Batch {changed} of sink {sink} came back with other data than the table holds.",
        "The source or the checkpoint changed since batch {last} was committed, which ended at {end}. Restore the"
        " checkpoint that belongs to the table: then no row is lost and none comes twice.",
    ),
    Words(
        Reason.REWOUND,
        "Version {n} of application {sink} is older than its last version {last}, and {why_rewound}.",
        "Versions of one application only grow. Give a load of older data an application id of its own, such as"
        ' txn=("load-2026-01-01", 1): it is then exactly once by itself.',
        when=_of_application,
    ),
    Words(
        Reason.REWOUND,
        "Batch {n} of sink {sink} is older than the ledger's batch {last}, and {why_rewound}.",
        "The checkpoint is older than the table. Restore the newest one; the ledger ended at {end}. Nothing was"
        " rolled back, and the ledger stays at batch {last} whatever is accepted.",
    ),
    Words(
        Reason.GAP,
        "Batch {n} of sink {sink} does not follow the ledger's batch {last}: batches are missing.",
        "The checkpoint is newer than the table, or two queries share this sink id. Stop the stream, run `lakesink"
        " rewind <checkpoint> --to-batch {last}`, and start it again: batches {next} to {n} are replayed.",
    ),
    Words(
        Reason.INPUT_MISSING,
        "Batch {n} of sink {sink} reads files of which {missing_count} cannot be found: its rows would be missing.",
        "Put the files back where they were (a source with cleanSource has moved or deleted what earlier batches"
        " read) and start the query again: then no row is lost and none comes twice. Missing: {missing}.",
    ),
)
"""The words for a target that is a table: the first that fit."""
