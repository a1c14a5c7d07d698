"""Long histories: what reading commands take, and commits on top, each in a process of its own.

As a program, it commits to a table and prints what that took: ``python -m benchmarks.scale.history TABLE BATCHES``.
PyIceberg's environment variables say where the catalog ``bench`` is.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.audit import COMMANDS, Cost, cost_of, environment_of
from benchmarks.commit_latency import commit_once, fenced
from benchmarks.long_table import make_long_tables
from benchmarks.result import Goal, Result
from benchmarks.scale.panel import Panel
from lakesink_catalog.connect.catalog import connect

KEY = "history"
LENGTHS, SHORT_LENGTHS = (1_000, 10_000, 30_000, 50_000), (500, 1_500)
LOOKS, AUDIT = ("status", "log", "as-of"), "audit --skip-footers"
RUNS, SHORT_RUNS = 3, 1
"""Behind each median; one run of the lengths that no goal judges."""
COMMITS = 21
JUDGED = {30_000: (LOOKS, 1.5, 200), 50_000: ((AUDIT,), 10, 300)}
"""Commands, seconds and MiB by length."""
SECONDS, MEMORY, COMMIT, METADATA = "command, s", "process, MiB", "commit, ms", "metadata file, MiB"
COMMITTING = "commits"
_MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Committed:
    """Commits on top of a history, in a process of their own: milliseconds of each, and the process's memory."""

    milliseconds: Sequence[float]
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class History:
    """What was found at one length.

    Attributes:
        snapshots: The length.
        metadata_bytes: Of its metadata file.
        costs: Runs of each command.
        committed: Commits on top of it.
    """

    snapshots: int
    metadata_bytes: int
    costs: Mapping[str, Sequence[Cost]]
    committed: Committed

    def seconds(self, command: str) -> float:
        """Median of a command's runs."""
        return statistics.median(cost.seconds for cost in self.costs[command])

    def peak_mib(self, command: str) -> float:
        return statistics.median(cost.peak_mib for cost in self.costs[command])

    @property
    def commit_ms(self) -> float:
        """Median of the commits."""
        return statistics.median(self.committed.milliseconds)


def measure(folder: Path, say: Callable[[str], None], *, short: bool = False) -> Result:
    """Make the histories, and look at one after the other."""
    folder.mkdir(parents=True)
    lengths = SHORT_LENGTHS if short else LENGTHS
    properties, environment = environment_of(folder)
    say(f"{KEY}: making {max(lengths):,} snapshots")
    catalog = connect("bench", properties)
    make_long_tables(catalog, {length: f"bench.h{length}" for length in lengths})
    found = []
    for length in lengths:
        table = f"bench.h{length}"
        size = Path(catalog.load_table(table).metadata_location.removeprefix("file://")).stat().st_size
        costs: dict[str, list[Cost]] = {}
        for command in (*LOOKS, AUDIT):
            say(f"{KEY}: {command} of {length:,} snapshots")
            runs = RUNS if length in JUDGED else SHORT_RUNS
            costs[command] = [cost_of(COMMANDS[command], table, environment) for _ in range(runs)]
        say(f"{KEY}: commits to {length:,} snapshots")
        found.append(History(length, size, costs, _committed(table, length, environment)))
    return report(found)


def _committed(table: str, batches: int, environment: Mapping[str, str]) -> Committed:
    command = [sys.executable, "-m", "benchmarks.scale.history", table, str(batches)]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, check=True)
    return Committed(**json.loads(done.stdout))


def report(found: Sequence[History]) -> Result:
    """A row for each length and command."""
    rows = [
        (f"{one.snapshots:,}", what, round(seconds, 2), round(mib), round(one.metadata_bytes / _MIB, 1))
        for one in found
        for what, seconds, mib in [
            *((command, one.seconds(command), one.peak_mib(command)) for command in one.costs),
            ("one commit", one.commit_ms / 1000, one.committed.resident_bytes / _MIB),
        ]
    ]
    commands = list(found[0].costs)
    memory = {command: [(one.snapshots, one.peak_mib(command)) for one in found] for command in commands}
    memory[COMMITTING] = [(one.snapshots, one.committed.resident_bytes / _MIB) for one in found]
    seconds = {command: [(one.snapshots, one.seconds(command)) for one in found] for command in commands}
    panels = [
        Panel("snapshots", SECONDS, seconds),
        Panel("snapshots", MEMORY, memory),
        Panel("snapshots", COMMIT, {"p50": [(one.snapshots, one.commit_ms) for one in found]}),
        Panel("snapshots", METADATA, {"lakesink": [(one.snapshots, one.metadata_bytes / _MIB) for one in found]}),
    ]
    heads = ("snapshots", "command", "seconds", "MiB of its process", "MiB of the metadata file")
    goals = tuple(goal for one in found if one.snapshots in JUDGED for goal in _goals(one))
    return Result(KEY, "reading and committing by the length of the history", heads, tuple(rows), goals, panels)


def _goals(one: History) -> list[Goal]:
    commands, seconds, mib = JUDGED[one.snapshots]
    where = f"{one.snapshots:,} snapshots"
    return [
        goal
        for command in commands
        for goal in (
            Goal(f"{command}, {where}: time", seconds, one.seconds(command), at_least=False, unit=" s"),
            Goal(f"{command}, {where}: memory", mib, one.peak_mib(command), at_least=False, unit=" MiB"),
        )
    ]


def commit(table: str, batches: int) -> Committed:
    """Commit small batches after so many; the first commit, which loads all, does not count."""
    fence = fenced(connect("bench", {}), table)
    _, *times = [commit_once(fence, number) for number in range(batches, batches + COMMITS)]
    return Committed(times, psutil.Process().memory_info().rss)


if __name__ == "__main__":
    print(json.dumps(asdict(commit(sys.argv[1], int(sys.argv[2])))))
