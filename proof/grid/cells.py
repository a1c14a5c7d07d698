"""The cells of the grid, as data. Pure."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from lakesink_catalog.failpoints import FAILPOINTS
from servers.fault_proxy import ALWAYS_APPLIED, HttpFault, Kind

BATCHES = 3
NOWHERE = "nobody dies"
IN_CALL = "in the call"
POINTS = tuple(name for name, point in FAILPOINTS.items() if not point.needs)
"""Places that every stream reaches."""
POINTS_OF_UPSERTS = tuple(name for name, point in FAILPOINTS.items() if point.needs != "maintenance")
"""Places that every stream of upserts reaches."""
POINTS_OF_MAINTENANCE = tuple(name for name, point in FAILPOINTS.items() if point.needs == "maintenance")
"""Places that every stream reaches that maintains its table after each batch."""
ROWS_OF_THE_GRID = (*POINTS_OF_UPSERTS, *POINTS_OF_MAINTENANCE, IN_CALL, NOWHERE)


class Position(Enum):
    """Which batch is struck, by its id."""

    FIRST = 0
    MIDDLE = 1
    LAST = 2


class Company(Enum):
    """Who else works on the table, at the moment of the fault."""

    ALONE = "alone"
    FOREIGN = "foreign writer"
    JAVA_EXPIRY = "foreign writer, expiry as Java does it"
    PYICEBERG_EXPIRY = "foreign writer, expiry as PyIceberg does it"


class Blow(Enum):
    """What happens to a driver at a point."""

    KILL = "SIGKILL"
    EXCEPTION = "exception"
    ZOMBIE = "SIGSTOP, second driver, SIGCONT"
    DISK_FULL = "disk full"
    DISK_FULL_LATER = "disk full in mid-file"


class SparkBlow(Enum):
    """What happens to a process of a real Spark application."""

    DRIVER = "Spark: driver SIGKILL"
    ZOMBIE = "Spark: SIGSTOP, second driver, SIGCONT"
    PYTHON_WORKER = "Spark: Python worker SIGKILL"
    EXECUTOR = "Spark: executor SIGKILL"


Fault = Blow | HttpFault | SparkBlow
ROWS, DOCUMENTS, UPSERTS, KEYED_DOCUMENTS, EVENTS = "", "documents", "upserts", "keyed documents", "events"
"""Kinds of streams: of rows, of documents that the table follows, of rows that replace and delete others by key, and of
documents that do so."""
MAINTAINED_ROWS, MAINTAINED_UPSERTS = "maintained rows", "maintained upserts"
MAINTAINED = (MAINTAINED_ROWS, MAINTAINED_UPSERTS)
"""Kinds whose streams replace the files of their tables after each batch: every second commit is of that."""
REPLAYED = (KEYED_DOCUMENTS, EVENTS)
"""Kinds with dead letters that are replayed in the end, and a changelog."""
BLOWS_OF_DOCUMENTS = (Blow.KILL, Blow.EXCEPTION, Blow.ZOMBIE)
"""A full disk is met by the same files and records as without documents."""
BLOWS_OF_REPLAYED = (Blow.KILL, Blow.ZOMBIE)
COMMITS = ("the changelog's commit", "the letters' commit", "the table's commit")
"""In the order in which a batch with all of them reaches the points of a commit."""
POINTS_OF_COMMITS = ("before-call", "after-call")
BLOWS_OF_UPSERTS: tuple[Blow | SparkBlow, ...] = (*BLOWS_OF_DOCUMENTS, SparkBlow.DRIVER)

ANSWERS_OF_MAINTENANCE = tuple(
    HttpFault(kind, applied, *status)
    for kind, status in ((Kind.DROP, ()), (Kind.STATUS, (503,)))
    for applied in (True, False)
)
"""A maintenance that lost its answer looks at the table, as a batch does."""
FEATURED = (400, 401, 403, 404, 408, 409, 429, 500, 502, 503, 504)
"""Statuses that are crossed with everything; every other one has cells of its own, see `_sweep`."""
LATE_SECONDS = 8.0
SLOW_SECONDS = 0.3
OUTWAITED = frozenset({Kind.SILENCE, Kind.LATE, Kind.DRIP})
"""Faults that last longer than a client waits."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell.

    Attributes:
        point: A failpoint where a driver dies or is struck, `IN_CALL`, or `NOWHERE`.
        fault: What happens. With an `HttpFault` at a failpoint, the driver also gets a SIGKILL there.
        position: In which batch.
        company: Who else is there.
        kind: Of the stream. Its letters are replayed, if they are, by processes that are struck in the same way.
        passage: How often a process has come to the point when it is struck.
    """

    point: str
    fault: Fault
    position: Position
    company: Company
    kind: str = ROWS
    passage: int = 1

    @property
    def name(self) -> str:
        """All of it in words; picks the cell on the command line."""
        fault: str = self.fault.name if isinstance(self.fault, HttpFault) else self.fault.value
        name = f"{self.point} / {fault} / {self.position.name.lower()} / {self.company.value}"
        return " / ".join(filter(None, (name, self.kind, self._at)))

    @property
    def _at(self) -> str:
        """Whose commit it is, where the driver comes to the point with each of them."""
        return COMMITS[self.passage - 1] if self.kind in REPLAYED and self.point in POINTS_OF_COMMITS else ""

    @property
    def column(self) -> str:
        """The cell's column in the published grid."""
        if not isinstance(self.fault, HttpFault):
            column = f"{self.kind}: {self.fault.value}" if self.kind else str(self.fault.value)
            return f"{column}, {self._at}" if self.passage > 1 else column
        if self.fault.kind is Kind.STATUS:
            return f"HTTP {self.fault.status // 100}xx"
        return f"HTTP {self.fault.kind.value}"

    @property
    def request(self) -> int:
        """The number of the commit request that is spoilt or struck, of all requests of a stream, from 1."""
        return 2 * self.position.value + 2 if self.kind in MAINTAINED else self.position.value + 1

    @property
    def over_http(self) -> bool:
        """True if the cell needs a REST catalog behind the proxy."""
        return isinstance(self.fault, HttpFault) or self.point == IN_CALL

    @property
    def on_spark(self) -> bool:
        """True if real Spark runs it."""
        return isinstance(self.fault, SparkBlow)

    @property
    def mostly_waits(self) -> bool:
        """True if its time goes into waiting for a client to give up."""
        return isinstance(self.fault, HttpFault) and self.fault.kind in OUTWAITED

    @property
    def unrunnable(self) -> str:
        """What is missing to run it; empty if nothing."""
        if self.fault is Blow.EXCEPTION and self.point == IN_CALL:
            return "an exception inside the call: it is what the HTTP columns are about, each as the client raises it"
        return ""


def http_faults() -> list[HttpFault]:
    """Everything that is crossed with every point."""
    spoilt = [HttpFault(kind, applied) for kind in Kind if kind not in _OWN_WAY for applied in (True, False)]
    statuses = [HttpFault(Kind.STATUS, applied, status) for status in FEATURED for applied in (True, False)]
    late = [HttpFault(Kind.LATE, seconds=LATE_SECONDS), HttpFault(Kind.SLOW, seconds=SLOW_SECONDS)]
    return [*statuses, *spoilt, *late, HttpFault(Kind.TWICE)]


def all_cells() -> list[Cell]:
    """The whole grid, in a stable order."""
    return [*_blows(), *_http(), *_sweep(), *_spark(), *_documents(), *_upserts(), *_replayed(), *_maintained()]


_OWN_WAY = ALWAYS_APPLIED | {Kind.STATUS}
_KILLED_BEFORE_THE_ANSWER = (Kind.SILENCE, Kind.LATE, Kind.SLOW, Kind.TWICE)
"""A driver that dies in the call never sees the answer: the other faults are no others there."""


def _blows() -> Iterator[Cell]:
    for point, blow, position, company in itertools.product((*POINTS, IN_CALL), Blow, Position, Company):
        yield Cell(point, blow, position, company)


def _http() -> Iterator[Cell]:
    points = (*POINTS, IN_CALL, NOWHERE)
    for point, fault, position, company in itertools.product(points, http_faults(), Position, Company):
        if point != IN_CALL or fault.kind in _KILLED_BEFORE_THE_ANSWER:
            yield Cell(point, fault, position, company)


def _sweep() -> Iterator[Cell]:
    """Every other status from 400 to 599, applied and not, each at a point of its own turn."""
    points = itertools.cycle((NOWHERE, *POINTS))
    places = itertools.cycle(itertools.product(Position, Company))
    others = [status for status in range(400, 600) if status not in FEATURED]
    for status, applied in itertools.product(others, (True, False)):
        position, company = next(places)
        yield Cell(next(points), HttpFault(Kind.STATUS, applied, status), position, company)


def _spark() -> Iterator[Cell]:
    companies = itertools.cycle((Company.ALONE, Company.FOREIGN))
    for point, blow, position in itertools.product(POINTS, SparkBlow, Position):
        yield Cell(point, blow, position, next(companies))


def _documents() -> Iterator[Cell]:
    """Each batch has dead letters, and all but the first change the schema."""
    companies = itertools.cycle((Company.ALONE, Company.FOREIGN, Company.FOREIGN, Company.ALONE))
    for point, blow, position in itertools.product(POINTS, BLOWS_OF_DOCUMENTS, Position):
        yield Cell(point, blow, position, next(companies), DOCUMENTS)


def _upserts() -> Iterator[Cell]:
    """Each batch replaces and deletes rows of earlier ones, and moves some to another partition."""
    companies = itertools.cycle((Company.ALONE, Company.FOREIGN, Company.FOREIGN, Company.JAVA_EXPIRY))
    for point, blow, position in itertools.product(POINTS_OF_UPSERTS, BLOWS_OF_UPSERTS, Position):
        yield Cell(point, blow, position, next(companies), UPSERTS)
    for position in Position:
        yield Cell(IN_CALL, Blow.KILL, position, next(companies), UPSERTS)


def _replayed() -> Iterator[Cell]:
    """Each batch changes rows by key, the schema, dead letters and a changelog; its letters are replayed in the end."""
    companies = itertools.cycle((Company.ALONE, Company.FOREIGN, Company.FOREIGN, Company.ALONE))
    kinds = itertools.cycle(REPLAYED)
    first = itertools.product((1,), POINTS_OF_UPSERTS, BLOWS_OF_REPLAYED, Position)
    later = itertools.product(range(2, len(COMMITS) + 1), POINTS_OF_COMMITS, (Blow.KILL,), Position)
    for passage, point, blow, position in (*first, *later):
        yield Cell(point, blow, position, next(companies), next(kinds), passage)


def _maintained() -> Iterator[Cell]:
    """Each batch is followed by a maintenance that replaces its files and those of the batches before."""
    companies = itertools.cycle((Company.ALONE, Company.FOREIGN, Company.FOREIGN, Company.JAVA_EXPIRY))
    of_points = itertools.product(MAINTAINED, POINTS_OF_MAINTENANCE, BLOWS_OF_DOCUMENTS, Position)
    in_call = itertools.product(MAINTAINED, (IN_CALL,), (Blow.KILL,), Position)
    answers = itertools.product(MAINTAINED, (NOWHERE,), ANSWERS_OF_MAINTENANCE, (Position.MIDDLE, Position.LAST))
    struck: list[tuple[str, str, Fault, Position]] = [*of_points, *in_call, *answers]
    for kind, point, fault, position in struck:
        yield Cell(point, fault, position, next(companies), kind)
