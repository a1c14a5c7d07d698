"""W7: seconds from a SIGKILL of a Spark driver to the next commit of the one that is started in its place.

The driver is the demo's, the rows are its flights. Its whole process group is killed at once, as a container is, some
moment after its first commit; the next one starts as soon as the last process of it is gone. Before and after
them a bare Spark session starts, with the same settings: what no sink can be faster than.
"""

import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer

import psutil

from benchmarks.oracle import WrongRows
from benchmarks.result import Cell, Goal, Result
from lakesink_catalog.connect.catalog import HOME_VARIABLE
from lakesink_tools.demo.checks import source_checks
from lakesink_tools.demo.evidence import compare, files_as_of
from lakesink_tools.demo.flights import ALL_ROWS, DailyFiles, write_daily_files
from lakesink_tools.demo.place import Place, prepare
from lakesink_tools.demo.process import DRIVER, BatchLine, run_driver

GOAL_SECONDS = 5.0
BARE_STARTS = 2
"""Before the kills, and as many after them."""
_LONGEST_LIFE_SECONDS = 0.25
_COMMITS = frozenset({"committed", "recovered"})
_BARE = """
import sys
from pathlib import Path
from lakesink_tools.demo.session import quiet_session
print(quiet_session("bare", Path(sys.argv[1])).range(1).count(), flush=True)
"""


def measure(folder: Path, say: Callable[[str], None], kills: int = 6) -> Result:
    """Kill and start again, then let a last driver finish, and compare the table with the source."""
    place = prepare(folder)
    os.environ[HOME_VARIABLE] = str(place.lakehouse)  # the oracle opens the catalog of the drivers
    source = write_daily_files(place.home)
    bare = [bare_start(place.home) for _ in range(BARE_STARTS)]
    say(f"W7: a bare session starts in {statistics.median(bare):.1f} s")
    story = Kills(place)
    for number in range(kills + 1):
        story.live_and_die()
        say(f"W7: {number} of {kills} kills")
    finish(place, source)
    bare += [bare_start(place.home) for _ in range(BARE_STARTS)]
    return report(story.seconds, bare)


def bare_start(folder: Path) -> float:
    """Seconds until a Spark session has answered its first trivial query; its Python's start is in it."""
    started = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", _BARE, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as bare:
        assert bare.stdout is not None
        answer = bare.stdout.readline()
        seconds = time.monotonic() - started
    assert answer == b"1\n", answer
    return seconds


@dataclass(slots=True)
class Kills:
    """Drivers that die one after the other.

    Attributes:
        place: Of the demo.
        chance: When they die.
        seconds: From each kill to the next commit.
    """

    place: Place
    chance: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311 - seeded, not secret
    seconds: list[float] = field(default_factory=list)
    _killed_at: float | None = None
    _is_doomed: bool = False

    def live_and_die(self) -> None:
        """Run a driver, one file a batch, until it has committed and is killed."""
        self._is_doomed = False
        run = run_driver(self.place, 1, None, self._batch)
        if not run.was_killed:
            raise RuntimeError(f"The driver was not killed, for its source was used up, or: {run.output_end}")

    def _batch(self, line: BatchLine) -> None:
        if line.event not in _COMMITS or self._is_doomed:
            return
        if self._killed_at is not None:
            self.seconds.append(time.monotonic() - self._killed_at)
        self._is_doomed = True
        Timer(self.chance.uniform(0, _LONGEST_LIFE_SECONDS), self._kill).start()

    def _kill(self) -> None:
        for child in psutil.Process().children():
            if DRIVER in child.cmdline():
                self._killed_at = time.monotonic()
                os.killpg(child.pid, signal.SIGKILL)


def finish(place: Place, source: DailyFiles) -> None:
    """Let a driver take what is left, and compare the table with the source, row by row.

    Raises:
        WrongRows: They differ.
    """
    run = run_driver(place, len(source.rows), None, lambda _: None)
    checks = source_checks(compare(source.csv, ALL_ROWS, files_as_of()))
    if run.exit_code != 0 or not all(check.holds for check in checks):
        raise WrongRows(f"After the kills: {[check for check in checks if not check.holds]} {run.output_end}")


def report(seconds: Sequence[float], bare: Sequence[float]) -> Result:
    """The two side by side, and the goal judged by their medians."""
    beyond = statistics.median(seconds) - statistics.median(bare)
    rows = (_row("from a kill to the next commit", seconds), _row("a bare session's first answer", bare))
    goal = Goal(
        "W7, a commit after a SIGKILL, beyond the start of Spark", GOAL_SECONDS, beyond, at_least=False, unit=" s"
    )
    heads = ("seconds", "times", "median", "least", "most")
    raw = {"recovery": list(seconds), "bare": list(bare)}
    return Result("W7", f"{len(seconds)} drivers killed and started again", heads, rows, (goal,), raw)


def _row(name: str, seconds: Sequence[float]) -> tuple[Cell, ...]:
    figures = statistics.median(seconds), min(seconds), max(seconds)
    return name, len(seconds), *(round(figure, 2) for figure in figures)
