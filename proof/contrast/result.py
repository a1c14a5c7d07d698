"""How a case ended for a sink: the oracle's findings and the figures, as data and in words."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pyiceberg.table import Table

from proof.contrast.place import Place
from proof.oracle import Rows, TableFacts, facts_of, files_whole
from proof.processes.evidence import local, read_rows, stored


@dataclass(frozen=True, slots=True)
class Result:
    """One case of one sink.

    Attributes:
        case: Name of the case.
        sink: Name of the sink.
        expected: Rows that should be on the branch, the stream's and others'.
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
    def asides(self) -> tuple[str, ...]:
        """What else is worth saying."""
        said = [f"failed with {', '.join(dict.fromkeys(self.errors))} and was started again"] if self.errors else []
        said += [f"{self.orphans} orphan file" + ("s" if self.orphans > 1 else "")] if self.orphans else []
        return tuple(said)

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        return {**asdict(self), "exact": self.is_exact, "words": self.words}


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


def judge(place: Place, sink: str, ending: Ending) -> Result:
    """Ask the oracle about what a sink has left."""
    table = place.load()
    facts = facts_of(table, sink, place.case.branch)
    damage = tuple(broken.promise.value for broken in files_whole(facts, stored))
    expected, found = place.sent + place.foreign, _rows(facts)
    astray = dict(_astray(place, table))
    missing = max((expected - found).total() - sum(astray.values()), 0)
    held_up = bool(ending.stopped or ending.publishing)
    return Result(
        case=place.case.name,
        sink=sink,
        expected=expected.total(),
        found=found.total(),
        lost=0 if held_up else missing,
        waiting=missing if held_up else 0,
        doubled=(found - expected).total(),
        astray=astray,
        orphans=_orphans(table, facts),
        stopped=ending.stopped,
        errors=ending.errors,
        damage=damage,
        publishing=ending.publishing,
        seconds=round(ending.seconds, 1),
    )


def _rows(facts: TableFacts) -> Rows:
    return read_rows([file.path for file in facts.files if stored(file.path) is not None])


def _astray(place: Place, table: Table) -> Iterator[tuple[str, int]]:
    """Rows of a stream into a branch that are on main, or in a table that has got the branch's name."""
    if place.case.branch == "main":
        return
    places = {"on main": table, "in a new table": place.namesake()}
    for name, where in places.items():
        rows: Rows = Counter() if where is None else _rows(facts_of(where, ""))
        count = (rows - place.on_main).total()
        if count:
            yield name, count


def _orphans(table: Table, facts: TableFacts) -> int:
    known = {local(file.path) for snapshot in facts.snapshots.values() for file in snapshot.files}
    return len(set(local(table.location()).rglob("*.parquet")) - known)
