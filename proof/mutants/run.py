"""All mutants before both layers: first where each is seen soonest, then how soon the simulator sees it by chance."""

import itertools
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from proof.mutants import MUTANTS, mutant_named
from proof.mutants.figures import MutantFigures, MutantResult, Start
from proof.mutants.mutant import Mutant
from proof.mutants.scenarios import play, scenario_named
from proof.mutants.simulated import Caught, catch, focused
from proof.mutants.tested import run_tested
from proof.simulator.scenario import draw

STARTS = 5
BOUND = 2_000
BETWEEN_STARTS = 1_000_000
SEEDS_IN_FOCUS = 500
PLAYS_AT_ONCE = 3
"""Drivers that stand still, or wait for an answer, need no processor."""
Progress = Callable[[str], None]
Broken = tuple[str, ...]


def run(
    seconds: float | None = None,
    seed: int = 0,
    progress: Progress = lambda _: None,
    *,
    mutants: Sequence[Mutant] = MUTANTS,
    starts: int = STARTS,
) -> MutantFigures:
    """Put every mutant before the simulator and before real processes.

    Args:
        seconds: No new start is begun after that time, and one under way is not counted; None for all of them.
        seed: First seed of the first start.
        progress: Told now and then how far it is.
        mutants: These only.
        starts: From how many first seeds the simulator looks by chance.
    """
    began = time.monotonic()
    deadline = None if seconds is None else began + seconds
    with ProcessPoolExecutor() as pool:
        in_focus = dict(zip(mutants, pool.map(partial(_in_focus, seed), [one.name for one in mutants]), strict=True))
        sound, unsound = _on_processes(mutants, progress)
        by_chance = _by_chance(pool, mutants, range(starts), seed, deadline, progress)
    results = (
        _result(one, in_focus[one], by_chance[one.name], sound[one.scenario], unsound[one.name]) for one in mutants
    )
    tested = run_tested() if len(mutants) == len(MUTANTS) else ()
    return MutantFigures(seed, time.monotonic() - began, tuple(results), tested)


def _result(mutant: Mutant, focus: Caught | None, starts: Sequence[Start], sound: Broken, bad: Broken) -> MutantResult:
    return MutantResult(
        name=mutant.name,
        breaks=mutant.breaks,
        seen_in=mutant.seen_in,
        in_focus=None if focus is None else focus.seeds,
        simulated="" if focus is None else focus.broken,
        starts=tuple(starts),
        bound=BOUND,
        scenario=mutant.scenario,
        unsound=sound,
        processes=bad,
    )


def _in_focus(seed: int, name: str) -> Caught | None:
    mutant = mutant_named(name)
    return catch(mutant, range(seed, seed + SEEDS_IN_FOCUS), focused(mutant.focus))


def _on_processes(mutants: Sequence[Mutant], progress: Progress) -> tuple[Mapping[str, Broken], Mapping[str, Broken]]:
    """What is broken in each scenario without a mutant, and with each mutant in its own."""
    names = list(dict.fromkeys(mutant.scenario for mutant in mutants))
    plays = [*((name, None) for name in names), *((mutant.scenario, mutant) for mutant in mutants)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(PLAYS_AT_ONCE) as pool:
        played = pool.map(partial(_play, Path(folder)), range(len(plays)), plays)
        broken = []
        for count, found in enumerate(played, 1):
            broken.append(found)
            progress(f"mutants on real processes: {count} of {len(plays)} scenarios played")
    return dict(zip(names, broken, strict=False)), {
        mutant.name: found for mutant, found in zip(mutants, broken[len(names) :], strict=True)
    }


def _play(folder: Path, number: int, what: tuple[str, Mutant | None]) -> Broken:
    name, mutant = what
    return tuple(map(str, play(scenario_named(name), folder / str(number), mutant)))


def _by_chance(
    pool: ProcessPoolExecutor,
    mutants: Sequence[Mutant],
    starts: range,
    seed: int,
    deadline: float | None,
    progress: Progress,
) -> Mapping[str, list[Start]]:
    """Start after start, so that each mutant has as many as the others when time runs out."""
    turns = list(itertools.product((seed + start * BETWEEN_STARTS for start in starts), (one.name for one in mutants)))
    found: dict[str, list[Start]] = defaultdict(list)
    looked = pool.map(partial(_start, deadline), *zip(*turns, strict=True)) if turns else iter(())
    for number, ((_, name), start) in enumerate(zip(turns, looked, strict=True), 1):
        if start is not None:
            found[name].append(start)
        progress(f"simulator: {number} of {len(turns)} searches for a mutant")
    return found


def _start(deadline: float | None, first: int, name: str) -> Start | None:
    """None if time has run out."""
    caught = catch(mutant_named(name), _in_time(range(first, first + BOUND), deadline), draw)
    if caught is None and deadline is not None and time.monotonic() > deadline:
        return None
    return Start(first, None if caught is None else caught.seeds)


def _in_time(seeds: range, deadline: float | None) -> Iterator[int]:
    return itertools.takewhile(lambda _: deadline is None or time.monotonic() < deadline, seeds)
