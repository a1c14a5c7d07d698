"""The suite can fail: each of the sinks that are broken on purpose is caught by the check that is there for it."""

import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlite_sink import SqliteSink

from lakesink.testing import BrokenPromise, SinkConformance
from lakesink.testing.stream import Stream
from tests.testing.mutants import MUTANTS, MustRedo, Mutant, Pieces

CHECKS = {name for name in dir(SinkConformance) if name.startswith("test_")}


@dataclass(frozen=True)
class Place:
    """A table of its own, and the sink that writes to it: whole, so that it travels to other processes."""

    folder: Path
    sink: type[SqliteSink]

    @classmethod
    def make(cls, folder: Path, sink: type[SqliteSink]) -> "Place":
        folder.mkdir(exist_ok=True)
        with closing(sqlite3.connect(folder / "rows.db")) as database:
            database.execute("CREATE TABLE events (batch INTEGER, position INTEGER)")
        return cls(folder, sink)


class Suite(SinkConformance):
    sink: type[SqliteSink] = Pieces
    stepped_packages = ("tests", "sqlite_sink")

    @pytest.fixture
    def target(self, tmp_path: Path) -> Place:
        return Place.make(tmp_path, self.sink)

    def open_sink(self, target: Place) -> SqliteSink:
        return target.sink(target.folder / "rows.db", "events", "events", target.folder / "staging")

    def read_rows(self, target: Place) -> list[tuple[int, int]]:
        with closing(sqlite3.connect(target.folder / "rows.db")) as database:
            return database.execute("SELECT batch, position FROM events").fetchall()


class TestMustRedo(Suite):
    """Sound, and made as the broken ones are; nothing of what it prepares survives a crash."""

    sink = MustRedo


def runs_of(check: Any) -> Iterator[dict[str, Any]]:
    """What pytest would call a check with: every combination of its parameters."""
    marks = [mark for mark in getattr(check, "pytestmark", []) if mark.name == "parametrize"]
    values = [[(mark.args[0], value) for value in mark.args[1]] for mark in marks]
    yield from map(dict, itertools.product(*values))


def broken_by(mutant: Mutant, folder: Path) -> Iterator[BrokenPromise]:
    """What the mutant's check finds, run by run."""
    suite = Suite()
    suite.failpoints = mutant.failpoints  # type: ignore[misc] # this one suite's
    check = getattr(suite, mutant.check)
    for number, arguments in enumerate(runs_of(check)):
        target = Place.make(folder / str(number), mutant.sink)
        stream = Stream(partial(suite.open_sink, target), partial(suite.read_rows, target))
        wanted = {"target": target} if "target" in check.__wrapped__.__code__.co_varnames else {}
        try:
            check(stream=stream, **wanted, **arguments)
        except BrokenPromise as broken:
            yield broken


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.sink.__name__}-{mutant.check}")
def test_a_broken_sink_is_caught_by_its_check(mutant: Mutant, tmp_path: Path) -> None:
    broken = next(broken_by(mutant, tmp_path), None)
    assert broken is not None, "nobody noticed"
    assert broken.promise is mutant.promise
    assert f"docs/custom-sinks.md#{mutant.promise.anchor}" in str(broken)
    assert f"lakesink.two_phase.{mutant.promise.seam}" in str(broken)
    print(broken)


def test_every_check_catches_somebody() -> None:
    assert {mutant.check for mutant in MUTANTS} == CHECKS
