"""The attack: every way in, with inputs from one seed, and the canary."""

import logging
import random
import resource
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from proof.security.canary import CanaryFigures, plant_and_look
from proof.security.commands import Commands
from proof.security.directory import Markers, PartReceipts, PartRecords, Place
from proof.security.figures import Defect, SecurityFigures, Tally, summed
from proof.security.iceberg import Receipts, Records, Scene
from proof.security.judge import ACCEPTED, Target
from proof.security.ledgers import Entries, History
from proof.security.mutation import UNTOUCHED
from proof.security.options import Options
from proof.security.properties import Properties, Values

LONGEST_INPUT_MS = 10_000.0
DEFECT = "defect"
PER_TASK = 20_000
MOST_DEFECTS = 20

_MAKERS: Mapping[str, tuple[float, Callable[[Path], Target]]] = {
    "receipt": (0.44, lambda folder: Receipts(Scene(folder))),
    "prepared record": (0.10, lambda folder: Records(Scene(folder))),
    "receipt of files": (0.22, lambda folder: PartReceipts(Place(folder))),
    "prepared record of files": (0.04, lambda folder: PartRecords(Place(folder))),
    "marker": (0.02, lambda folder: Markers(Place(folder))),
    "ledger entry, whole history": (0.06, lambda folder: Entries(History(folder, expired=False))),
    "ledger entry, expired history": (0.05, lambda folder: Entries(History(folder, expired=True))),
    "options and names": (0.06, lambda _: Options()),
    "table properties": (0.008, Properties),
    "metadata before the commands": (0.0015, Commands),
    "partition values": (0.0005, Values),
}
"""Every way in: its share of the inputs, by what one costs, and what makes it in an empty folder."""

TARGETS = tuple(_MAKERS)
Progress = Callable[[str], None]


def run(
    inputs: int = 1_000_000,
    seed: int = 1,
    progress: Progress | None = None,
    *,
    processes: int = 1,
    canary: bool = True,
    spark: bool = True,
) -> SecurityFigures:
    """Attack every way in, and look for planted secrets.

    Args:
        inputs: How many hostile inputs, all ways in together.
        seed: Each input is made of this, its way in and its number, and of nothing else.
        progress: Is told what is done.
        processes: How many attack at once; with 1, this one does.
        canary: True to plant secrets and look for them.
        spark: True to look for them in real Spark queries too.
    """
    started = time.monotonic()
    tell = progress or (lambda _: None)
    tallies = {name: Tally(name) for name in TARGETS}
    done = 0
    for part in _attacks(_tasks(inputs, seed), processes):
        tallies[part.target].add(part)
        done += part.outcomes.total()
        tell(f"security: {done:,} inputs, {sum(len(tally.defects) for tally in tallies.values())} defects")
    found: CanaryFigures | None = plant_and_look(seed, spark=spark) if canary else None
    seconds = time.monotonic() - started
    return summed(tallies.values(), seed=seed, seconds=seconds, peak_mib=_peak_mib(), canary=found)


def attack(target: str, seed: int, numbers: range, *, most_defects: int = MOST_DEFECTS) -> Tally:
    """Feed some inputs of one way in, in a folder of its own; ends early where there is nothing more to learn."""
    tally = Tally(target)
    with _quiet(), tempfile.TemporaryDirectory(prefix="lakesink-security-") as folder:
        way_in = _MAKERS[target][1](Path(folder))
        for number in numbers:
            _feed(way_in, seed, number, tally)
            if len(tally.defects) >= most_defects:
                break
    return tally


def replayed(target: str, seed: int, number: int) -> tuple[bytes, str]:
    """One input again: its bytes, and what becomes of it."""
    with tempfile.TemporaryDirectory(prefix="lakesink-security-") as folder:
        way_in = _MAKERS[target][1](Path(folder))
        data = way_in.forge(_chance(target, seed, number)).data
        try:
            return data, way_in.feed(data)
        except Exception:  # noqa: BLE001 - shown to who asked for it
            return data, traceback.format_exc()


def _feed(way_in: Target, seed: int, number: int, tally: Tally) -> None:
    forged = way_in.forge(_chance(tally.target, seed, number))
    began = time.perf_counter()
    try:
        outcome, broken = way_in.feed(forged.data), ""
    except Exception as error:  # noqa: BLE001 - any exception but a named one is what is looked for
        outcome, broken = DEFECT, f"{type(error).__name__}: {error}"[:500]
    seconds = time.perf_counter() - began
    if forged.kind == UNTOUCHED and outcome != ACCEPTED:
        broken = broken or f"what is true was refused: {outcome}"
    tally.fed(number, forged.kind, outcome, seconds)
    if seconds * 1000 > LONGEST_INPUT_MS:
        broken = f"{seconds:.0f} s for one input. {broken}"
    if broken:
        tally.defects.append(Defect(tally.target, forged.kind, seed, number, broken))


def _tasks(inputs: int, seed: int) -> Iterator[tuple[str, int, range]]:
    for target, (share, _) in _MAKERS.items():
        count = max(1, round(inputs * share))
        step = max(1, round(PER_TASK * share / 0.2))
        for first in range(0, count, step):
            yield target, seed, range(first, min(first + step, count))


def _attacks(tasks: Iterator[tuple[str, int, range]], processes: int) -> Iterator[Tally]:
    if processes == 1:
        yield from map(_attacked, tasks)
        return
    # Not a ProcessPoolExecutor: of Python 3.11 it waits for ever once a process has done its number of tasks.
    with get_context("spawn").Pool(processes, maxtasksperchild=20) as pool:
        yield from pool.imap_unordered(_attacked, tasks)


def _attacked(task: tuple[str, int, range]) -> Tally:
    return attack(*task)


def _chance(target: str, seed: int, number: int) -> random.Random:
    return random.Random(f"{seed}:{target}:{number}")


@contextmanager
def _quiet() -> Iterator[None]:
    """The product logs each input that it refuses."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _peak_mib() -> int:
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(one).ru_maxrss for one in who) // 1024
