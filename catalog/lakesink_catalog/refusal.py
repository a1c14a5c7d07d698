"""Words for a refusal: what happened, that nothing was committed, and what to do. Pure."""

from collections.abc import Mapping

from lakesink_catalog.accept import NEVER_OVERRULED, accept_of
from lakesink_catalog.choices import choices, reads_files, what_landed
from lakesink_catalog.errors import BatchRefused, Reason
from lakesink_catalog.identity import MAIN_BRANCH, Batch, SinkKind
from lakesink_catalog.ledger import LARGEST_NUMBER, LEDGER_VERSION, MAX_MARK_OFFSETS_BYTES, LedgerEntry, Mark
from lakesink_catalog.redact import redact, shown
from lakesink_catalog.situation import Situation

MAX_SHOWN = 60
MOST_FILES = 20


Words = Mapping[Reason, tuple[str, str]]
"""What happened and what to do, by reason, with the names of facts in braces."""


def refusal(reason: Reason, situation: Situation, own_words: Words | None = None) -> BatchRefused:
    """The error for a refused batch.

    Args:
        reason: Why.
        situation: The facts.
        own_words: Where a target that is no table has words of its own.
    """
    words = {**_WORDS, **_words_for(reason, situation), **(own_words or {}), **_urgent_words(situation)}[reason]
    facts = _facts(situation, _newest(reason, situation)) | _facts_of(reason, situation)
    return BatchRefused(
        reason,
        words[0].format(**facts),
        data=f"Nothing of batch {facts['n']} was committed; no file was deleted.",
        action=f"{words[1].format(**facts)}{_offer(reason, situation)}",
    )


def input_missing(batch: Batch) -> BatchRefused:
    """The error for a batch whose input files are gone, where nobody may overrule it."""
    facts = missing_facts(batch)
    return BatchRefused(
        Reason.INPUT_MISSING,
        f"Batch {batch.batch_id} reads files of which {facts['missing_count']} cannot be found.",
        data=f"Nothing of batch {batch.batch_id} was written.",
        action="Put the files back where they were and start the query again; to go on without them, override"
        f" check_inputs of the sink. Missing: {facts['missing']}.",
    )


def _offer(reason: Reason, situation: Situation) -> str:
    """The words that overrule the refusal, each with what it does to the rows."""
    if reason in NEVER_OVERRULED or _is_to_be_adopted(reason, situation):
        return ""
    offered = [
        f'accept="{accept_of(reason, situation, adds_rows=choice.adds_rows)}" {choice.does}'
        for choice in choices(reason, situation)
    ]
    if offered:
        return f" To overrule this for this one batch, once: {'; '.join(offered)}."
    if situation.later_landed is not None:
        what = "versions" if situation.key.kind is SinkKind.TXN else "batches of this query"
        return f" There is nothing to accept: {what} up to {situation.later_landed} are there already."
    return " There is nothing to accept."


_WORDS: Words = {
    Reason.UNSUPPORTED: (
        "The table has format version {format_version}; lakesink writes version 2.",
        "Stream into a version 2 table.",
    ),
    Reason.BRANCH_MISSING: (
        "The branch {branch!r} is not in the table.",
        (
            "Correct the option branch, or create it (Spark SQL: ALTER TABLE ... CREATE BRANCH ... AS OF VERSION"
            " {entry_snapshot}). Created there, it has every row up to batch {last} of this sink; created elsewhere, it"
            " lacks them, and the next batch is refused as rolled back."
        ),
    ),
    Reason.TABLE_REPLACED: (
        "The table now has UUID {table_uuid}; this stream wrote to {known_uuid}.",
        (
            "This table has no batch of sink {sink}. If it was dropped and made again on purpose, take a new sink id"
            " and a new checkpoint: they read the source from its beginning, and what the source no longer has is"
            " lost. Else restore the old table."
        ),
    ),
    Reason.LEDGER_DAMAGED: (
        "The ledger entry of sink {sink} cannot be trusted: {damage}.",
        (
            "Compare the table property {property} with the newest snapshot of this sink; update lakesink if the"
            " entry was written by a newer version."
        ),
    ),
    Reason.LEDGER_LOST: (
        "The table has batches of sink {sink}, but its ledger entry is not there.",
        (
            "If `lakesink forget` retired this sink, take another sink id. If somebody removed the table property"
            " {property}, run `lakesink restore <table> --sink {name}{options}`: it sets the entry from the newest"
            " batch in the table, {newest}, and changes no row."
        ),
    ),
    Reason.UNKNOWN_HISTORY: (
        "Batch {n} of sink {sink} comes to a table or branch that knows none of the batches before it.",
        (
            "Check table, branch and sink id. If earlier batches went elsewhere on purpose, choose below, or start a"
            " new checkpoint, which reads the source from its beginning: rows that are there come twice."
        ),
    ),
    Reason.ROLLED_BACK: (
        "The table was rolled back behind batch {last} of sink {sink}; the newest batch in it is {newest}.",
        (
            "Stop the stream, run `lakesink rewind <checkpoint> --to-batch {newest_id}` (it deletes from commits/ and"
            " offsets/ every file above {newest_id}), and start it again: the batches after it are replayed, and no row"
            " comes twice. The table ends at {newest_end}."
        ),
    ),
    Reason.NEW_CHECKPOINT: (
        "Batch {n} comes from a new checkpoint, but sink {sink} has already written up to batch {last}.",
        (
            "Restore the old checkpoint, or start the new one exactly where the sink ended: {end}. Then no row is lost"
            " and none comes twice."
        ),
    ),
    Reason.BATCH_CHANGED: (
        "Batch {changed} of sink {sink} came back with other data than the table holds.",
        (
            "The source or the checkpoint changed since batch {last} was committed, which ended at {end}. Restore the"
            " checkpoint that belongs to the table: then no row is lost and none comes twice."
        ),
    ),
    Reason.REWOUND: (
        "Batch {n} of sink {sink} is older than the ledger's batch {last}, and {why_rewound}.",
        (
            "The checkpoint is older than the table. Restore the newest one; the ledger ended at {end}. Nothing was"
            " rolled back, and the ledger stays at batch {last} whatever is accepted."
        ),
    ),
    Reason.GAP: (
        "Batch {n} of sink {sink} does not follow the ledger's batch {last}: batches are missing.",
        (
            "The checkpoint is newer than the table, or two queries share this sink id. Stop the stream, run `lakesink"
            " rewind <checkpoint> --to-batch {last}`, and start it again: batches {next} to {n} are replayed."
        ),
    ),
    Reason.INPUT_MISSING: (
        "Batch {n} of sink {sink} reads files of which {missing_count} cannot be found: its rows would be missing.",
        (
            "Put the files back where they were (a source with cleanSource has moved or deleted what earlier batches"
            " read) and start the query again: then no row is lost and none comes twice. Missing: {missing}."
        ),
    ),
}


_NEWEST_UNKNOWN: Words = {
    Reason.ROLLED_BACK: (
        "The table was rolled back behind batch {last} of sink {sink}; expiry has removed what tells its newest batch.",
        (
            "Stop the stream and find out by the rows which batch is the newest in the table. Run `lakesink rewind"
            " <checkpoint> --to-batch <that batch>`, start the stream, and accept the batch after it."
        ),
    ),
}
"""Rewinding to the beginning would bring twice what is there."""


_ROLLBACK_UNPROVEN: Words = {
    Reason.ROLLED_BACK: (
        "The table no longer shows that batch {last} of sink {sink} is in it: rolled back, or rewritten and expired.",
        (
            "Look whether the rows of batch {last} are in the table. If they are not, the table was rolled back:"
            " stop the stream, find out by the rows which batch is the newest, and run `lakesink rewind <checkpoint>"
            " --to-batch <that batch>`. If they are there, nothing was rolled back: accept as below if batch {n} is"
            " not among them."
        ),
    ),
}
"""Decision 0001: where others rewrote every file and expiry cut the history, both look the same."""


_TO_BE_ADOPTED: Words = {
    Reason.UNKNOWN_HISTORY: (
        "Iceberg's own sink has written batches up to {others_epoch} of this checkpoint, unknown to sink {sink}.",
        (
            "To go on with lakesink, stop the query with that sink for good and run `lakesink adopt <table>"
            " --sink {name} --checkpoint <checkpoint>`: it tells which batch comes next."
        ),
    ),
}
"""To accept the batch as it comes would bring twice what is there, or leave a hole."""


_CLONE: Words = {
    Reason.TABLE_REPLACED: (
        "The table now has UUID {table_uuid}; this stream wrote to {known_uuid}.",
        (
            "This table is a copy: it has the batches of sink {sink} up to {newest}. To go on in the copy, take a"
            " new sink id and a new checkpoint that starts where these end: {newest_end}. A checkpoint that starts"
            " anywhere before brings their rows twice; file sources start at the beginning. Else restore the old"
            " table."
        ),
    ),
}

_LANDED: Words = {
    Reason.UNKNOWN_HISTORY: (
        "Batch {n} of sink {sink} is in this branch already, under another sink id or branch.",
        (
            "{landed}. To go on here, give the query the checkpoint that ends with batch {newest_of_stream}, the newest"
            " of its batches in this branch."
        ),
    ),
}

_CONTINUED: Words = {
    Reason.UNKNOWN_HISTORY: (
        "Batch {n} of sink {sink} comes to a branch that has batches of its query under another sink id or branch.",
        (
            "The newest of them is batch {newest_of_stream}. If the query goes on here on purpose, let batch"
            " {after_stream} come next (`lakesink rewind <checkpoint> --to-batch {newest_of_stream}`), and accept that"
            " one. Else check table, branch and sink id."
        ),
    ),
}

_HIDDEN: Words = {
    Reason.UNKNOWN_HISTORY: (
        "Batch {n} of sink {sink} comes to a branch that may have batches of it: expiry hides what was before a fork.",
        (
            "The table knows {elsewhere} of this sink from another branch. Look by the rows which of its batches are"
            " here: they come twice if they are read again, also by a new checkpoint, which reads the source from its"
            " beginning. Check table, branch and sink id, or choose below."
        ),
    ),
}

_FILES: Words = {
    Reason.NEW_CHECKPOINT: (
        "Batch {n} comes from a new checkpoint, but sink {sink} has already written up to batch {last}.",
        (
            "Restore the old checkpoint: then no row is lost and none comes twice. If it is lost, move every file"
            " that the sink has read out of the source's directory (a file source cannot start in the middle), start"
            " again with another new checkpoint, and accept its first batch."
        ),
    ),
}

_TRANSACTIONS: Words = {
    Reason.LEDGER_LOST: _WORDS[Reason.LEDGER_LOST],
    Reason.UNKNOWN_HISTORY: (
        "Version {n} of application {sink} is in this branch already, written to another branch.",
        "{landed}. For other rows take a higher version.",
    ),
    Reason.ROLLED_BACK: (
        "The table was rolled back behind version {last} of application {sink}; the newest in it is {newest}.",
        "Append the versions after {newest} again, in their order, before version {n}.",
    ),
    Reason.REWOUND: (
        "Version {n} of application {sink} is older than its last version {last}, and {why_rewound}.",
        (
            "Versions of one application only grow. Give a load of older data an application id of its own, such as"
            ' txn=("load-2026-01-01", 1): it is then exactly once by itself.'
        ),
    ),
}


_VERSION_HIDDEN: Words = {
    Reason.UNKNOWN_HISTORY: (
        "Version {n} of application {sink} may be in this branch already: expiry hides what was before a fork.",
        (
            "The table knows {elsewhere} of this application from another branch; versions above that are appended"
            " without this question. Look whether the rows of version {n} are here, and choose below if there is a"
            " choice; else give them an application id of their own."
        ),
    ),
}


def _is_to_be_adopted(reason: Reason, situation: Situation) -> bool:
    return reason is Reason.UNKNOWN_HISTORY and bool(situation.others_epochs)


def _words_for(reason: Reason, situation: Situation) -> Words:
    """Words that fit the facts better than the general ones."""
    if situation.key.kind is SinkKind.TXN:
        of_version = {} if situation.landed is not None else _VERSION_HIDDEN
        return {**_TRANSACTIONS, **of_version, **(_CLONE if situation.newest_mark is not None else {})}
    hidden = situation.newest_mark is None and not situation.walk_complete
    found = dict(_NEWEST_UNKNOWN) if hidden else {}
    if situation.newest_mark is not None:
        found |= _CLONE
    if reason is Reason.UNKNOWN_HISTORY and situation.newest_of_stream is not None:
        found |= _LANDED if situation.landed is not None or situation.later_landed is not None else _CONTINUED
    elif reason is Reason.UNKNOWN_HISTORY and situation.hidden:
        found |= _HIDDEN
    if reads_files(situation):
        found |= _FILES
    return found


def _urgent_words(situation: Situation) -> Words:
    """Words that hold for whatever target."""
    found = dict(_TO_BE_ADOPTED) if situation.others_epochs else {}
    if situation.gone and not situation.rollback_is_proven:
        found |= _ROLLBACK_UNPROVEN
    return found


def _newest(reason: Reason, situation: Situation) -> Mark | None:
    """The newest batch in the branch; after a rollback it may be of an earlier sink id of the same query."""
    if situation.newest_mark is None and reason is Reason.ROLLED_BACK:
        return situation.newest_of_stream
    return situation.newest_mark


def _facts(situation: Situation, mark: Mark | None) -> dict[str, str]:
    view, entry = situation.view, situation.entry
    last = entry.batch_id if entry else -1
    n = situation.batch.batch_id
    return {
        "n": str(n),
        "sink": repr(situation.key.name),
        "name": situation.key.name,
        "others_epoch": str(next(iter(situation.others_epochs), "none")),
        "branch": situation.key.branch[:MAX_SHOWN],
        "property": situation.key.ledger_property,
        "format_version": str(view.format_version),
        "table_uuid": view.table_uuid,
        "known_uuid": shown(_known_uuid(situation), MAX_SHOWN),
        "damage": shown(view.entry_damage, MAX_SHOWN) or _other_damage(situation),
        "last": str(last) if entry else "none",
        "next": str(last + 1),
        "changed": str(min(n, last)),
        "options": _restore_options(situation),
        "entry_snapshot": str(entry.snapshot_id) if entry else "<snapshot>",
        "newest": str(mark.batch_id) if mark else "none that is retained",
        "newest_id": str(mark.batch_id) if mark else "-1",
        "newest_end": _end(mark),
        "end": _end(entry),
    }


def _facts_of(reason: Reason, situation: Situation) -> dict[str, str]:
    """Facts that one reason alone asks for: they are sought in the whole history."""
    if reason is Reason.INPUT_MISSING:
        return missing_facts(situation.batch)
    if reason is Reason.REWOUND:
        return {"why_rewound": _why_rewound(situation)}
    if reason is not Reason.UNKNOWN_HISTORY:
        return {}
    if situation.newest_of_stream is None:
        return {"elsewhere": _elsewhere(situation)}
    newest = situation.newest_of_stream.batch_id
    return {
        "landed": _landed(situation),
        "newest_of_stream": str(newest),
        "after_stream": str(newest + 1),
        "elsewhere": _elsewhere(situation),
    }


def missing_facts(batch: Batch) -> dict[str, str]:
    """How many files of a batch are missing, and the names of some."""
    files = batch.missing_inputs
    named = ", ".join(redact(path) for path in files[:MOST_FILES])
    rest = f" and {len(files) - MOST_FILES} more" if len(files) > MOST_FILES else ""
    return {"missing_count": str(len(files)), "missing": f"{named}{rest}"}


def _restore_options(situation: Situation) -> str:
    key = situation.key
    branch = "" if key.branch == MAIN_BRANCH else f" --branch {key.branch[:MAX_SHOWN]}"
    return f"{branch}{' --txn' if key.kind is SinkKind.TXN else ''}"


def _why_rewound(situation: Situation) -> str:
    if situation.marked_with_other_data:
        return "it is there with other data"
    if situation.shows_the_batch_before:
        return "it was never committed"
    return "expiry hides whether it is there"


def _landed(situation: Situation) -> str:
    if situation.landed is not None:
        return f"Batch {situation.batch.batch_id}: {what_landed(situation)}"
    return f"Later batches of the query are there, up to {situation.later_landed}"


def _elsewhere(situation: Situation) -> str:
    """What the table knows of the same sink under other branches."""
    newest = situation.newest_elsewhere
    if newest is None or newest == LARGEST_NUMBER:
        return "an unreadable ledger entry"
    return f"{'versions' if situation.key.kind is SinkKind.TXN else 'batches'} up to {newest}"


def _known_uuid(situation: Situation) -> str:
    """The UUID that is not the table's: of the start or the prepared record, else of the entry."""
    entry = situation.entry
    of_start = situation.start_uuid != situation.view.table_uuid or not entry
    return situation.start_uuid if of_start or entry is None else entry.table_uuid


def _other_damage(situation: Situation) -> str:
    if situation.unread_version is None:
        return "it contradicts its own snapshot"
    version = shown(situation.unread_version, 20)
    return f"a snapshot has its mark in version {version}, this lakesink reads {LEDGER_VERSION}"


def _end(written: LedgerEntry | Mark | None) -> str:
    if written is None:
        return "unknown"
    if not written.end:
        return "no offsets"
    return shown(written.offsets, MAX_MARK_OFFSETS_BYTES) or f"digest {shown(written.end, MAX_SHOWN)}"
