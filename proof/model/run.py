"""Runs the model: every configuration whole, every rule switched off once, and the ties to checker and code.

`run` is what `make prove` is to call. Four things are found: that nothing breaks in any configuration, and each run
ends; that without a rule something does, by a shortest way; that the drivers of the model take exactly the steps of
`proof.model.steps`; and that the checker accepts what they do, and notices where a driver is without a rule.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from proof.model.checker import check
from proof.model.configurations import (
    CONFIGURATIONS,
    COUNTED,
    LIVENESS,
    SIMULATED,
    SWITCHES,
    Configuration,
    Switch,
)
from proof.model.spin import Defines, Exploration, Limits, explore, find_spin, simulate
from proof.model.steps import STEPS
from proof.model.story import PROMISES, Tracer, steps_taken, told

Progress = Callable[[str], None]

STORIES = 30
STORIES_SHORT = 3
MANY_SECONDS = 10.0
ENDLESS = "the run neither ends nor says why"


@dataclass(frozen=True, slots=True)
class Checked:
    """One configuration, explored.

    Attributes:
        name: Its name.
        what: What is in it.
        liveness: True if it was asked whether the run ends.
        states: Different states.
        depth: Steps of the longest way.
        seconds: Time it took.
        memory_mib: Memory.
        broken: What broke, or why it was not explored whole; empty if nothing did.
        story: The way there.
    """

    name: str
    what: str
    liveness: bool
    states: int
    depth: int
    seconds: float
    memory_mib: float
    broken: str
    story: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SwitchedOff:
    """One rule, switched off.

    Attributes:
        name: The switch.
        rule: The rule.
        instead: What is done then.
        harmless: Why nothing should break; empty if something should.
        breaks: What broke; empty if nothing did in all that was explored.
        states: States until it was found.
        seconds: Time until it was found.
        story: A shortest way there.
        noticed: What the checker says of that story, if anything.
    """

    name: str
    rule: str
    instead: str
    harmless: str
    breaks: str
    states: int
    seconds: float
    story: tuple[str, ...]
    noticed: str

    @property
    def as_expected(self) -> bool:
        """Something breaks, unless it is known why not."""
        return bool(self.breaks) != bool(self.harmless)


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """What the model came to.

    Attributes:
        configurations: Every configuration, explored.
        switches: Every rule, switched off.
        steps: Steps that drivers of the model take.
        strange_steps: Steps that the model takes and the checker's table does not have, or the other way round.
        stories: Stories of the model that the checker was given.
        refused_stories: Those that it refused, and why.
    """

    configurations: tuple[Checked, ...]
    switches: tuple[SwitchedOff, ...]
    steps: int
    strange_steps: tuple[str, ...]
    stories: int
    refused_stories: tuple[str, ...]

    @property
    def states(self) -> int:
        """Explored in all configurations together."""
        return sum(checked.states for checked in self.configurations)

    @property
    def broken(self) -> tuple[str, ...]:
        """What is not as it must be, a line each."""
        found = [f"{checked.name}: {checked.broken}" for checked in self.configurations if checked.broken]
        found += [f"{one.name}: {one.breaks or 'nothing breaks'}" for one in self.switches if not one.as_expected]
        found += [f"only the model or only the checker has the step: {step}" for step in self.strange_steps]
        return (*found, *(f"the checker refuses a story of the model: {story}" for story in self.refused_stories))

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {**asdict(self), "states": self.states, "broken": list(self.broken)}


def run(
    seconds: float | None = None, seed: int = 0, progress: Progress = lambda _: None, *, short: bool = False
) -> ModelFigures:
    """Explore the model.

    Args:
        seconds: Most that one exploration may take; None for as long as it needs.
        seed: First seed of the stories that the checker is given.
        progress: Told what is being done.
        short: True to leave out what takes long.

    Raises:
        CannotCheck: This machine has no spin, or cannot have one.
    """
    spin = find_spin()
    limits = Limits() if seconds is None else Limits(seconds=max(seconds, MANY_SECONDS))
    taken = _taken(spin, progress)
    stories, refused = _simulated(spin, range(seed, seed + (STORIES_SHORT if short else STORIES)), progress)
    return ModelFigures(
        configurations=tuple(_explored(spin, one, limits, progress) for one in _chosen(short=short)),
        switches=tuple(_switched_off(spin, one, limits, progress) for one in SWITCHES if not (short and one.long)),
        steps=len(taken),
        strange_steps=tuple(sorted(taken ^ {step.name for step in STEPS})),
        stories=stories,
        refused_stories=tuple(refused),
    )


def _chosen(*, short: bool) -> Iterator[Configuration]:
    return (one for one in (*CONFIGURATIONS, *LIVENESS) if not (short and one.long))


def _explored(spin: str, one: Configuration, limits: Limits, progress: Progress) -> Checked:
    progress(f"exploring {one.name}")
    found = explore(spin, one.defines, long=one.long, limits=limits)
    return Checked(
        name=one.name,
        what=one.what,
        liveness="LIVENESS" in one.defines,
        states=found.states,
        depth=found.depth,
        seconds=round(found.seconds, 1),
        memory_mib=round(found.memory_mib),
        broken=_what_broke(found)
        or ("" if found.complete else "not explored whole: it took too long or too much memory"),
        story=tuple(told(found.said)),
    )


def _switched_off(spin: str, one: Switch, limits: Limits, progress: Progress) -> SwitchedOff:
    progress(f"without {one.name}")
    found = explore(spin, one.switched, shortest=True, long=one.long, limits=limits)
    noticed = check(Tracer().lines(found.said))
    return SwitchedOff(
        name=one.name,
        rule=one.rule,
        instead=one.instead,
        harmless=one.harmless,
        breaks=_what_broke(found),
        states=found.states,
        seconds=round(found.seconds, 1),
        story=tuple(told(found.said)),
        noticed=noticed[0].what if noticed else "",
    )


def _what_broke(found: Exploration) -> str:
    if not found.error:
        return ""
    words = [line.split() for line in found.said]
    promise = next((int(line[3]) for line in words if line[2] == "broken"), 0)
    return PROMISES[promise] if promise else ENDLESS if "cycle" in found.error else found.error


def _taken(spin: str, progress: Progress) -> set[str]:
    progress("counting the steps that drivers take")
    counted: Sequence[Defines] = [{**defines, "COUNT_STEPS": 1} for defines in COUNTED]
    return {name for defines in counted for name in steps_taken(explore(spin, defines).taken)}


def _simulated(spin: str, seeds: range, progress: Progress) -> tuple[int, list[str]]:
    refused = []
    for one in SIMULATED:
        progress(f"stories of {one.name}")
        for seed in seeds:
            broken = check(Tracer().lines(simulate(spin, one.defines, seed)))
            refused += [f"{one.name}, seed {seed}: {broken[0]}"] if broken else []
    return len(seeds) * len(SIMULATED), refused
