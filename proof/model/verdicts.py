"""The verdict table once more, as the model has it: what a driver must have decided by the facts that it saw.

Written from the protocol's text and not from the code, which it is compared with. Rules 1 to 3 speak of things that the
model does not have (format version, table UUID, damage); of these only the reason is checked.
"""

from collections.abc import Callable
from dataclasses import dataclass

from proof.model.lines import Facts, Written

OUTSIDE = {1: {"Unsupported", "BranchMissing"}, 2: {"TableReplaced"}, 3: {"LedgerDamaged"}}


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the protocol's table.

    Attributes:
        number: Its number there.
        verdict: ``commit``, ``skip``, or the reason of a refusal.
        applies: The condition.
    """

    number: int
    verdict: str
    applies: Callable[[Facts], bool]


def _begins_at(f: Facts, end: Written | None) -> bool:
    return end is not None and f.start is not None and f.start == end.end


def _same_query(f: Facts, as_in: Written | None) -> bool:
    return as_in is not None and as_in.query_id == f.batch.query_id


def _ahead(f: Facts) -> int:
    assert f.entry is not None
    return f.batch.batch_id - f.entry.batch_id


def _next_of_newest(f: Facts) -> bool:
    return f.newest is not None and f.batch.batch_id == f.newest.batch_id + 1 and _begins_at(f, f.newest)


RULES = (
    Rule(4, "LedgerLost", lambda f: f.entry is None and f.marked),
    Rule(5, "UnknownHistory", lambda f: f.entry is None and (f.batch.batch_id > 0 or f.elsewhere)),
    Rule(6, "commit", lambda f: f.entry is None),
    Rule(7, "skip", lambda f: f.gone and f.shown is not None),
    Rule(8, "commit", lambda f: f.gone and _same_query(f, f.newest) and _next_of_newest(f)),
    Rule(
        9,
        "commit",
        lambda f: f.gone and _same_query(f, f.entry) and f.newest is None and f.complete and f.batch.batch_id == 0,
    ),
    Rule(
        10,
        "commit",
        lambda f: (
            f.gone
            and f.newest is not None
            and not _same_query(f, f.newest)
            and f.batch.batch_id == 0
            and _begins_at(f, f.newest)
        ),
    ),
    Rule(11, "RolledBack", lambda f: f.gone),
    Rule(12, "commit", lambda f: not _same_query(f, f.entry) and f.batch.batch_id == 0 and _begins_at(f, f.entry)),
    Rule(13, "NewCheckpoint", lambda f: not _same_query(f, f.entry)),
    Rule(14, "skip", lambda f: _ahead(f) == 0 and f.entry is not None and f.batch.fingerprint == f.entry.fingerprint),
    Rule(15, "BatchChanged", lambda f: _ahead(f) == 0),
    Rule(16, "commit", lambda f: _ahead(f) == 1 and _begins_at(f, f.entry)),
    Rule(17, "BatchChanged", lambda f: _ahead(f) == 1),
    Rule(18, "skip", lambda f: _ahead(f) < 0 and f.shown is not None),
    Rule(19, "Rewound", lambda f: _ahead(f) < 0),
    Rule(20, "Gap", lambda f: _ahead(f) > 1),
)


def wrong_verdict(facts: Facts) -> str | None:
    """What is wrong about a verdict; None if it is the protocol's."""
    if facts.kind != "stream" or facts.accepted or not facts.tagged:
        return "the model has streams with a ledger tag only, and no human's word"
    if facts.rule in OUTSIDE:
        return None if facts.verdict in OUTSIDE[facts.rule] else f"rule {facts.rule} does not say {facts.verdict}"
    wanted = next(rule for rule in RULES if rule.applies(facts))
    if (wanted.number, wanted.verdict) == (facts.rule, facts.verdict):
        return None
    return f"rule {facts.rule} said {facts.verdict}; by what was seen, rule {wanted.number} says {wanted.verdict}"
