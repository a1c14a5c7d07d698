"""Messages for refusals: what happened, that nothing was committed, and what to do. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lakesink_protocol.errors import BatchRefused, Reason
from lakesink_protocol.identity import MAIN_BRANCH, Batch, SinkKind
from lakesink_protocol.ledger import LARGEST_NUMBER, LEDGER_VERSION, MAX_MARK_OFFSETS_BYTES, LedgerEntry, Mark
from lakesink_protocol.redact import redact, shown
from lakesink_protocol.refusals.accept import NEVER_OVERRULED, Accept, accept_of
from lakesink_protocol.refusals.choices import choices, goes_on_at, what_landed
from lakesink_protocol.refusals.texts import URGENT, WORDS, Words
from lakesink_protocol.situation import Situation

MAX_SHOWN = 60
MOST_FILES = 20


def refusal(
    reason: Reason, situation: Situation, own_words: Sequence[Words] = (), *, overruled: str = ""
) -> BatchRefused:
    """The error for a refused batch.

    `own_words` are messages of a target that is not a table. `overruled` is the accept that already overrules another
    refusal of the batch; the choices offered include it.
    """
    known = (words for words in (*URGENT, *own_words, *WORDS) if words.reason is reason)
    words = next(words for words in known if words.when(situation))
    facts = _Facts(situation, _newest(reason, situation))
    ways = [way.format_map(facts) for way in words.action.split("\n")]
    ways = _with_offers(ways, reason, situation, overruled)
    if situation.entry is not None and situation.entry.keys:  # no row comes twice: each replaces the row of its key
        ways = [way.replace("come twice", "replace the rows of their keys again") for way in ways]
    return BatchRefused(
        reason,
        words.what.format_map(facts),
        data=f"Nothing of batch {situation.batch.batch_id} was committed; no file was deleted.",
        action=ways,
    )


def input_missing(batch: Batch) -> BatchRefused:
    """The error for a batch whose input files are missing, if it cannot be overruled."""
    return BatchRefused.of(
        "INPUT_MISSING.not_overruled", batch_id=batch.batch_id, count=len(batch.missing_inputs), missing=_missing(batch)
    )


def _with_offers(ways: list[str], reason: Reason, situation: Situation, overruled: str) -> list[str]:
    """The ways to go on, and the accepts that overrule the refusal, each with its effect on the rows."""
    is_to_be_adopted = reason is Reason.UNKNOWN_HISTORY and situation.iceberg_sink_epochs
    if reason in NEVER_OVERRULED or is_to_be_adopted:
        return ways
    offered = _with_missing_inputs(Accept.parse(overruled), situation) if overruled else _offered(reason, situation)
    if offered:
        once = "Overrule this refusal once, for this batch only: accept="
        return [*ways, *(f'{once}"{word}" {does}.' for word, does in offered)]
    what = "versions" if situation.key.kind is SinkKind.TXN else "batches of this query"
    newest = situation.later_landed
    why = "" if newest is None else f": {what} up to {newest} are already committed"
    return [*ways[:-1], f"{ways[-1]} No accept is possible{why}."]


def _offered(reason: Reason, situation: Situation) -> list[tuple[Accept, str]]:
    return [
        (accept_of(reason, situation, adds_rows=choice.adds_rows), choice.does) for choice in choices(reason, situation)
    ]


def _with_missing_inputs(overruled: Accept, situation: Situation) -> list[tuple[Accept, str]]:
    """If an accepted batch also lacks input files: one accept must overrule both refusals."""
    commits = [
        (replace(overruled, without_inputs=True), does)
        for word, does in _offered(Reason.INPUT_MISSING, situation)
        if word.adds_rows
    ]
    return commits + [(word, does) for word, does in _offered(overruled.reason, situation) if not word.adds_rows]


def _newest(reason: Reason, situation: Situation) -> Mark | None:
    """The newest batch in the branch; after a rollback, it can belong to an earlier sink id of the same query."""
    if situation.newest_mark is None and reason is Reason.ROLLED_BACK:
        return situation.newest_of_stream
    from_marks = reason in (Reason.LEDGER_LOST, Reason.LEDGER_DAMAGED)
    return situation.newest_known if from_marks else situation.newest_mark


@dataclass(frozen=True, slots=True)
class _Facts:
    """The facts by their names in the messages. Each is computed on use, because some need the whole history."""

    situation: Situation
    newest: Mark | None

    def __getitem__(self, name: str) -> object:
        return _FACTS[name](self.situation, self.newest)


def _missing(batch: Batch) -> str:
    return _first(list(map(redact, batch.missing_inputs)))


def _first(names: Sequence[str]) -> str:
    rest = f" and {len(names) - MOST_FILES} more" if len(names) > MOST_FILES else ""
    return f"{', '.join(names[:MOST_FILES])}{rest}"


def _restore_options(situation: Situation) -> str:
    key = situation.key
    branch = "" if key.branch == MAIN_BRANCH else f" --branch {key.branch[:MAX_SHOWN]}"
    return f"{branch}{' --txn' if key.kind is SinkKind.TXN else ''}"


def _undone(situation: Situation) -> str:
    """Versions that were rolled back; expiry may have removed some of them."""
    found = _first(list(map(str, situation.undone)))
    if situation.rolled_back and situation.shows_all_undone:
        return found
    return f"{found}, and those that expiry hides" if found else "expiry hides their numbers"


def _why_rewound(situation: Situation) -> str:
    if situation.marked_with_other_data:
        return "it was committed with other data"
    if situation.shows_the_batch_before:
        return "it was never committed"
    return "expiry hides whether it was committed"


def _landed(situation: Situation) -> str:
    if situation.landed is not None:
        return f"Batch {situation.batch.batch_id}: {what_landed(situation)}"
    return f"Later batches of the query are committed, up to {situation.later_landed}"


def _elsewhere(situation: Situation) -> str:
    """The last batch of this sink under other branches."""
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
    return f"a snapshot has its mark in version {version}, this lakesink reads version {LEDGER_VERSION}"


def _end(written: LedgerEntry | Mark | None) -> str:
    if written is None:
        return "unknown"
    if not written.end:
        return "no offsets"
    return shown(written.offsets, MAX_MARK_OFFSETS_BYTES) or f"digest {shown(written.end, MAX_SHOWN)}"


def _number(written: LedgerEntry | Mark | None) -> int:
    return written.batch_id if written else -1


_FACTS: Mapping[str, Callable[[Situation, Mark | None], object]] = {
    "n": lambda s, _: s.batch.batch_id,
    "sink": lambda s, _: repr(s.key.name),
    "name": lambda s, _: s.key.name,
    "iceberg_sink_epoch": lambda s, _: s.iceberg_sink_epochs[0],
    "branch": lambda s, _: s.key.branch[:MAX_SHOWN],
    "property": lambda s, _: s.key.ledger_property,
    "format_version": lambda s, _: s.view.format_version,
    "table_uuid": lambda s, _: s.view.table_uuid,
    "known_uuid": lambda s, _: shown(_known_uuid(s), MAX_SHOWN),
    "damage": lambda s, _: shown(s.view.entry_damage, MAX_SHOWN) or _other_damage(s),
    "last": lambda s, _: s.entry.batch_id if s.entry else "none",
    "next": lambda s, _: _number(s.entry) + 1,
    "changed": lambda s, _: min(s.batch.batch_id, _number(s.entry)),
    "options": lambda s, _: _restore_options(s),
    "entry_snapshot": lambda s, _: s.entry and s.entry.snapshot_id,
    "newest": lambda _, newest: newest.batch_id if newest else "none that is retained",
    "newest_id": lambda _, newest: _number(newest),
    "newest_end": lambda _, newest: _end(newest),
    "end": lambda s, _: _end(s.entry),
    "goes_on_at": lambda s, _: goes_on_at(s),
    "missing_count": lambda s, _: len(s.batch.missing_inputs),
    "missing": lambda s, _: _missing(s.batch),
    "undone": lambda s, _: _undone(s),
    "why_rewound": lambda s, _: _why_rewound(s),
    "landed": lambda s, _: _landed(s),
    "newest_of_stream": lambda s, _: _number(s.newest_of_stream),
    "after_stream": lambda s, _: _number(s.newest_of_stream) + 1,
    "elsewhere": lambda s, _: _elsewhere(s),
}
