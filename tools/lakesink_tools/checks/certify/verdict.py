"""The checks of a catalog, the consequences of a failure, and the verdict. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Self


class Need(Enum):
    """What a check is needed for."""

    PROMISE = "exactly-once"
    TAG = "the ledger tag"
    HISTORY = "proofs of what arrived"
    MULTI_TABLE = "commits of several tables at once"


class Check(Enum):
    """A check, by its stable name: what the catalog must do, what follows for a stream if not, and what needs it."""

    TAG = (
        "ledger tag",
        "set a tag in a commit, and move it in the next",
        "a rollback after expiry is not noticed, nor a late request after it",
        Need.TAG,
    )
    FIRST_COMMITS = (
        "first commits",
        "accept one of several first commits to a new table; refuse a commit that asserts no head where there is one",
        "of two writers that begin a new table both are told that they committed, and the rows of one are lost",
    )
    STALE_HEAD = (
        "stale head",
        "refuse a commit that asserts an old head",
        "of two drivers both commit a batch, or one overwrites the other: rows are doubled or lost",
    )
    STALE_TAG = (
        "stale tag",
        "refuse a commit that asserts the right head and an old tag, or none where there is one",
        "after a rollback and expiry, a late request can commit a batch again",
        Need.TAG,
    )
    TABLE_UUID = (
        "table uuid",
        "refuse a commit that asserts another table's UUID",
        "a batch of a dropped table can be committed to a new table of its name",
    )
    SCHEMA = (
        "schema",
        "refuse a commit that asserts another schema",
        "files of an old schema can be committed under a new schema",
    )
    EQUAL_ID = (
        "equal snapshot id",
        "refuse a second snapshot with an existing id",
        "a table can get two snapshots with one id, and readers see either",
    )
    ALL_OR_NOTHING = (
        "all or nothing",
        "move snapshot, head, property and tag together; change nothing if one of them is impossible",
        "ledger and rows can disagree: a missing batch is skipped, or a batch is written twice",
    )
    OWN_WRITES = (
        "own writes",
        "show a commit to every connection as soon as it is acknowledged",
        "a committed batch is not visible, so commits end as unresolved",
    )
    SENT_TWICE = (
        "sent twice",
        "commit a repeated request only once, later or at the same time",
        "a request that a proxy or client repeats doubles the rows of its batch",
    )
    HISTORY = (
        "history kept",
        "keep every snapshot with its parent until somebody expires it",
        "log, as-of, diff, audit and readers see the last batch only, and nothing before it can be proved",
        Need.HISTORY,
    )
    COMPARE_AND_SWAP = (
        "compare-and-swap",
        "keep every acknowledged commit of concurrent writers, each on the previous one",
        "acknowledged commits are lost, or a batch is committed twice",
    )
    MULTI_TABLE = (
        "multi-table",
        "commit two tables in one request, both or none, and keep the acknowledged commits of concurrent writers",
        "the endpoint is not safe; lakesink does not use it and commits table by table",
        Need.MULTI_TABLE,
    )

    asked: str
    follows: str
    need: Need

    def __new__(cls, name: str, asked: str, follows: str, need: Need = Need.PROMISE) -> Self:
        """Only the name is the value."""
        check = object.__new__(cls)
        check._value_ = name
        check.asked, check.follows, check.need = asked, follows, need
        return check


class Standing(Enum):
    """The result of a check."""

    KEPT = "kept"
    BROKEN = "broken"
    ABSENT = "absent"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check with its result."""

    check: Check
    standing: Standing
    found: str  # the result in words
    figures: Mapping[str, float] = field(default_factory=dict)  # the result in numbers, where there are some


class Verdict(Enum):
    """The suitability of a catalog. The value is the stable word."""

    CERTIFIED = "certified"
    SINGLE_TABLE = "certified for single-table commits"
    WITHOUT_TAG = "certified without the ledger tag"
    WITHOUT_HISTORY = "certified without history"
    NOT_SAFE = "NOT safe"
    UNDECIDED = "not decided"

    @property
    def fit(self) -> bool:
        """True if a stream with lakesink's defaults is exactly-once on it."""
        return self in (Verdict.CERTIFIED, Verdict.SINGLE_TABLE)


WITHOUT = {
    Need.PROMISE: Verdict.NOT_SAFE,
    Need.TAG: Verdict.WITHOUT_TAG,
    Need.HISTORY: Verdict.WITHOUT_HISTORY,
}
"""What a catalog is that does not give what is needed, the worst first."""
ADVICE = {
    Verdict.CERTIFIED: "Stream into it. Its commits of several tables at once are atomic too.",
    Verdict.SINGLE_TABLE: "Stream into it. A batch of several tables commits them one after the other, in a fixed"
    " order; the replay completes the tables that a crash left out.",
    Verdict.WITHOUT_TAG: "Give streams ledger_tag=False; before a rollback stop the stream, and expire nothing until it"
    " runs again.",
    Verdict.WITHOUT_HISTORY: "Rows arrive exactly once, but nothing can be proved afterwards. Use another catalog for"
    " log, as-of, audit or a reader.",
    Verdict.NOT_SAFE: "Do not stream into it: no writer can be exactly-once on it. Use a SQL catalog (SQLite,"
    " PostgreSQL) or a REST catalog that passes this.",
    Verdict.UNDECIDED: "Correct the failures of the checks, and run this again.",
}


def judge(findings: Sequence[CheckResult]) -> Verdict:
    """The verdict of the findings; a check that was not run counts as undecided."""
    standings = {finding.check: finding.standing for finding in findings}

    def any_is(need: Need, *of: Standing) -> bool:
        return any(standings.get(check, Standing.UNDECIDED) in of for check in Check if check.need is need)

    for need, verdict in WITHOUT.items():
        if any_is(need, Standing.BROKEN):
            return verdict
        if any_is(need, Standing.UNDECIDED, Standing.ABSENT):
            return Verdict.UNDECIDED
    return Verdict.CERTIFIED if any_is(Need.MULTI_TABLE, Standing.KEPT) else Verdict.SINGLE_TABLE
