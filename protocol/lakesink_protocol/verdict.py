"""The verdict on a batch: a table of rules over the ledger; the first rule that applies decides. Pure.

Batch ids grow by one, and each batch starts where the one before ended. Everything else is refused. An operator may
overrule the refusal for one batch with `Accept`, by one of the choices that the refusal offers.
"""

from collections.abc import Callable
from dataclasses import dataclass

from lakesink_protocol.errors import Reason
from lakesink_protocol.identity import SinkKind
from lakesink_protocol.refusals.accept import Accept, ledger_state
from lakesink_protocol.refusals.choices import choices
from lakesink_protocol.situation import Situation

SUPPORTED_FORMAT_VERSION = 2


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit the batch.

    Attributes:
        adds_rows: False if an operator skipped the batch: the ledger counts it, and no row is written.
        moves_ledger: False if an operator replays a batch below the ledger's: the ledger keeps its batch.
        accepted: The accept as the user wrote it; empty if none.
        unverifiable: True if the ledger's snapshot is neither under the head nor provably rolled back; it is trusted.
        without_inputs: Number of missing input files that an operator accepted.
    """

    rule: int
    adds_rows: bool = True
    moves_ledger: bool = True
    accepted: str = ""
    unverifiable: bool = False
    without_inputs: int = 0


@dataclass(frozen=True, slots=True)
class Skip:
    """The batch is in the table. `snapshot_id` is its snapshot; None if the history no longer shows it."""

    rule: int
    snapshot_id: int | None
    unverifiable: bool = False


@dataclass(frozen=True, slots=True)
class Refuse:
    """The batch must not be committed without an operator."""

    rule: int
    reason: Reason


Verdict = Commit | Skip | Refuse


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the verdict table: its condition in words and as code, and its verdict `then`."""

    number: int
    when: str
    then: str | Reason
    applies: Callable[[Situation], bool]


def _other_query(s: Situation) -> bool:
    return s.entry is not None and s.batch.query_id != s.entry.query_id


def _ahead(s: Situation) -> int:
    """Distance of the batch from the ledger's batch; 1 is the next one."""
    return s.batch.batch_id - (s.entry.batch_id if s.entry else -1)


def _taken_over(s: Situation, end: str | None) -> bool:
    return s.batch.batch_id == 0 and end is not None and s.starts_at(end)


_TABLE_RULES = (
    Rule(1, "format version is not 2", Reason.UNSUPPORTED, lambda s: s.view.format_version != SUPPORTED_FORMAT_VERSION),
    Rule(1, "the branch is missing", Reason.BRANCH_MISSING, lambda s: not s.view.branch_exists),
    Rule(
        2,
        "the table's UUID is not the one of the start, of the entry or of the prepared record",
        Reason.TABLE_REPLACED,
        lambda s: (
            s.view.table_uuid != s.start_uuid or (s.entry is not None and s.entry.table_uuid != s.view.table_uuid)
        ),
    ),
    Rule(
        3,
        "the entry is unreadable, of a newer version, or contradicts an own mark, or such a mark is of a newer version",
        Reason.LEDGER_DAMAGED,
        lambda s: (
            bool(s.view.entry_damage) or s.unread_version is not None or (s.entry is not None and s.entry_contradicted)
        ),
    ),
    Rule(
        4,
        "no entry, but an own mark in the ancestry, or at the ledger tag's snapshot",
        Reason.LEDGER_LOST,
        lambda s: s.entry is None and s.has_own_mark,
    ),
)

STREAM_RULES = (
    *_TABLE_RULES,
    Rule(
        5,
        "Iceberg's own sink has written for the same query, since the newest own mark in the ancestry if there is one",
        Reason.UNKNOWN_HISTORY,
        lambda s: bool(s.iceberg_sink_epochs),
    ),
    Rule(
        5,
        "no entry, and N > 0, or the ancestry has N's query under another sink, or this sink under another branch, or"
        " expiry hides whether it has what the table knows of this sink there",
        Reason.UNKNOWN_HISTORY,
        lambda s: (
            s.entry is None
            and (s.batch.batch_id > 0 or s.marked_elsewhere or s.landed is not None or s.newest_of_stream is not None)
        ),
    ),
    Rule(6, "no entry, N = 0", "commit", lambda s: s.entry is None),
    Rule(
        7,
        "rolled back; N's own mark is present, same query and fingerprint",
        "skip",
        lambda s: s.rolled_back and s.snapshot_of_batch is not None,
    ),
    Rule(
        8,
        "rolled back; same query, N = M+1, starts where M ends",
        "commit",
        lambda s: s.rolled_back and s.follows(s.newest_mark),
    ),
    Rule(
        9,
        "rolled back; same query, no M nor batch of it under another sink, ancestry complete, N = 0",
        "commit",
        lambda s: (
            s.rolled_back
            and not _other_query(s)
            and s.newest_of_stream is None
            and s.newest_mark is None
            and s.ancestry_complete
            and s.batch.batch_id == 0
        ),
    ),
    Rule(
        10,
        "rolled back; other query, N = 0, start known and = M's end",
        "commit",
        lambda s: (
            s.rolled_back
            and s.newest_mark is not None
            and s.newest_mark.query_id != s.batch.query_id
            and _taken_over(s, s.newest_mark.end)
        ),
    ),
    Rule(11, "rolled back; anything else", Reason.ROLLED_BACK, lambda s: s.rolled_back),
    Rule(
        12,
        "other query; N = 0, start known and = the entry's end",
        "commit",
        lambda s: _other_query(s) and s.entry is not None and _taken_over(s, s.entry.end),
    ),
    Rule(13, "other query; anything else", Reason.NEW_CHECKPOINT, _other_query),
    Rule(
        14,
        "N = L, same fingerprint",
        "skip",
        lambda s: _ahead(s) == 0 and s.entry is not None and s.batch.fingerprint == s.entry.fingerprint,
    ),
    Rule(15, "N = L, other fingerprint", Reason.BATCH_CHANGED, lambda s: _ahead(s) == 0),
    Rule(
        16,
        "N = L+1, starting where the entry ends",
        "commit",
        lambda s: _ahead(s) == 1 and s.entry is not None and s.starts_at(s.entry.end),
    ),
    Rule(17, "N = L+1, starting elsewhere", Reason.BATCH_CHANGED, lambda s: _ahead(s) == 1),
    Rule(
        18,
        "N < L; N's own mark is present, same query and fingerprint",
        "skip",
        lambda s: _ahead(s) < 0 and s.snapshot_of_batch is not None,
    ),
    Rule(19, "N < L", Reason.REWOUND, lambda s: _ahead(s) < 0),
    Rule(20, "N > L+1", Reason.GAP, lambda s: _ahead(s) > 1),
)

TRANSACTION_RULES = (
    *_TABLE_RULES,
    Rule(
        5,
        "no entry, or version above the entry's, but the version is in the ancestry under another branch",
        Reason.UNKNOWN_HISTORY,
        lambda s: s.landed is not None and (s.entry is None or _ahead(s) > 0),
    ),
    Rule(
        5,
        "no entry, and expiry hides whether the version is there, which is not above the newest that the table knows"
        " under another branch",
        Reason.UNKNOWN_HISTORY,
        lambda s: (
            s.entry is None and s.newest_elsewhere is not None and s.batch.batch_id <= s.newest_elsewhere and s.hidden
        ),
    ),
    Rule(6, "no entry", "commit", lambda s: s.entry is None),
    Rule(
        7,
        "rolled back; the version's own mark is present",
        "skip",
        lambda s: s.rolled_back and s.snapshot_of_batch is not None,
    ),
    Rule(
        8,
        "rolled back; version above M and not above the entry's: the replay after a rollback; none that it undid is"
        " between",
        "commit",
        lambda s: (
            s.rolled_back
            and s.newest_mark is not None
            and s.newest_mark.batch_id < s.batch.batch_id
            and _ahead(s) <= 0
            and s.skips_no_rolled_back_batch
        ),
    ),
    Rule(
        9,
        "rolled back; no M nor the version under another branch, ancestry complete, version not above the entry's; none"
        " that the rollback undid is below",
        "commit",
        lambda s: (
            s.rolled_back
            and s.newest_mark is None
            and s.landed is None
            and s.ancestry_complete
            and _ahead(s) <= 0
            and s.skips_no_rolled_back_batch
        ),
    ),
    Rule(11, "rolled back; anything else", Reason.ROLLED_BACK, lambda s: s.rolled_back),
    Rule(14, "version equal to the entry's", "skip", lambda s: _ahead(s) == 0),
    Rule(16, "version above the entry's", "commit", lambda s: _ahead(s) > 0),
    Rule(18, "lower version, its own mark is present", "skip", lambda s: s.snapshot_of_batch is not None),
    Rule(19, "lower version", Reason.REWOUND, lambda s: _ahead(s) < 0),
)


def decide(situation: Situation, accept: Accept | None = None) -> Verdict:
    """The verdict on a batch, for one state of the table.

    An accept counts only for the batch, the refusal and the state of the ledger that it names, and only if the refusal
    offers it.
    """
    rules = STREAM_RULES if situation.key.kind is SinkKind.STREAM else TRANSACTION_RULES
    rule = next(rule for rule in rules if rule.applies(situation))
    if rule.then == "skip":
        return Skip(rule.number, _snapshot_of_batch(situation), unverifiable=situation.unverifiable)
    # Missing input is refused later, before rows are written: a batch that was prepared earlier does not need it.
    reason = rule.then if isinstance(rule.then, Reason) else Reason.INPUT_MISSING
    if accept and _is_offered(accept, reason, situation):
        without_inputs = accept.without_inputs or accept.reason is Reason.INPUT_MISSING
        return Commit(
            rule.number,
            adds_rows=accept.adds_rows,
            moves_ledger=reason is not Reason.REWOUND,
            accepted=str(accept),
            unverifiable=situation.unverifiable,
            without_inputs=len(situation.batch.missing_inputs) if without_inputs else 0,
        )
    if isinstance(rule.then, Reason):
        return Refuse(rule.number, rule.then)
    return Commit(rule.number, unverifiable=situation.unverifiable)


def _is_offered(accept: Accept, reason: Reason, situation: Situation) -> bool:
    if (accept.reason, accept.batch_id) != (reason, situation.batch.batch_id):
        return False
    offered = any(choice.adds_rows == accept.adds_rows for choice in choices(reason, situation))
    return offered and accept.against == ledger_state(situation)


def _snapshot_of_batch(situation: Situation) -> int | None:
    if situation.snapshot_of_batch is not None:
        return situation.snapshot_of_batch
    entry = situation.entry
    return entry.snapshot_id if entry and entry.batch_id == situation.batch.batch_id else None
