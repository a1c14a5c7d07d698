"""Words for a refusal: what happened, that nothing was committed, and what to do. Pure."""

from collections.abc import Mapping

from lakesink_catalog.errors import BatchRefused, Reason
from lakesink_catalog.ledger import LEDGER_VERSION, MAX_MARK_OFFSETS_BYTES, LedgerEntry, Mark
from lakesink_catalog.redact import shown
from lakesink_catalog.situation import Situation
from lakesink_catalog.verdict import NEVER_OVERRULED

MAX_SHOWN = 60


Words = Mapping[Reason, tuple[str, str]]
"""What happened and what to do, by reason, with the names of facts in braces."""


def refusal(reason: Reason, situation: Situation, own_words: Words | None = None) -> BatchRefused:
    """The error for a refused batch.

    Args:
        reason: Why.
        situation: The facts.
        own_words: Where a target that is no table has words of its own.
    """
    words = {**_WORDS, **_words_for(situation), **(own_words or {})}[reason]
    facts = _facts(situation)
    action = words[1].format(**facts)
    if reason not in NEVER_OVERRULED and not _is_to_be_adopted(reason, situation):
        word = f"{reason.value}:{facts['n']}"
        action += f' To overrule this for this one batch: accept="{word}:commit" or accept="{word}:skip".'
    return BatchRefused(
        reason,
        words[0].format(**facts),
        data=f"Nothing of batch {facts['n']} was committed; no file was deleted.",
        action=action,
    )


_WORDS: Words = {
    Reason.UNSUPPORTED: (
        "The table has format version {format_version}; lakesink writes version 2.",
        "Stream into a version 2 table.",
    ),
    Reason.BRANCH_MISSING: (
        "The branch {branch!r} is not in the table.",
        "Create it (Spark SQL: ALTER TABLE ... CREATE BRANCH), or correct the option branch.",
    ),
    Reason.TABLE_REPLACED: (
        "The table now has UUID {table_uuid}; this stream wrote to {known_uuid}.",
        "If the table was dropped, made anew or cloned on purpose, start a new checkpoint and a new sink id.",
    ),
    Reason.LEDGER_DAMAGED: (
        "The ledger entry of sink {sink} cannot be trusted: {damage}.",
        (
            "Compare the table property {property} with the newest snapshot of this sink; update lakesink if the"
            " entry was written by a newer version."
        ),
    ),
    Reason.LEDGER_LOST: (
        "The table bears batches of sink {sink}, but its ledger entry is gone.",
        (
            "If `lakesink forget` retired this sink, take another sink id. If somebody removed the table property"
            " {property}, set it back: the newest batch in the table is {newest}, which ended at {newest_end}, and its"
            " snapshot's summary has the rest. Or accept."
        ),
    ),
    Reason.UNKNOWN_HISTORY: (
        "Batch {n} of sink {sink} comes to a table or branch that knows none of the batches before it.",
        (
            "Check table, branch and sink id. If earlier batches went elsewhere on purpose, accept, or start a new"
            " checkpoint."
        ),
    ),
    Reason.ROLLED_BACK: (
        "The table was rolled back behind batch {last} of sink {sink}; the newest batch in it is {newest}.",
        (
            "Stop the stream, run `lakesink rewind <checkpoint> --to-batch {newest_id}` (it deletes from commits/ and"
            " offsets/ every file above {newest_id}), and start it again: the batches after it are replayed. The table"
            " ends at {newest_end}."
        ),
    ),
    Reason.NEW_CHECKPOINT: (
        "Batch {n} comes from a new checkpoint, but sink {sink} has already written up to batch {last}.",
        "Restore the old checkpoint, or start the new one exactly where the sink ended: {end}.",
    ),
    Reason.BATCH_CHANGED: (
        "Batch {changed} of sink {sink} came back with other data than the table holds.",
        (
            "The source or the checkpoint changed since batch {last} was committed, which ended at {end}. Restore the"
            " checkpoint that belongs to the table."
        ),
    ),
    Reason.REWOUND: (
        "Batch {n} of sink {sink} is older than the ledger's batch {last}, and the table no longer shows it.",
        "The checkpoint is older than the table. Restore the newest one; the ledger ended at {end}.",
    ),
    Reason.GAP: (
        "Batch {n} of sink {sink} does not follow the ledger's batch {last}: batches are missing.",
        "The checkpoint is newer than the table, or two queries share this sink id. Replay from batch {next}.",
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


def _is_to_be_adopted(reason: Reason, situation: Situation) -> bool:
    return reason is Reason.UNKNOWN_HISTORY and bool(situation.others_epochs)


def _words_for(situation: Situation) -> Words:
    if situation.others_epochs:
        return _TO_BE_ADOPTED
    return {} if situation.newest_mark is not None or situation.walk_complete else _NEWEST_UNKNOWN


def _facts(situation: Situation) -> dict[str, str]:
    view, entry, mark = situation.view, situation.entry, situation.newest_mark
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
        "newest": str(mark.batch_id) if mark else "none that is retained",
        "newest_id": str(mark.batch_id) if mark else "-1",
        "newest_end": _end(mark),
        "end": _end(entry),
    }


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
    return shown(written.offsets, MAX_MARK_OFFSETS_BYTES) or f"digest {shown(written.end, MAX_SHOWN)}"
