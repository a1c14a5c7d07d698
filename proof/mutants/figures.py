"""What mutants came to: which layer saw each, and how soon."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from proof.mutants.tested import SeededBugResult


@dataclass(frozen=True, slots=True)
class Start:
    """The simulator's way to a mutant from one first seed.

    Attributes:
        first: First seed.
        seeds: How many it took; None if it did not see it within the bound.
    """

    first: int
    seeds: int | None


@dataclass(frozen=True, slots=True)
class MutantResult:
    """What one mutant came to.

    Attributes:
        name: The mutant.
        breaks: The rule that it breaks.
        seen_in: Who made this mistake.
        in_focus: Seeds that the simulator took where only what matters is drawn; None if it did not see it.
        simulated: The promise that broke there, in words.
        starts: The same from several first seeds where everything is drawn.
        bound: Most seeds of a start.
        scenario: The scenario of real processes.
        unsound: What is broken in it without the mutant: nothing, or the scenario is worth nothing.
        processes: What is broken in it with the mutant.
    """

    name: str
    breaks: str
    seen_in: str
    in_focus: int | None
    simulated: str
    starts: tuple[Start, ...]
    bound: int
    scenario: str
    unsound: tuple[str, ...]
    processes: tuple[str, ...]

    @property
    def layers(self) -> tuple[str, ...]:
        """Layers that saw it."""
        by_chance = any(start.seeds is not None for start in self.starts)
        simulator = by_chance or self.in_focus is not None
        seen = {"simulator": simulator, "processes": bool(self.processes) and not self.unsound}
        return tuple(layer for layer, saw in seen.items() if saw)

    @property
    def median_seeds(self) -> float | None:
        """Of all starts; None if there is none, or if most of them did not see it within the bound."""
        found = median([self.bound + 1 if start.seeds is None else start.seeds for start in self.starts] or [0])
        return None if not self.starts or found > self.bound else found

    @property
    def most_seeds(self) -> int | None:
        """The longest way; None if some start did not see it within the bound, or if there is none."""
        counts = [start.seeds for start in self.starts]
        return None if None in counts else max((count for count in counts if count is not None), default=None)

    @property
    def seeds_told(self) -> str:
        """Median and longest way, as the table shows them."""
        if not self.starts:
            return "not measured"
        middle = f"more than {self.bound:,}" if self.median_seeds is None else f"{self.median_seeds:,.0f}"
        most = f"more than {self.bound:,}" if self.most_seeds is None else f"{self.most_seeds:,}"
        return f"{middle} (most {most}, of {len(self.starts)})"


@dataclass(frozen=True, slots=True)
class MutantFigures:
    """What all mutants came to.

    Attributes:
        seed: First seed of the first start.
        seconds: Wall time.
        results: One a mutant.
        tested: One a bug that only a test can see.
    """

    seed: int
    seconds: float
    results: tuple[MutantResult, ...]
    tested: tuple[SeededBugResult, ...] = ()

    @property
    def broken(self) -> tuple[str, ...]:
        """Holes in the proof, and scenarios that are not clean."""
        holes = [f"{one.name}: only seen by {one.layers or 'nobody'}" for one in self.results if len(one.layers) < 2]
        unsound = [f"{one.scenario}, without a mutant: {what}" for one in self.results for what in one.unsound]
        return (*holes, *unsound, *(what for one in self.tested for what in one.broken))

    @property
    def caught(self) -> int:
        """Mutants that both layers saw."""
        return sum(len(one.layers) == 2 for one in self.results)

    def to_json(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "mutants": len(self.results),
            "caught_by_both_layers": self.caught,
            "results": [_result_json(one) for one in self.results],
            "tested": [one.to_json() for one in self.tested],
            "broken": list(self.broken),
        }


def table(figures: MutantFigures) -> str:
    """The figures as a table in Markdown."""
    rows = [
        (one.name, one.seeds_told, str(one.in_focus or "not seen"), _promise(one.processes), one.seen_in)
        for one in figures.results
    ]
    heads = ("mutant", "median seeds to catch", "in focus", "promise that breaks on real processes", "made by")
    return "\n".join(_line(row) for row in (heads, ("---",) * len(heads), *rows))


def _promise(broken: Sequence[str]) -> str:
    return broken[0].split(": ")[1] if broken else "not seen"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _result_json(one: MutantResult) -> dict[str, Any]:
    derived = {"layers": list(one.layers), "median_seeds": one.median_seeds, "most_seeds": one.most_seeds}
    return {**asdict(one), **derived}
