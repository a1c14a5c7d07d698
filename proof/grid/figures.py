"""What the grid found, counted. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from statistics import median, quantiles
from typing import Any

from proof.grid.cells import Cell, all_cells


class Verdict(Enum):
    """How a cell came out."""

    OK = "ok"
    EXPLAINED = "explained"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class CellResult:
    """One cell, done.

    Attributes:
        name: Of the cell.
        point: Its row in the published grid.
        column: Its column.
        verdict: How it came out.
        why: What is broken, or what is missing to run it.
        on_spark: True if real Spark ran it.
        kills: Processes that got a SIGKILL.
        recovery_ms: From the SIGKILL to the next commit, if there was any.
        orphans: Data files left that nothing references.
        log_lines: Lines of the drivers' traces that the model's checker has read.
        seconds: How long it took.
        kind: Of its stream, see `Cell`.
    """

    name: str
    point: str
    column: str
    verdict: Verdict
    why: tuple[str, ...] = ()
    on_spark: bool = False
    kills: int = 0
    recovery_ms: float | None = None
    orphans: int = 0
    log_lines: int = 0
    seconds: float = 0.0
    kind: str = ""

    @classmethod
    def of(cls, cell: Cell, verdict: Verdict, why: Iterable[str] = (), **facts: Any) -> "CellResult":
        """The result of a cell."""
        return cls(cell.name, cell.point, cell.column, verdict, tuple(why), cell.on_spark, kind=cell.kind, **facts)


@dataclass(frozen=True, slots=True)
class RandomKills:
    """SIGKILLs at random moments.

    Attributes:
        drivers: Drivers without Spark that were killed.
        spark_drivers: Real Spark drivers that were killed.
        by_step: How often a driver's last step before its death was this one.
        batches: Batches that were committed all the same.
        recovery_ms: From each SIGKILL to the next commit, without Spark.
        spark_recovery_ms: The same, on real Spark.
        orphans: Data files left that nothing references.
        log_lines: Lines of traces that the model's checker has read.
        broken: What the oracle or the checker says.
    """

    drivers: int = 0
    spark_drivers: int = 0
    by_step: dict[str, int] = field(default_factory=dict)
    batches: int = 0
    recovery_ms: tuple[float, ...] = ()
    spark_recovery_ms: tuple[float, ...] = ()
    orphans: int = 0
    log_lines: int = 0
    broken: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """For the table of all parts."""
        killed = f"{self.drivers + self.spark_drivers:,}, {self.spark_drivers:,} of them on real Spark"
        steps = sorted(self.by_step.items(), key=lambda step: -step[1])
        return (
            ("SIGKILLs at random moments", f"{killed}; {self.batches:,} batches, none lost, doubled or counted wrong")
            if not self.broken
            else ("SIGKILLs at random moments", f"{killed}; {self.batches:,} batches"),
            ("the last step of these drivers", ", ".join(f"{count:,} {step}" for step, count in steps) or "none"),
            ("SIGKILL at random to next commit", Recovery.of(self.recovery_ms).told),
            ("SIGKILL at random to next commit, real Spark", Recovery.of(self.spark_recovery_ms).told),
        )


@dataclass(frozen=True, slots=True)
class Recovery:
    """From SIGKILL to the next commit.

    Attributes:
        count: How many were measured.
        median_ms: Median; None without any.
        p99_ms: 99th percentile; None without any.
    """

    count: int
    median_ms: float | None
    p99_ms: float | None

    @classmethod
    def of(cls, found: Sequence[float]) -> "Recovery":
        """Over these times."""
        if len(found) < 2:
            return cls(len(found), *([round(found[0], 1)] * 2 if found else [None, None]))
        return cls(len(found), round(median(found), 1), round(quantiles(found, n=100, method="inclusive")[98], 1))

    @property
    def told(self) -> str:
        """For a line of the table."""
        if self.median_ms is None or self.p99_ms is None:
            return "not measured"
        return f"median {self.median_ms:,.0f} ms, p99 {self.p99_ms:,.0f} ms, of {self.count:,}"


@dataclass(frozen=True, slots=True)
class GridFigures:
    """All of it.

    Attributes:
        seed: Of the order of cells and of the random kills.
        rest_server: What stood behind the proxy; empty if nothing did.
        whole: True if every cell of the grid was run.
        cells: Cell by cell.
        kills: At random moments.
    """

    seed: int
    rest_server: str
    whole: bool
    cells: tuple[CellResult, ...]
    kills: RandomKills = field(default_factory=RandomKills)

    def of_kind(self, kind: str) -> "GridFigures":
        """Those of the streams of one kind; random kills are of streams that append rows."""
        cells = tuple(cell for cell in self.cells if cell.kind == kind)
        whole = len(cells) == sum(cell.kind == kind for cell in all_cells())
        return replace(self, cells=cells, whole=whole, kills=RandomKills() if kind else self.kills)

    def count(self, verdict: Verdict) -> int:
        """Cells that came out so."""
        return sum(cell.verdict is verdict for cell in self.cells)

    @property
    def faults(self) -> int:
        """Cells that ran, and random kills: one fault each, or two where a driver died as well."""
        ran = [cell for cell in self.cells if cell.verdict is not Verdict.EXPLAINED]
        http_and_death = sum(cell.column.startswith("HTTP") and bool(cell.kills) for cell in ran)
        return len(ran) + http_and_death + self.kills.drivers + self.kills.spark_drivers

    @property
    def kills_by_point(self) -> dict[str, int]:
        """SIGKILLs at named points, and at random moments."""
        found: Counter[str] = Counter()
        for cell in self.cells:
            found[cell.point] += cell.kills
        found["at random"] += self.kills.drivers + self.kills.spark_drivers
        return {point: count for point, count in found.items() if count}

    @property
    def orphans_per_1000_faults(self) -> float:
        """Data files left behind that nothing references."""
        orphans = sum(cell.orphans for cell in self.cells) + self.kills.orphans
        return round(1000 * orphans / self.faults, 1) if self.faults else 0.0

    @property
    def recovery(self) -> Recovery:
        """Of drivers without Spark, whose start costs next to nothing."""
        return Recovery.of([*_times(self.cells, on_spark=False), *self.kills.recovery_ms])

    @property
    def spark_recovery(self) -> Recovery:
        """Of real Spark drivers, whose start is most of it."""
        return Recovery.of([*_times(self.cells, on_spark=True), *self.kills.spark_recovery_ms])

    @property
    def logs_checked(self) -> int:
        """Cells and rounds of random kills whose traces the model's checker has read."""
        return sum(bool(cell.log_lines) for cell in self.cells) + bool(self.kills.log_lines)

    @property
    def broken(self) -> list[str]:
        """Everything that went against the promise."""
        cells = [f"{cell.name}: {'; '.join(cell.why)}" for cell in self.cells if cell.verdict is Verdict.BROKEN]
        return [*cells, *self.kills.broken]

    @property
    def explained(self) -> dict[str, int]:
        """What is missing to run cells, and how many cells that concerns."""
        return dict(Counter(why for cell in self.cells if cell.verdict is Verdict.EXPLAINED for why in cell.why))

    def to_json(self) -> dict[str, Any]:
        """For machines; cells that came out well are only counted."""
        return {
            "seed": self.seed,
            "rest_server": self.rest_server,
            "whole": self.whole,
            "cells": {verdict.value: self.count(verdict) for verdict in Verdict},
            "faults": self.faults,
            "sigkills": sum(self.kills_by_point.values()),
            "sigkills_by_point": self.kills_by_point,
            "random_kills_by_step": self.kills.by_step,
            "recovery": asdict(self.recovery),
            "spark_recovery": asdict(self.spark_recovery),
            "orphans_per_1000_faults": self.orphans_per_1000_faults,
            "logs_checked": self.logs_checked,
            "log_lines_checked": sum(cell.log_lines for cell in self.cells) + self.kills.log_lines,
            "explained": self.explained,
            "broken": self.broken,
        }


def _times(cells: Iterable[CellResult], *, on_spark: bool) -> list[float]:
    return [cell.recovery_ms for cell in cells if cell.on_spark is on_spark and cell.recovery_ms is not None]
