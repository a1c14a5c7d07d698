"""How a case ended for a sink: the oracle's findings and the figures, as data and in words."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pyiceberg.table import Table

from proof.contest.place import Place, rows_in
from proof.contest.reader import Reader
from proof.contest.sinks import SINKS, Guarantee, Sink
from proof.oracle import Rows, facts_of, files_whole
from proof.processes.evidence import stored, unreferenced


@dataclass(frozen=True, slots=True)
class Blow:
    """One SIGKILL, and what became of the batch that it met.

    Attributes:
        point: The failpoint.
        sent: Rows of the batch.
        lost: Rows that are not there in the end.
        doubled: Copies too many.
    """

    point: str
    sent: int
    lost: int
    doubled: int

    @property
    def words(self) -> str:
        """For the table."""
        parts = [f"{count} {what}" for count, what in ((self.lost, "lost"), (self.doubled, "doubled")) if count]
        return f"{', '.join(parts)} of {self.sent}" if parts else "each row once"


@dataclass(frozen=True, slots=True)
class Result:
    """One case of one sink.

    Attributes:
        case: Name of the case.
        sink: Name of the sink.
        expected: Rows that should be in the target, the stream's and others'.
        found: Rows that are.
        lost: Rows that were sent and are not there, nor will be.
        waiting: Rows that are not there because the stream or the publishing has stopped with an error; the source or
            a staged snapshot has them.
        doubled: Copies too many.
        astray: Rows of the stream that are elsewhere than on the branch that it was given, by place.
        orphans: Data files that no snapshot references.
        stopped: The error with which the stream stopped for good; empty if it ended well.
        errors: Errors that a restart overcame.
        damage: Promises about the files of the table that are broken, in the oracle's words.
        publishing: What came of publishing what was staged; empty if that went well, or was not tried.
        seconds: How long the case took.
        blows: Its kills at points of the sink, in order; batch n met kill n.
        looks: How often a reader looked meanwhile.
        in_part: Batches that it saw in part.
        went_back: How often it saw an older value after a newer one.
        example: The first of these, in words; empty if there is none.
    """

    case: str
    sink: str
    expected: int
    found: int
    lost: int = 0
    waiting: int = 0
    doubled: int = 0
    astray: Mapping[str, int] = field(default_factory=dict)
    orphans: int = 0
    stopped: str = ""
    errors: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()
    publishing: str = ""
    seconds: float = 0.0
    blows: tuple[Blow, ...] = ()
    looks: int = 0
    in_part: int = 0
    went_back: int = 0
    example: str = ""

    @property
    def is_exact(self) -> bool:
        """True if no row is lost, doubled or astray and no file is amiss; the stream may have stopped with an error."""
        return not (self.lost or self.doubled or self.astray or self.damage)

    @property
    def words(self) -> str:
        """For the table."""
        parts = [f"{count} rows {place}, not on the branch" for place, count in self.astray.items()]
        parts += [f"{count} rows {what}" for count, what in ((self.lost, "lost"), (self.doubled, "doubled")) if count]
        parts += [f"broken: {promise}" for promise in dict.fromkeys(self.damage)]
        errors = ((self.stopped, "stopped with"), (self.publishing, "publishing refused with"))
        ends = [f"{how} {error}" for error, how in errors if error]
        if ends and not parts:
            ends[-1] += ", nothing lost or doubled"
        return "; ".join(parts + ends) or "each row once"

    @property
    def aside(self) -> str:
        """What else is worth saying."""
        said = [f"failed with {', '.join(dict.fromkeys(self.errors))} and was started again"] if self.errors else []
        said += [f"{self.orphans} orphan file" + ("s" if self.orphans > 1 else "")] if self.orphans else []
        return f" ({'; '.join(said)})" if said else ""

    @property
    def measured(self) -> Guarantee:
        """What the sink guaranteed, as a reader has seen it."""
        if self.lost and self.doubled:
            return Guarantee.NONE
        if self.lost or self.doubled:
            return Guarantee.AT_MOST_ONCE if self.lost else Guarantee.AT_LEAST_ONCE
        return Guarantee.IN_THE_END if self.went_back or self.in_part else Guarantee.EXACTLY_ONCE

    @property
    def of(self) -> Sink:
        """Whose it is."""
        return SINKS[self.sink]

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "Result":
        """What `asdict` made of it."""
        lists = {name: tuple(told[name]) for name in ("errors", "damage")}
        return cls(**{**told, **lists, "blows": tuple(Blow(**blow) for blow in told["blows"])})


@dataclass(frozen=True, slots=True)
class Ending:
    """How the stream of a case ended.

    Attributes:
        stopped: See `Result`.
        errors: See `Result`.
        publishing: See `Result`.
        seconds: See `Result`.
    """

    stopped: str = ""
    errors: tuple[str, ...] = ()
    publishing: str = ""
    seconds: float = 0.0


def judge(place: Place, sink: Sink, ending: Ending, reader: Reader | None = None) -> Result:
    """Ask the oracle about what a sink has left, and a reader who looked meanwhile."""
    expected, found = place.sent + place.foreign, place.view(sink).rows
    of_table = _judged_table(place, place.load(), sink) if sink.view is None else {}
    stopped = ending.stopped or next(iter(reader.failures if reader else ()), "")
    missing = max((expected - found).total() - sum(of_table.get("astray", {}).values()), 0)
    held_up = bool(stopped or ending.publishing)
    result = Result(
        place.case.name,
        sink.name,
        expected=expected.total(),
        found=found.total(),
        lost=0 if held_up else missing,
        waiting=missing if held_up else 0,
        doubled=(found - expected).total(),
        **{**asdict(ending), "stopped": stopped},
        **of_table,
    )
    return result if reader is None else replace(result, **_watched(reader, found))


def _judged_table(place: Place, table: Table, sink: Sink) -> dict[str, Any]:
    facts = facts_of(table, sink.name, place.case.branch)
    damage = tuple(broken.promise.value for broken in files_whole(facts, stored))
    return {"damage": damage, "astray": dict(_astray(place, table)), "orphans": unreferenced(table, facts)}


def _astray(place: Place, table: Table) -> Iterator[tuple[str, int]]:
    """Rows of a stream into a branch that are on main, or in a table that has got the branch's name."""
    if place.case.branch == "main":
        return
    places = {"on main": table, "in a new table": place.namesake()}
    for name, where in places.items():
        count = 0 if where is None else (rows_in(facts_of(where, "")) - place.on_main).total()
        if count:
            yield name, count


def _watched(reader: Reader, found: Rows) -> dict[str, Any]:
    batches = enumerate(reader.sink.points)
    return {
        "blows": tuple(_blow(point, reader.place.batch(batch), found) for batch, point in batches),
        "looks": reader.looks,
        "in_part": len(reader.in_part),
        "went_back": len(reader.went_back),
        "example": next(iter(reader.went_back), ""),
    }


def _blow(point: str, batch: Rows, found: Rows) -> Blow:
    there = Counter({row: found[row] for row in batch})
    return Blow(point, batch.total(), (batch - there).total(), (there - batch).total())
