"""The fast tests in this process: those that need neither Spark nor a driver."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis
import pytest

from proof.one_line_bugs.forks import limit_cpu

ROOT = Path(__file__).parents[2]
FAST = "not (soak or nightly or interop or site or spark or driver or page)"
FOLDERS = (
    "audit",
    "catalog",
    "certify",
    "cli",
    "decode",
    "doctor",
    "engines",
    "faults",
    "files",
    "kafka_out",
    "locate",
    "protocol",
    "read",
    "testing",
    "upkeep",
    "upsert",
    "writer",
)
FILES = ("test_change_plan.py",)
"""Tests of several rooms, beside the folders."""
QUICK = tuple((ROOT / "tests/quick.txt").read_text().split())
"""Where tests of the tier "quick" are, those that see most mistakes in a second; all others are of the tier "tests"."""

LEAST_SECONDS, TIMES = 10, 10
"""A test has ten times its usual processor time, and never less than ten seconds."""


def tier(test: str) -> str:
    """The tier of a test."""
    return "quick" if test.startswith(QUICK) else "tests"


def function_of(node: str) -> str:
    """The test function of a case: its name without parameters."""
    return node.partition("[")[0]


def run_pytest(root: Path, files: Iterable[str], scratch: Path, plugins: Sequence[object], *options: str) -> int:
    """Pytest on these files, without a trace in the working tree."""
    os.chdir(root)
    off = ("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov")
    own = ("-m", FAST, "--basetemp", str(scratch / "tmp"), "--tb=short", "--no-header", "-W", "ignore")
    return int(pytest.main([*off, *own, *options, *files], [*plugins, FirstFailure()]))


class FirstFailure:
    """Does not look for the smallest example of a failure."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("first failure", hypothesis.settings.default, phases=phases)
        hypothesis.settings.load_profile("first failure")


@dataclass(slots=True, eq=False)  # pytest keeps plugins in sets
class InOrder:
    """Runs some tests in their order for a while, and writes the name of each before it runs."""

    costs: Mapping[str, float]
    seconds: float
    begun: Path
    failed: set[str] = field(default_factory=set)
    _last: str = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if function_of(item.nodeid) in self.costs]
        order = {test: at for at, test in enumerate(self.costs)}
        items.sort(key=lambda item: order[function_of(item.nodeid)])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        if (test := function_of(item.nodeid)) == self._last:
            return
        if time.process_time() > self.seconds:
            pytest.exit("the time is over", returncode=0)
        limit_cpu(max(LEAST_SECONDS, TIMES * self.costs[test]))
        self._last = test
        with self.begun.open("a") as file:
            file.write(f"{test}\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(function_of(report.nodeid))
