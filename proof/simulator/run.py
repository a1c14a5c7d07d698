"""Many seeds on all processors, and what they came to."""

import gc
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from itertools import islice
from random import Random
from typing import Any

from proof.simulator.scenario import Scenario, draw
from proof.simulator.simulate import Report, simulate

SEEDS_AT_ONCE = 100
OF_OTHERS = ("append", "replace", "overwrite", "delete")
"""Operations of other writers' commits."""
_COUNTED = ("batches", "rows", "lost", "doubled", "letters", "evolutions", "unknown", "unknown_landed", "orphans")
"""Counts of a report that are added up."""
Progress = Callable[[str], None]
Drawn = Callable[[Random], Scenario]


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed that broke a promise.

    Attributes:
        seed: Replays it: ``python -m proof.simulator --seed``.
        broken: What was broken, a line each.
        story: What happened, a line each.
    """

    seed: int
    broken: tuple[str, ...]
    story: tuple[str, ...]


@dataclass(slots=True)
class Simulated:
    """What a range of seeds came to.

    Attributes:
        first: First seed.
        seeds: How many.
        seconds: Wall time.
        batches: Own batches in the tables at the end.
        foreign_commits: Snapshots of other writers and of compaction.
        rows: Own rows that had to be there.
        lost: Rows of them that were not.
        doubled: Rows that were there too often.
        letters: Rows of them that were put aside.
        evolutions: Commits of batches that changed the schema.
        unknown: Commits whose answer said nothing of what became of them.
        unknown_landed: How many of them were carried out all the same, or later.
        orphans: Data files that nothing refers to, at the end.
        faults: Injected faults by kind.
        done: What operators and others did, by kind.
        outcomes: What became of batches and runs, by kind.
        changes: What became of changes of rows by key.
        failures: Seeds that broke a promise.
    """

    first: int
    seeds: int = 0
    seconds: float = 0.0
    batches: int = 0
    foreign_commits: int = 0
    rows: int = 0
    lost: int = 0
    doubled: int = 0
    letters: int = 0
    evolutions: int = 0
    unknown: int = 0
    unknown_landed: int = 0
    orphans: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    @property
    def well(self) -> bool:
        """No promise was broken, and something was tried."""
        return not self.failures and self.seeds > 0

    @property
    def seeds_per_second(self) -> float:
        """Pace."""
        return self.seeds / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """JSON-able form; `asdict` of the whole would count the counts."""
        found = {part.name: getattr(self, part.name) for part in fields(self)}
        failures = [asdict(failure) for failure in self.failures]
        return {**found, "failures": failures, "seeds_per_second": round(self.seeds_per_second, 1)}

    def together(self, other: "Simulated") -> "Simulated":
        """This range and the one after it."""
        summed = Simulated(self.first)
        for part in fields(Simulated):
            if part.name != "first":
                setattr(summed, part.name, getattr(self, part.name) + getattr(other, part.name))
        return summed

    def add(self, report: Report) -> None:
        """Count one seed in."""
        self.seeds += 1
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) + getattr(report, name))
        self.foreign_commits += sum(report.done[f"foreign {operation}"] for operation in OF_OTHERS)
        self.faults += report.faults
        self.done += report.done
        self.outcomes += report.outcomes
        self.changes += report.changes
        if report.broken:
            self.failures.append(Failure(report.seed, tuple(map(str, report.broken)), report.story))


def run(
    first: int,
    seeds: int,
    seconds: float | None = None,
    progress: Progress = lambda _: None,
    *,
    drawn: Drawn = draw,
    each: Callable[[Report], None] = lambda _: None,
) -> Simulated:
    """Run a range of seeds.

    Args:
        first: First seed.
        seeds: How many, at most.
        seconds: No new seeds are begun after that time; None for no bound.
        progress: Told now and then how far it is.
        drawn: Draws the scenarios: `draw` for streams that append, `draw_changes` for those of changes.
        each: Given every report, in the order in which seeds end.
    """
    result = Simulated(first)
    started = time.monotonic()
    chunks = iter(range(first, first + seeds, SEEDS_AT_ONCE))
    with ProcessPoolExecutor(initializer=_collect_seldom) as pool:
        chunk = partial(_chunk, end=first + seeds, drawn=drawn)
        for reports in _all(pool, chunks, chunk, lambda: _in_time(started, seconds)):
            for report in reports:
                result.add(report)
                each(report)
            result.seconds = time.monotonic() - started
            progress(f"{result.seeds:,} seeds, {result.seeds_per_second:.0f} a second, {len(result.failures)} failed")
    return result


def _all(
    pool: ProcessPoolExecutor, chunks: Iterator[int], chunk: Callable[[int], list[Report]], in_time: Callable[[], bool]
) -> Iterator[list[Report]]:
    """Reports as they come; no more chunks are begun than there are processors, so that time can run out."""
    workers = os.cpu_count() or 1
    waiting = {pool.submit(chunk, start) for start in islice(chunks, workers)}
    while waiting:
        done = next(as_completed(waiting))
        waiting.remove(done)
        if in_time() and (start := next(chunks, None)) is not None:
            waiting.add(pool.submit(chunk, start))
        yield done.result()


def _collect_seldom() -> None:
    """What is there before the first seed stays, and need not be looked through again and again."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def _chunk(start: int, end: int, drawn: Drawn) -> list[Report]:
    return [_small(simulate(seed, drawn)) for seed in range(start, min(start + SEEDS_AT_ONCE, end))]


def _small(report: Report) -> Report:
    """Nobody reads the story of a seed that went well; it need not travel."""
    return report if report.broken else report.without_story()


def _in_time(started: float, seconds: float | None) -> bool:
    return seconds is None or time.monotonic() - started < seconds
