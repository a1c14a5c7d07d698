"""Mutants in the simulator: which seed sees a bug first, among seeds that are clean without it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random

from proof.mutants.mutant import Focus, Mutant
from proof.simulator.scenario import Scenario, draw
from proof.simulator.simulate import simulate

CHANCE_IN_FOCUS = 0.5
FEW_FILES = 2
"""So many small files are compacted."""
Drawn = Callable[[Random], Scenario]


@dataclass(frozen=True, slots=True)
class Caught:
    """A mutant that was seen.

    Attributes:
        seed: Which saw it.
        seeds: How many were needed, this one included.
        broken: The first promise that was broken, in words.
    """

    seed: int
    seeds: int
    broken: str


def catch(mutant: Mutant, seeds: Iterable[int], drawn: Drawn = draw) -> Caught | None:
    """The first of these seeds that breaks a promise with the mutant and none without; None if there is none.

    Args:
        mutant: The bug; it is not there any more when this returns.
        seeds: In order.
        drawn: Draws the scenarios.
    """
    for count, seed in enumerate(seeds, 1):
        with mutant.active():
            broken = simulate(seed, drawn).broken
        if broken and not simulate(seed, drawn).broken:
            return Caught(seed, count, str(broken[0]))
    return None


def focused(focus: Focus) -> Drawn:
    """Draws scenarios with these faults and actions alone."""

    def drawn(random: Random) -> Scenario:
        scenario = draw(random)
        chances = dict.fromkeys(focus.faults, CHANCE_IN_FOCUS)
        branch = focus.branch or scenario.branch
        return replace(
            scenario,
            chances=chances,
            actions=focus.actions,
            end=focus.end or scenario.end,
            branch=branch,
            evolves=False,
            content=replace(focus.content, salt=scenario.content.salt),
            maintenance={"min_input_files": FEW_FILES},
        )

    return drawn
