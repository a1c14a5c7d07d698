"""How a cell must end, as data: how the driver that is struck may end, and every one after it. Pure.

Rows are not spoken of here: whatever the cell, each is in the table once.
"""

from dataclasses import dataclass

from proof.grid.cells import IN_CALL, NOWHERE, POINTS_OF_MAINTENANCE, Blow, Cell, Company, Position, SparkBlow
from servers.fault_proxy import HttpFault, Kind

KILLED = ""
"""In place of a code: the driver had no chance to say anything."""
End = str | None
"""Code of the error that ended a driver, `KILLED`, or None if it ended well."""

RIVAL = "ConcurrentStreamLogUpdate"
INJECTED = "FailpointReached"
NO_ROOM = {
    "batch-start": {"LAKESINK_STORAGE_WRITE"},
    "while-writing": {"LAKESINK_STORAGE_WRITE"},
    "before-prepared": {"LAKESINK_WAREHOUSE_UNWRITABLE"},
    "after-prepared": {"LAKESINK_COMMIT_UNRESOLVED"},
    "before-call": {"LAKESINK_COMMIT_UNRESOLVED"},
    "after-call": {"OSError"},
    "after-commit": {"OSError"},
    IN_CALL: {"LAKESINK_COMMIT_UNRESOLVED", "OSError"},
}
"""Who meets a full disk first: the task's file, the record, the commit's manifest list, the query's own log."""

BY_NAME = "by name"
"""In place of a code, of a Spark driver: lakesink's own error, or Spark's about a rival."""
ON_SPARK: dict[SparkBlow, End] = {
    SparkBlow.DRIVER: KILLED,
    SparkBlow.ZOMBIE: BY_NAME,
    SparkBlow.PYTHON_WORKER: None,
    SparkBlow.EXECUTOR: None,
}
"""Spark itself runs the tasks again whose process is gone."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """How a cell must end.

    Attributes:
        struck: Ends that the struck driver may come to.
        restarted: Ends that a driver after it may come to; some driver has to end well.
    """

    struck: frozenset[End]
    restarted: frozenset[End] = frozenset({None})


OF_REPLAYS = Expectation(frozenset({KILLED, None}))
"""A replay does not come to each point, and one that stood still finds what another has done."""
REFUSED = "LAKESINK_KEYS_ABSENT"
"""How a replay ends which nobody has told that rows are new: in each cell, the keys of some letters are not there."""


def expected(cell: Cell) -> Expectation:
    """How a cell must end."""
    if isinstance(cell.fault, HttpFault):
        return Expectation(_spoilt(cell, cell.fault))
    if isinstance(cell.fault, SparkBlow):
        return Expectation(frozenset({ON_SPARK[cell.fault]}))
    return Expectation(frozenset(_struck(cell, cell.fault)))


def _struck(cell: Cell, blow: Blow) -> set[End]:
    match blow:
        case Blow.KILL:
            return {KILLED}
        case Blow.EXCEPTION:
            return {_raised(cell)}
        case Blow.ZOMBIE:
            return _fenced(cell)
        case Blow.DISK_FULL:
            return {*NO_ROOM[cell.point]}
        case Blow.DISK_FULL_LATER:
            return _little_room(cell)


def _spoilt(cell: Cell, fault: HttpFault) -> frozenset[End]:
    """No answer of one commit request ends a driver: it looks again. Only its SIGKILL does, where it comes that far."""
    if cell.point == NOWHERE:
        return frozenset({None})
    if cell.point != "after-call":
        return frozenset({KILLED})
    if fault.kind is Kind.LATE:
        return frozenset({KILLED, None})
    seen_by_looking = fault.applied and fault.kind is not Kind.SLOW
    return frozenset({None} if seen_by_looking else {KILLED})


def _raised(cell: Cell) -> End:
    """In the commit's loop an exception proves nothing: the driver looks, and sends again until attempts run out.

    No batch depends on maintenance, and it fails none.
    """
    if cell.point in POINTS_OF_MAINTENANCE:
        return None
    ends = {"after-locate": None, "before-call": "LAKESINK_COMMIT_UNRESOLVED", "after-call": None}
    return ends.get(cell.point, INJECTED)


def _fenced(cell: Cell) -> set[End]:
    """The zombie finds its batch committed, then Spark's log taken; or no trace of its batch, if that has expired."""
    expired = cell.company in (Company.JAVA_EXPIRY, Company.PYICEBERG_EXPIRY) and cell.position is not Position.LAST
    return {"LAKESINK_REWOUND", RIVAL} if expired else {RIVAL}


def _little_room(cell: Cell) -> set[End]:
    """The log's entries still fit: the query goes on to the next batch, if there is one."""
    if cell.point in ("after-call", "after-commit", IN_CALL):
        later: set[End] = {None} if cell.position is Position.LAST else {"LAKESINK_STORAGE_WRITE"}
        return later | ({"LAKESINK_COMMIT_UNRESOLVED"} if cell.point == IN_CALL else set())
    return {*NO_ROOM[cell.point]}
