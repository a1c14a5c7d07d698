"""Plays sinks, two at a time, and gathers what came of their cells."""

import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lakesink
from proof.drivers import session
from proof.guarantees.cells import KINDS, Blow, CellResult, Source
from proof.guarantees.play import KillMissed, Plan, play
from proof.provenance import commit
from servers.missing import Missing

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Guarantees:
    """What came of the cells.

    Attributes:
        cells: In the order of the table.
        not_run: Cells that did not come about, and why.
        versions: Of what was run.
        seconds: How long it all took.
    """

    cells: tuple[CellResult, ...]
    not_run: tuple[str, ...]
    versions: Mapping[str, str]
    seconds: float

    @property
    def broken(self) -> tuple[str, ...]:
        """Where what was seen is not what was promised, and it is not known why."""
        return tuple(f"{cell.sink}, {cell.of[1].value}: {cell.broken}" for cell in self.cells if cell.broken)

    @property
    def kills(self) -> int:
        """Streams that were killed."""
        return sum(len(cell.blows) for cell in self.cells)

    @property
    def drivers(self) -> int:
        """Drivers that were killed; the streams of a sink share theirs."""
        return sum({cell.sink: len(cell.blows) for cell in self.cells}.values())

    def of(self, cell: tuple[str, Source]) -> CellResult | None:
        """What came of one cell; None if it was not played."""
        return next((result for result in self.cells if result.of == cell), None)

    def together(self, earlier: "Guarantees") -> "Guarantees":
        """These cells, and of an earlier run those that were not played now."""
        known = {cell.of: cell for cell in (*earlier.cells, *self.cells)}
        ordered = [(sink, source) for sink in KINDS for source in Source]
        return replace(self, cells=tuple(known[cell] for cell in ordered if cell in known))

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        cells = [
            {**asdict(cell), "promised": cell.promised.value, "measured": cell.measured.value} for cell in self.cells
        ]
        return {**asdict(self), "cells": cells, "broken": self.broken, "kills": self.kills}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "Guarantees":
        """What `to_json` wrote."""
        return cls(
            tuple(_cell(cell) for cell in told["cells"]), tuple(told["not_run"]), told["versions"], told["seconds"]
        )


def run(progress: Progress, plans: Sequence[Plan]) -> Guarantees:
    """Play sinks.

    Args:
        progress: Told what is played; called from several threads.
        plans: What is to happen to each.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lakesink-guarantees-") as made:
        folder = Path(made)
        spark = session("local[2]", (), {}, folder)

        def one(plan: Plan) -> list[CellResult] | str:
            progress(f"{KINDS[plan.sink].title}: {len(plan.points)} drivers are killed")
            try:
                return play(plan, spark, folder)
            except KillMissed as missed:
                return str(missed)
            except Missing as missing:
                return f"{plan.sink}: {missing}"

        try:
            with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
                ended = list(pool.map(one, plans))
        finally:
            spark.stop()
    results = tuple(cell for end in ended if not isinstance(end, str) for cell in end)
    not_run = tuple(end for end in ended if isinstance(end, str))
    return Guarantees(results, not_run, versions(), round(time.monotonic() - started, 1))


def versions() -> dict[str, str]:
    """Of what was run."""
    return {
        "lakesink": lakesink.__version__,
        "pyspark": version("pyspark"),
        "pyiceberg": version("pyiceberg"),
        "python": platform.python_version(),
        "commit": commit("lakesink", "catalog", "protocol", "examples", "proof"),
    }


def _cell(told: Mapping[str, Any]) -> CellResult:
    own = {name: value for name, value in told.items() if name not in {"promised", "measured"}}
    return CellResult(**{**own, "blows": tuple(Blow(**blow) for blow in own["blows"])})
