"""Runs cells of the grid, and judges each by the oracle, by its expectation and by the model's checker."""

import itertools
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from proof.grid.cells import Cell, SparkBlow, all_cells
from proof.grid.expect import OF_REPLAYS, REFUSED, Expectation, expected
from proof.grid.figures import CellResult, GridFigures, RandomKills, Verdict
from proof.grid.kills import random_kills
from proof.grid.on_spark import strike_spark
from proof.grid.place import Server, place, server
from proof.grid.story import Story
from proof.grid.strike import strike
from proof.grid.turns import Turns, spread
from proof.model.checker import check, of_streams
from servers.spark_cluster import SparkCluster, spark_cluster

Progress = Callable[[str], None]
KILLS_SHARE = 0.2
WAITING_AT_ONCE = 12
"""Cells whose time goes into waiting for a client to give up."""
MEMORY = Path("/dev/shm")  # noqa: S108 # a private folder is made in it
"""A file system in memory, where there is one: processes die here, power is never lost."""


class Machine:
    """What cells need of the machine: a folder, and servers that start when a cell first asks for them.

    Args:
        folder: Empty.
        stack: Ends the servers.
        modules: Imported by drivers without Spark first, for mutants.
    """

    def __init__(self, folder: Path, stack: ExitStack, modules: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.modules = modules
        self._stack = stack
        self._numbers = itertools.count(1)

    @cached_property
    def rest(self) -> Server:
        """The REST catalog behind the proxies."""
        return self._stack.enter_context(server(self.folder / "rest"))

    @cached_property
    def cluster(self) -> SparkCluster:
        """The Spark cluster."""
        return self._stack.enter_context(spark_cluster(self.folder / "cluster"))

    @property
    def rest_server(self) -> str:
        """What the REST catalog is; empty if no cell has asked for it."""
        return self.rest.kind if "rest" in self.__dict__ else ""

    def run_cell(self, cell: Cell) -> CellResult:
        """One cell; never raises for what happens in it."""
        if cell.unrunnable:
            return CellResult.of(cell, Verdict.EXPLAINED, [cell.unrunnable])
        started = time.monotonic()
        try:
            story = self._story(cell, self.folder / str(next(self._numbers)))
        except Exception as error:  # noqa: BLE001 # a cell that cannot be run is told as broken, and the next one runs
            return CellResult.of(cell, Verdict.BROKEN, [f"{type(error).__name__}: {error}"])
        return _result(cell, story, time.monotonic() - started)

    def _story(self, cell: Cell, folder: Path) -> Story:
        if isinstance(cell.fault, SparkBlow):
            return self._spark_story(cell, cell.fault, folder)
        with place(cell, folder, lambda: self.rest, self.modules) as at:
            return strike(cell, at)

    def _spark_story(self, cell: Cell, blow: SparkBlow, folder: Path) -> Story:
        folder.mkdir()
        try:
            return strike_spark(cell, blow, folder, lambda: self.cluster)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def machine(modules: tuple[str, ...] = ()) -> Iterator[Machine]:
    """A machine in a folder of its own, of which nothing is left."""
    folder = Path(tempfile.mkdtemp(prefix="lakesink-grid-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        with ExitStack() as stack:
            yield Machine(folder, stack, modules)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(slots=True)
class _Budget:
    """Of time; None for no end."""

    seconds: float | None
    started: float = field(default_factory=time.monotonic)

    def is_spent(self, share: float = 1.0) -> bool:
        return self.seconds is not None and time.monotonic() - self.started > self.seconds * share


class _Beside:
    """Runs cells that mostly wait beside the others, some at once."""

    def __init__(self, on: Machine, done: list[CellResult]) -> None:
        self._on, self._done = on, done
        self._pool = ThreadPoolExecutor(WAITING_AT_ONCE)
        self._under_way: set[Future[CellResult]] = set()

    def run(self, cell: Cell) -> None:
        """Begin it, once there is room for one more."""
        if len(self._under_way) == WAITING_AT_ONCE:
            self._collect(FIRST_COMPLETED)
        self._under_way.add(self._pool.submit(self._on.run_cell, cell))

    def end(self) -> None:
        """Wait for all of them."""
        self._collect(ALL_COMPLETED)
        self._pool.shutdown()

    def _collect(self, until: str) -> None:
        ended, self._under_way = wait(self._under_way, return_when=until)
        self._done.extend(one.result() for one in ended)


def run(
    seconds: float | None = None,
    seed: int = 0,
    progress: Progress = lambda _: None,
    *,
    cells: Sequence[Cell] | None = None,
    kills: int = 500,
) -> GridFigures:
    """Run the grid, and kill drivers at random moments.

    Args:
        seconds: About how long; None for all cells and kills.
        seed: Of the order of the cells, and of the moments.
        progress: Told now and then how far it is.
        cells: These only; the whole grid if None.
        kills: How many random SIGKILLs, at most.
    """
    budget = _Budget(seconds)
    chosen = spread(all_cells() if cells is None else cells, seed)
    done: list[CellResult] = []
    with machine() as on:
        turns, beside = Turns.of(chosen), _Beside(on, done)
        while (cell := turns.take()) and not budget.is_spent(1 - (KILLS_SHARE if kills else 0)):
            if cell.mostly_waits:
                beside.run(cell)
            else:
                done.append(on.run_cell(cell))
                turns.took(cell, done[-1].seconds)
            progress(_so_far(done, len(chosen)))
        beside.end()
        struck = random_kills(on.folder, kills, seed, progress, budget.is_spent) if kills else RandomKills()
        return GridFigures(seed, on.rest_server, cells is None and len(done) == len(chosen), tuple(done), struck)


def _so_far(done: Sequence[CellResult], of: int) -> str:
    count = Counter(result.verdict for result in done)
    return f"{len(done):,} of {of:,} cells, {count[Verdict.EXPLAINED]} explained, {count[Verdict.BROKEN]} broken"


def _result(cell: Cell, story: Story, seconds: float) -> CellResult:
    why = [str(broken) for broken in story.broken] + [f"a reader met {failure}" for failure in story.reader_failures]
    why += _ends(expected(cell), story)
    if story.replay is not None:
        why += [f"of the replays, {what}" for what in _ends(OF_REPLAYS, story.replay)]
        why += [] if story.refused == REFUSED else [f"a careful replay ended with {story.refused!r}"]
    why += [f"trace: {broken}" for broken in check(of_streams(story.trace))]
    return CellResult.of(
        cell,
        Verdict.BROKEN if why else Verdict.OK,
        why,
        kills=story.kills,
        recovery_ms=story.recovery_ms,
        orphans=max(story.orphans, 0),
        log_lines=len(story.trace),
        seconds=seconds,
    )


def _ends(wanted: Expectation, story: Story) -> list[str]:
    """Ends that the fault does not explain."""
    wrong = [] if story.struck in wanted.struck else [f"the struck driver ended with {story.struck!r}"]
    wrong += [f"a driver after it ended with {end!r}" for end in story.restarts if end not in wanted.restarted]
    if story.struck is not None and None not in story.restarts:
        wrong.append(f"no driver got through, ends were {story.restarts}")
    return wrong
