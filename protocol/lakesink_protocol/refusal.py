"""Messages for refusals: what happened, that nothing was committed, and what to do. Pure."""

from dataclasses import replace

from lakesink_protocol.accept import NEVER_OVERRULED, Accept, accept_of
from lakesink_protocol.choices import choices, reads_files, what_landed
from lakesink_protocol.errors import BatchRefused, Reason
from lakesink_protocol.identity import MAIN_BRANCH, Batch, SinkKind
from lakesink_protocol.ledger import LARGEST_NUMBER, LEDGER_VERSION, MAX_MARK_OFFSETS_BYTES, LedgerEntry, Mark
from lakesink_protocol.redact import redact, shown
from lakesink_protocol.refusal_words import (
    CLONE,
    CONTINUED,
    CONTRADICTED,
    FILES,
    HIDDEN,
    LANDED,
    NEWEST_UNKNOWN,
    ROLLBACK_UNPROVEN,
    TO_BE_ADOPTED,
    TRANSACTIONS,
    VERSION_HIDDEN,
    WORDS,
    Words,
)
from lakesink_protocol.situation import Situation

MAX_SHOWN = 60
MOST_FILES = 20


def refusal(
    reason: Reason, situation: Situation, own_words: Words | None = None, *, overruled: str = ""
) -> BatchRefused:
    """The error for a refused batch.

    `own_words` are messages of a target that is not a table. `overruled` is the accept that already overrules another
    refusal of the batch; the choices offered include it.
    """
    words = {**WORDS, **_words_for(reason, situation), **(own_words or {}), **_urgent_words(situation)}[reason]
    facts = _facts(situation, _newest(reason, situation)) | _facts_of(reason, situation)
    return BatchRefused(
        reason,
        words[0].format(**facts),
        data=f"Nothing of batch {facts['n']} was committed; no file was deleted.",
        action=f"{words[1].format(**facts)}{_offer(reason, situation, overruled)}",
    )


def input_missing(batch: Batch) -> BatchRefused:
    """The error for a batch whose input files are missing, if it cannot be overruled."""
    facts = missing_facts(batch)
    return BatchRefused(
        Reason.INPUT_MISSING,
        f"Batch {batch.batch_id} reads files of which {facts['missing_count']} cannot be found.",
        data=f"Nothing of batch {batch.batch_id} was written.",
        action="Put the files back where they were and start the query again; to go on without them, override"
        f" check_inputs of the sink. Missing: {facts['missing']}.",
    )


def _offer(reason: Reason, situation: Situation, overruled: str) -> str:
    """The accepts that overrule the refusal, each with its effect on the rows."""
    if reason in NEVER_OVERRULED or _is_to_be_adopted(reason, situation):
        return ""
    offered = _beyond(Accept.parse(overruled), situation) if overruled else _offered(reason, situation)
    if offered:
        told = "; ".join(f'accept="{word}" {does}' for word, does in offered)
        return f" To overrule this for this one batch, once: {told}."
    if situation.later_landed is not None:
        what = "versions" if situation.key.kind is SinkKind.TXN else "batches of this query"
        return f" There is nothing to accept: {what} up to {situation.later_landed} are there already."
    return " There is nothing to accept."


def _offered(reason: Reason, situation: Situation) -> list[tuple[Accept, str]]:
    return [
        (accept_of(reason, situation, adds_rows=choice.adds_rows), choice.does) for choice in choices(reason, situation)
    ]


def _beyond(overruled: Accept, situation: Situation) -> list[tuple[Accept, str]]:
    """Missing inputs of a batch that was accepted for another reason: one accept must overrule both refusals."""
    commits = [
        (replace(overruled, without_inputs=True), does)
        for word, does in _offered(Reason.INPUT_MISSING, situation)
        if word.adds_rows
    ]
    return commits + [(word, does) for word, does in _offered(overruled.reason, situation) if not word.adds_rows]


def _is_to_be_adopted(reason: Reason, situation: Situation) -> bool:
    return reason is Reason.UNKNOWN_HISTORY and bool(situation.others_epochs)


def _words_for(reason: Reason, situation: Situation) -> Words:
    """Messages that fit the facts better than the general ones."""
    if reason is Reason.LEDGER_DAMAGED:  # restoring needs a readable entry and readable marks
        told = situation.entry is not None and situation.unread_version is None and situation.newest_known is not None
        return CONTRADICTED if told else {}
    if situation.key.kind is SinkKind.TXN:
        of_version = {} if situation.landed is not None else VERSION_HIDDEN
        return {**TRANSACTIONS, **of_version, **(CLONE if situation.newest_mark is not None else {})}
    hidden = situation.newest_mark is None and not situation.walk_complete
    found = dict(NEWEST_UNKNOWN) if hidden else {}
    if situation.newest_mark is not None:
        found |= CLONE
    if reason is Reason.UNKNOWN_HISTORY and situation.newest_of_stream is not None:
        found |= LANDED if situation.landed is not None or situation.later_landed is not None else CONTINUED
    elif reason is Reason.UNKNOWN_HISTORY and situation.hidden:
        found |= HIDDEN
    if reads_files(situation):
        found |= FILES
    return found


def _urgent_words(situation: Situation) -> Words:
    """Messages that hold for every target."""
    found = dict(TO_BE_ADOPTED) if situation.others_epochs else {}
    if situation.gone and not situation.rollback_is_proven:
        found |= ROLLBACK_UNPROVEN
    return found


def _newest(reason: Reason, situation: Situation) -> Mark | None:
    """The newest batch in the branch; after a rollback, it can belong to an earlier sink id of the same query."""
    if situation.newest_mark is None and reason is Reason.ROLLED_BACK:
        return situation.newest_of_stream
    from_marks = reason in (Reason.LEDGER_LOST, Reason.LEDGER_DAMAGED)
    return situation.newest_known if from_marks else situation.newest_mark


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
    """Facts for only one reason each, because finding them needs the whole history."""
    if reason is Reason.INPUT_MISSING:
        return missing_facts(situation.batch)
    if reason is Reason.ROLLED_BACK and situation.key.kind is SinkKind.TXN:
        return {"undone": _undone(situation)}
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
    """The number of a batch's missing files, and some of their names."""
    files = batch.missing_inputs
    named = ", ".join(redact(path) for path in files[:MOST_FILES])
    rest = f" and {len(files) - MOST_FILES} more" if len(files) > MOST_FILES else ""
    return {"missing_count": str(len(files)), "missing": f"{named}{rest}"}


def _restore_options(situation: Situation) -> str:
    key = situation.key
    branch = "" if key.branch == MAIN_BRANCH else f" --branch {key.branch[:MAX_SHOWN]}"
    return f"{branch}{' --txn' if key.kind is SinkKind.TXN else ''}"


def _undone(situation: Situation) -> str:
    """Versions that were rolled back; expiry may have removed some of them."""
    found = situation.undone
    named = ", ".join(str(batch_id) for batch_id in found[:MOST_FILES])
    rest = f" and {len(found) - MOST_FILES} more" if len(found) > MOST_FILES else ""
    if situation.gone and situation.shows_all_undone:
        return f"{named}{rest}"
    return f"{named}{rest}, and what expiry hides" if found else "expiry hides which they are"


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
    """The state of the same sink under other branches."""
    newest = situation.newest_elsewhere
    if newest is None or newest == LARGEST_NUMBER:
        return "an unreadable ledger entry"
    return f"{'versions' if situation.key.kind is SinkKind.TXN else 'batches'} up to {newest}"


def _known_uuid(situation: Situation) -> str:
    """The UUID that differs from the table's: that of the start or the prepared record, else that of the entry."""
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
