"""What the bugs came to, by room, and what is not well."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from proof.one_line_bugs.draw import Bug
from proof.one_line_bugs.run import Result
from proof.one_line_bugs.survivors import Survivors

LEAST_RATE = 0.95
HEADINGS = ("room", "drawn", "quick", "tests", "survived", "equivalent", "rate")


@dataclass(frozen=True, slots=True)
class Figures:
    """What the drawn bugs came to.

    Attributes:
        seed: The seed.
        results: Of the bugs that were run.
        equivalent: The drawn bugs that were not run, because they change nothing.
        known: The known survivors.
        stale: Known survivors that the sources no longer have.
        unsound: Tests that killed a bug, and fail without it.
    """

    seed: str
    results: Sequence[Result]
    equivalent: Sequence[Bug]
    known: Survivors
    stale: Sequence[str]
    unsound: Sequence[str]

    @property
    def new(self) -> list[Result]:
        """Survivors that are not known."""
        return [one for one in self.results if not one.killer and one.bug.id not in self.known.open]

    @property
    def rate(self) -> float:
        """Killed bugs, of those that are not equivalent."""
        return _rate(self.results)

    @property
    def broken(self) -> list[str]:
        """The rule: what makes the exit code 1."""
        seen = [one for one in self.results if one.killer and one.bug.id in self.known.open]
        return [
            *(f"survived, and is in no list: {one.bug.id}" for one in self.new),
            *(
                f"is in the list without a reason: {one}"
                for one, reason in self.known.all.items()
                if not reason.strip()
            ),
            *(f"is in the list, and the sources have no such bug: {one}" for one in self.stale),
            *(f"is in the list as open, and {one.killer} kills it: {one.bug.id}" for one in seen),
            *(f"fails without a bug: {test}" for test in self.unsound),
            *([f"{self.rate:.1%} were killed, not {LEAST_RATE:.0%}"] if self.rate < LEAST_RATE else []),
        ]

    def table(self) -> str:
        """A line for each room, and one for all."""
        bugs = [*(one.bug for one in self.results), *self.equivalent]
        rooms = sorted({bug.room for bug in bugs})
        rows = [HEADINGS, *(self._row(room) for room in rooms), self._row("")]
        widths = [max(len(row[at]) for row in rows) for at in range(len(HEADINGS))]
        aligned = ([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in rows)
        return "\n".join("  ".join(row) for row in aligned)

    def _row(self, room: str) -> tuple[str, ...]:
        results = [one for one in self.results if one.bug.room.startswith(room)]
        equivalent = sum(bug.room.startswith(room) for bug in self.equivalent)
        tiers = [one.tier for one in results]
        counts = len(results) + equivalent, tiers.count("quick"), tiers.count("tests"), tiers.count(""), equivalent
        return room or "all", *map(str, counts), f"{_rate(results):.1%}"

    def to_json(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "seed": self.seed,
            "rate": self.rate,
            "results": [{"id": one.bug.id, **asdict(one)} for one in self.results],
            "equivalent": [bug.id for bug in self.equivalent],
            "broken": self.broken,
        }


def _rate(results: Sequence[Result]) -> float:
    return sum(bool(one.killer) for one in results) / len(results) if results else 1.0
