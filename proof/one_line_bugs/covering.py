"""Which fast tests run which line, and how long each takes: measured once, and kept in `build`.

The figures are for lines of a source as it was. If the source has changed, an unchanged line keeps its tests, and a new
line has those of the line before it. So a later commit measures only the test files that changed.
"""

import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path
from typing import Any

import coverage
import pytest

from proof.one_line_bugs.draw import Bug
from proof.one_line_bugs.fast_tests import FILES, FOLDERS, ROOT, function_of, run_pytest
from proof.one_line_bugs.forks import Job, in_forks

KEPT = ROOT / "build" / "one-line-bugs" / "covering.json"
LONGEST_SECONDS = 3600
FILES_AT_ONCE = 8
Lines = dict[int, frozenset[str]]


@dataclass
class Covering:
    """Which tests run which line.

    Attributes:
        costs: Processor seconds of each test that passes.
        digests: Of the measured test files.
        sources: The sources that were measured.
        lines: Tests by file and line.
    """

    costs: dict[str, float] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    lines: dict[str, Lines] = field(default_factory=dict)

    def tests_of(self, bug: Bug) -> dict[str, float]:
        """The tests that run the statement, with their costs: first those that are cheap and run few other lines.

        A statement that only an import runs can change any test: the tests that run other lines of the file come first.
        """
        lines = self.lines.get(bug.file, {})
        first, last = bug.lines
        found = [tests for line, tests in lines.items() if bug.at_import or first <= line <= last]
        near = frozenset[str]().union(*found) & self.costs.keys()
        tests = self.costs.keys() if bug.at_import else near
        return {
            test: self.costs[test] for test in sorted(tests, key=lambda test: (test not in near, *self._order(test)))
        }

    def _order(self, test: str) -> tuple[float, str]:
        return self.costs[test] * self._breadths[test], test

    @cached_property
    def _breadths(self) -> Counter[str]:
        """How many lines each test runs. A test of a function runs few; one of a whole batch sees a bug no sooner."""
        return Counter(test for own in self.lines.values() for tests in own.values() for test in tests)

    def carry_over(self, sources: Mapping[str, str]) -> None:
        """Bring the lines up to date with the sources."""
        for file, source in sources.items():
            if (old := self.sources.get(file)) != source:
                self.lines[file] = _carried(self.lines.get(file, {}), (old or "").splitlines(), source.splitlines())
        self.sources = dict(sources)

    def forget(self, test_files: set[str]) -> None:
        """Leave out the tests of these files."""
        self.digests = {file: digest for file, digest in self.digests.items() if file not in test_files}
        self.costs = {test: cost for test, cost in self.costs.items() if test.partition("::")[0] in self.digests}
        known = self.costs.keys()
        self.lines = {file: {line: own & known for line, own in lines.items()} for file, lines in self.lines.items()}

    def add(self, measured: Mapping[str, Any]) -> None:
        """Add the figures of one run."""
        self.costs |= measured["costs"]
        for file, lines in measured["lines"].items():
            own = self.lines.setdefault(file, {})
            for line, tests in lines.items():
                own[int(line)] = own.get(int(line), frozenset()) | frozenset(tests)

    def to_json(self) -> dict[str, Any]:
        """JSON-able form, with a number for each test."""
        names = sorted(self.costs)
        number = {name: at for at, name in enumerate(names)}
        lines = {
            file: {line: [number[test] for test in tests if test in number] for line, tests in own.items()}
            for file, own in self.lines.items()
        }
        costs = [self.costs[name] for name in names]
        return {"tests": names, "costs": costs, "digests": self.digests, "sources": self.sources, "lines": lines}


def covering(sources: Mapping[str, str], scratch: Path, at_once: int, say: Callable[[str], None]) -> Covering:
    """Measure what is new, and keep it."""
    known = _kept()
    known.carry_over(sources)
    digests = {file: _digest(ROOT / file) for file in sorted(_test_files())}
    new = {file for file, digest in digests.items() if known.digests.get(file) != digest}
    known.forget(new | (known.digests.keys() - digests.keys()))
    ordered = sorted(new)
    parts = {f"part-{at}": ordered[at : at + FILES_AT_ONCE] for at in range(0, len(ordered), FILES_AT_ONCE)}
    jobs = {name: _job(files, sources, scratch / name) for name, files in parts.items()}
    for ended in in_forks(jobs, at_once):
        figures = _figures(scratch / ended.name)
        if not figures.exists():
            sys.exit(f"No tests could be measured:\n{jobs[ended.name].output.read_text()}")
        measured = json.loads(figures.read_text())
        files = parts[ended.name]
        say(f"measured {', '.join(files)}: {ended.cpu:.0f} CPU s")
        for test in measured["failed"]:
            say(f"kills no bug, because it fails without one: {test}")
        known.add(measured)
        known.digests |= {file: digests[file] for file in files}
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        KEPT.write_text(json.dumps(known.to_json()))
    return known


def _kept() -> Covering:
    if not KEPT.exists():
        return Covering()
    kept = json.loads(KEPT.read_text())
    names = kept["tests"]
    lines = {
        file: {int(line): frozenset(names[test] for test in tests) for line, tests in own.items()}
        for file, own in kept["lines"].items()
    }
    return Covering(dict(zip(names, kept["costs"], strict=True)), kept["digests"], kept["sources"], lines)


def _carried(lines: Lines, old: list[str], new: list[str]) -> Lines:
    found: Lines = {}
    for there, here, size in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        before = found.get(max(found, default=0), frozenset[str]())
        found |= dict.fromkeys(range(max(found, default=0) + 1, here + 1), before)
        found |= {here + at: lines.get(there + at, frozenset()) for at in range(1, size + 1)}
    return {line: tests for line, tests in found.items() if tests}


def _test_files() -> Iterator[str]:
    yield from (f"tests/{name}" for name in FILES)
    for folder in FOLDERS:
        for path in (ROOT / "tests" / folder).rglob("test_*.py"):
            yield str(path.relative_to(ROOT))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _figures(folder: Path) -> Path:
    return folder / "figures.json"


def _job(files: Sequence[str], sources: Iterable[str], folder: Path) -> Job:
    folder.mkdir()
    product = [str(ROOT / file) for file in sources]

    def run() -> int:
        measure = Measure(coverage.Coverage(data_file=None, config_file=False, include=product))
        measure.coverage.start()
        code = run_pytest(ROOT, files, folder, [measure])
        measure.coverage.stop()
        if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
            _figures(folder).write_text(json.dumps(measure.figures()))
        return code

    return Job(run, folder / "output", LONGEST_SECONDS)


@dataclass(slots=True, eq=False)  # pytest keeps plugins in sets
class Measure:
    """Measures each test: its processor time, and its lines."""

    coverage: coverage.Coverage
    costs: dict[str, float] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        test, begun = function_of(item.nodeid), time.process_time()
        self.coverage.switch_context(test)
        try:
            return (yield)
        finally:
            self.coverage.switch_context("")
            self.costs[test] = self.costs.get(test, 0) + time.process_time() - begun

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(function_of(report.nodeid))

    def figures(self) -> dict[str, Any]:
        """The tests that passed, the lines of all tests, and the tests that failed."""
        data = self.coverage.get_data()
        lines = {
            str(Path(file).relative_to(ROOT)): {
                line: [test for test in tests if test] for line, tests in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        costs = {test: round(cost, 4) for test, cost in self.costs.items() if test not in self.failed}
        return {"costs": costs, "lines": lines, "failed": sorted(self.failed)}
