"""Processes that commit to one table, on SQLite and on PostgreSQL."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.committers import Share, catalog_of, run
from benchmarks.result import Goal, Result, quantile
from benchmarks.scale.panel import Panel

KEY = "writers"
KINDS = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
PROCESSES, SHORT_PROCESSES = (1, 2, 4, 8, 16), (1, 8)
COMMITS, SHORT_COMMITS = 256, 64
"""Of all processes together."""
JUDGED_FROM = 8
LEAST_A_SECOND, MOST_P99_SECONDS = 60, 0.5


@dataclass(frozen=True, slots=True)
class Crowd:
    """So many processes on a table of one kind of catalog."""

    kind: str
    shares: Sequence[Share]

    @property
    def processes(self) -> int:
        return len(self.shares)

    @property
    def milliseconds(self) -> list[float]:
        """Of each commit."""
        return [one for share in self.shares for one in share.milliseconds]

    @property
    def rate(self) -> float:
        """Commits a second."""
        seconds = max(share.ended for share in self.shares) - min(share.began for share in self.shares)
        return len(self.milliseconds) / seconds

    @property
    def p99_seconds(self) -> float:
        return quantile(self.milliseconds, 99) / 1000

    @property
    def given_up(self) -> int:
        return sum(share.given_up for share in self.shares)


def measure(folder: Path, say: Callable[[str], None], *, short: bool = False) -> Result:
    """Crowds of all sizes, on one catalog after the other."""
    found = []
    for kind, name in KINDS.items():
        place = folder / kind
        place.mkdir(parents=True)
        with catalog_of(kind, place) as properties:
            for processes in SHORT_PROCESSES if short else PROCESSES:
                say(f"{KEY}: {processes} processes, {name}")
                commits = SHORT_COMMITS if short else COMMITS
                found.append(Crowd(name, run(processes, commits, properties)))
    return report(found)


def report(found: Sequence[Crowd]) -> Result:
    """A row for each crowd; goals from eight processes on."""
    heads = ("catalog", "processes", "commits a second", "p50 ms", "p99 ms", "worst ms", "failed attempts", "given up")
    goals = [goal for crowd in found if crowd.processes >= JUDGED_FROM for goal in _goals(crowd)]
    kinds = list(dict.fromkeys(crowd.kind for crowd in found))
    panels = [
        Panel("processes", "commits a second", {kind: _line(found, kind, "rate") for kind in kinds}),
        Panel("processes", "p99 of a commit, s", {kind: _line(found, kind, "p99_seconds") for kind in kinds}),
    ]
    title = "processes that commit to one table"
    return Result(KEY, title, heads, tuple(map(_row, found)), tuple(goals), panels)


def _goals(crowd: Crowd) -> list[Goal]:
    name = f"{crowd.processes} processes, {crowd.kind}"
    return [
        Goal(f"{name}: commits a second", LEAST_A_SECOND, crowd.rate, at_least=True, unit=""),
        Goal(f"{name}: p99", MOST_P99_SECONDS, crowd.p99_seconds, at_least=False, unit=" s"),
        Goal(f"{name}: given up", 0, crowd.given_up, at_least=False, unit=""),
    ]


def _line(found: Sequence[Crowd], kind: str, name: str) -> list[tuple[float, float]]:
    return [(crowd.processes, getattr(crowd, name)) for crowd in found if crowd.kind == kind]


def _row(crowd: Crowd) -> tuple[str | float | int, ...]:
    times = crowd.milliseconds
    figures = [round(quantile(times, 50)), round(quantile(times, 99)), round(max(times))]
    failed = sum(share.failed for share in crowd.shares)
    return crowd.kind, crowd.processes, round(crowd.rate, 1), *figures, failed, crowd.given_up
