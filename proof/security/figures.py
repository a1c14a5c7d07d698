"""What an attack found, in figures that add up over processes and become JSON."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from proof.security.canary import CanaryFigures
from proof.security.judge import ACCEPTED, WRITTEN_AGAIN


@dataclass(frozen=True, slots=True)
class Defect:
    """An input that got further than it may, and how to feed it again.

    Attributes:
        target: The way in.
        kind: What was done to the input.
        seed: Of the run.
        number: Of the input.
        what: The promise that is broken, or the exception.
    """

    target: str
    kind: str
    seed: int
    number: int
    what: str

    @property
    def replay(self) -> str:
        """The command that feeds it again."""
        return f"python -m proof.security --target '{self.target}' --seed {self.seed} --number {self.number}"


@dataclass(slots=True)
class Tally:
    """One way in, or a part of its inputs.

    Attributes:
        target: The way in.
        kinds: Inputs by what was done to them.
        outcomes: Inputs by what became of them.
        seconds: Time that the product took.
        slowest_ms: Of one input.
        slowest_number: Which one that was.
        defects: What must not be.
    """

    target: str
    kinds: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    slowest_ms: float = 0.0
    slowest_number: int = -1
    defects: list[Defect] = field(default_factory=list)

    def fed(self, number: int, kind: str, outcome: str, seconds: float) -> None:
        """Count one input."""
        self.kinds[kind] += 1
        self.outcomes[outcome] += 1
        self.seconds += seconds
        if seconds * 1000 > self.slowest_ms:
            self.slowest_ms, self.slowest_number = seconds * 1000, number

    def add(self, other: "Tally") -> None:
        """Count another part's inputs too."""
        self.kinds += other.kinds
        self.outcomes += other.outcomes
        self.seconds += other.seconds
        self.defects += other.defects
        if other.slowest_ms > self.slowest_ms:
            self.slowest_ms, self.slowest_number = other.slowest_ms, other.slowest_number


@dataclass(frozen=True, slots=True)
class SecurityFigures:
    """All of it.

    Attributes:
        seed: Every input is made of it.
        inputs: Hostile inputs.
        by_target: Inputs by the way in.
        by_kind: Inputs by what was done to them.
        refused: Inputs by the code of the error that refused them, or by what else became of them.
        accepted: Inputs that were believed, each of which is safe to believe.
        written_again: Prepared records that were not believed: their batch is written again.
        seconds: From the beginning to the end.
        slowest_ms: Of one input.
        slowest: Which one that was: target and number.
        peak_mib: Most memory that a process of the run held.
        defects: What must not be.
        canary: What the planted secrets showed; None if none was planted.
    """

    seed: int
    inputs: int
    by_target: Mapping[str, int]
    by_kind: Mapping[str, int]
    refused: Mapping[str, int]
    accepted: int
    written_again: int
    seconds: float
    slowest_ms: float
    slowest: str
    peak_mib: int
    defects: tuple[Defect, ...]
    canary: CanaryFigures | None

    @property
    def well(self) -> bool:
        """Nothing was found."""
        leaks = () if self.canary is None else (*self.canary.leaks, *self.canary.unnamed)
        return not self.defects and not leaks

    def to_json(self) -> dict[str, object]:
        return asdict(self) | {"well": self.well, "replay": [defect.replay for defect in self.defects]}


def summed(
    tallies: Iterable[Tally], *, seed: int, seconds: float, peak_mib: int, canary: CanaryFigures | None
) -> SecurityFigures:
    """The figures of a run."""
    parts = list(tallies)
    outcomes = sum((part.outcomes for part in parts), Counter[str]())
    slowest = max(parts, key=lambda part: part.slowest_ms)
    return SecurityFigures(
        seed=seed,
        inputs=outcomes.total(),
        by_target={part.target: part.outcomes.total() for part in parts},
        by_kind=dict(sum((part.kinds for part in parts), Counter[str]()).most_common()),
        refused={word: count for word, count in outcomes.most_common() if word not in (ACCEPTED, WRITTEN_AGAIN)},
        accepted=outcomes[ACCEPTED],
        written_again=outcomes[WRITTEN_AGAIN],
        seconds=round(seconds, 1),
        slowest_ms=round(slowest.slowest_ms, 1),
        slowest=f"{slowest.target} {slowest.slowest_number}",
        peak_mib=peak_mib,
        defects=tuple(defect for part in parts for defect in part.defects),
        canary=canary,
    )
