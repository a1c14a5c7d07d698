"""Runs the tests of each bug until one fails, each bug in a process of its own."""

import json
import signal
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from proof.one_line_bugs.covering import Covering
from proof.one_line_bugs.draw import Bug
from proof.one_line_bugs.fast_tests import ROOT, TIMES, InOrder, run_pytest, tier
from proof.one_line_bugs.forks import CRASHED, Ended, Job, in_forks
from proof.one_line_bugs.put_in import put_in

LEAST_WALL_SECONDS = 60
OUT_OF_TIME = (-signal.SIGXCPU, -signal.SIGKILL)
IMPORT = "import"
NO_ANSWER = (CRASHED, pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one bug.

    Attributes:
        bug: The bug.
        killer: The test that failed, or `IMPORT`; empty if all passed.
        timed_out: The test did not end in its time.
        ran: How many tests ran.
        covering: How many tests run the statement.
        cpu: Seconds of processor time.
        wall: Seconds.
    """

    bug: Bug
    killer: str = ""
    timed_out: bool = False
    ran: int = 0
    covering: int = 0
    cpu: float = 0
    wall: float = 0

    @property
    def tier(self) -> str:
        """The tier of the killer."""
        return "" if not self.killer else "quick" if self.killer == IMPORT else tier(self.killer)

    def __str__(self) -> str:
        """One line of the progress."""
        killed = f"killed by {self.killer}{' (out of time)' if self.timed_out else ''}"
        return f"{self.bug.id}: {killed if self.killer else 'survived'}, {self.ran} tests, {self.cpu:.1f} CPU s"


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs tests against bugs.

    Attributes:
        covering: Which tests run which line.
        scratch: An empty folder.
        seconds: Processor seconds of tests for a bug; the last test may end later.
        at_once: Processes at a time.
        root: The folder of the sources and the tests.
    """

    covering: Covering
    scratch: Path
    seconds: float
    at_once: int = 2
    root: Path = ROOT

    def run(self, bugs: Iterable[Bug]) -> Iterator[Result]:
        """Run the tests of each bug."""
        named = {f"bug-{number}": bug for number, bug in enumerate(bugs)}
        costs = {name: self.covering.tests_of(bug) for name, bug in named.items()}
        jobs = {name: self._with_bug(name, bug, costs[name]) for name, bug in named.items() if costs[name]}
        yield from (Result(bug) for name, bug in named.items() if not costs[name])
        for ended in in_forks(jobs, self.at_once):
            yield _result(ended, named[ended.name], self.scratch / ended.name, len(costs[ended.name]))

    def failing(self, tests: Iterable[str]) -> list[str]:
        """Those of the tests that fail without a bug."""
        costs = {test: self.covering.costs[test] for test in tests}
        folder = self.scratch / "sound"
        folder.mkdir()
        failed = folder / "failed"

        def job() -> int:
            in_order = InOrder(costs, float("inf"), folder / "begun")
            code = run_pytest(self.root, _files(costs), folder, [in_order])
            failed.write_text(json.dumps(sorted(in_order.failed)))
            return code

        list(in_forks({"sound": Job(job, folder / "output", _wall(sum(costs.values())))} if costs else {}, 1))
        return json.loads(failed.read_text()) if failed.exists() else sorted(costs)

    def _with_bug(self, name: str, bug: Bug, costs: Mapping[str, float]) -> Job:
        folder = self.scratch / name
        folder.mkdir()

        def job() -> int:
            put_in(bug, self.root)
            return run_pytest(self.root, _files(costs), folder, [InOrder(costs, self.seconds, folder / "begun")], "-x")

        return Job(job, folder / "output", _wall(min(self.seconds, sum(costs.values()))))


def _wall(cpu: float) -> float:
    return LEAST_WALL_SECONDS + TIMES * cpu


def _files(costs: Mapping[str, float]) -> list[str]:
    return sorted({test.partition("::")[0] for test in costs})


def _result(ended: Ended, bug: Bug, folder: Path, covering: int) -> Result:
    begun = (folder / "begun").read_text().splitlines() if (folder / "begun").exists() else []
    if ended.code in NO_ANSWER:
        raise RuntimeError(f"{bug.id} could not be tried:\n{(folder / 'output').read_text()}")
    killer = "" if ended.code == pytest.ExitCode.OK else begun[-1] if begun else IMPORT
    return Result(
        bug,
        killer,
        timed_out=ended.code in OUT_OF_TIME,
        ran=len(begun),
        covering=covering,
        cpu=ended.cpu,
        wall=ended.wall,
    )
