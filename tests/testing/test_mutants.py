"""The suite can fail: each of the sinks that are broken on purpose is caught by the check that is there for it."""

import itertools
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlite_sink import SqliteSink

from lakesink.testing import BrokenPromise, Promise, SinkConformance
from lakesink_tools.testing.checks.rivals import RIVALS
from lakesink_tools.testing.points import Phase
from lakesink_tools.testing.stream import Stream
from tests.testing.mutants import MUTANTS, MustRedo, Mutant, Pieces, ShowsRowByRow
from tests.testing.sinks import SOUND
from tests.testing.sinks.staged import StagedSink
from tests.testing.sinks.unsafe import UNSAFE, AsksInTheSameLine

MOST_STEPS = 10
"""So many of some forty in every run of the tests; the long tests try more."""

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
        sink = self.open_sink(target)
        if isinstance(sink, StagedSink):
            return sink.rows()
        with closing(sqlite3.connect(target.folder / "rows.db")) as database:
            return database.execute("SELECT batch, position FROM events").fetchall()


class TestMustRedo(Suite):
    """Sound, and made as the broken ones are; nothing of what it prepares survives a crash."""

    sink = MustRedo
    most_steps = MOST_STEPS


@pytest.mark.soak
class TestSoundSinks(Suite):
    """The whole suite on each sound way to commit."""

    @pytest.fixture(params=[pytest.param(sink, marks=pytest.mark.xdist_group(sink.__name__)) for sink in SOUND])
    def target(self, request: pytest.FixtureRequest, tmp_path: Path) -> Place:
        return Place.make(tmp_path, request.param)


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
        stream = stream_into(suite, target)
        wanted = {"target": target} if "target" in check.__wrapped__.__code__.co_varnames else {}
        try:
            check(stream=stream, **wanted, **arguments)
        except BrokenPromise as broken:
            yield broken


def stream_into(suite: Suite, target: Place) -> Stream:
    return Stream(partial(suite.open_sink, target), partial(suite.read_rows, target))


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*set most_steps")
@pytest.mark.parametrize("sink", SOUND, ids=lambda sink: sink.__name__)
def test_a_sound_sink_commits_each_batch_once_beside_a_rival_at_any_step(
    sink: type[SqliteSink], tmp_path: Path
) -> None:
    suite = Suite()
    suite.most_steps = MOST_STEPS  # type: ignore[misc] # this one suite's
    for phase in RIVALS:
        target = Place.make(tmp_path / phase.value, sink)
        suite.test_a_rival_commits_before_every_step(stream_into(suite, target), phase)


@pytest.mark.parametrize("sink", [*UNSAFE, AsksInTheSameLine], ids=lambda sink: sink.__name__)
@pytest.mark.soak
def test_an_unsafe_sink_is_caught_by_name_and_by_the_step_where_the_rival_came(
    sink: type[SqliteSink], tmp_path: Path
) -> None:
    suite = Suite()
    with pytest.raises(BrokenPromise) as broken:
        suite.test_a_rival_commits_before_every_step(stream_into(suite, Place.make(tmp_path, sink)), Phase.COMMIT)
    assert broken.value.promise is Promise.RIVAL
    assert re.search(r"broken promise RIVAL.*\n.* before step \d+ \(\w+\.py:\d+.*\) of commit: ", str(broken.value))


def test_the_suite_says_how_many_steps_it_tries_and_warns_when_it_leaves_some_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = Suite()
    suite.most_steps = 3  # type: ignore[misc] # this one suite's
    with pytest.warns(UserWarning, match="3 of them are tried: set most_steps to try more"):
        suite.test_a_rival_commits_before_every_step(stream_into(suite, Place.make(tmp_path, Pieces)), Phase.PRE_COMMIT)
    assert re.search(r"pre-commit takes \d+ steps at \d+ places; 3 steps are tried", capsys.readouterr().out)


@pytest.mark.filterwarnings("ignore:.*set most_steps")
def test_a_reader_looks_in_the_middle_of_a_loop_too_when_it_cannot_look_everywhere(tmp_path: Path) -> None:
    suite = Suite()
    suite.most_steps = MOST_STEPS  # type: ignore[misc] # this one suite's
    stream = stream_into(suite, Place.make(tmp_path, ShowsRowByRow))
    with pytest.raises(BrokenPromise) as broken:
        suite.test_readers_see_all_or_nothing_at_every_line_of_commit(stream)
    assert broken.value.promise is Promise.WHOLE


def _mutant(mutant: Mutant) -> Any:
    """Those that start processes are long."""
    name = f"{mutant.sink.__name__}-{mutant.check}"
    long = mutant.check in {"test_a_driver_is_killed_at_every_point", "test_two_drivers_run_the_same_batches_at_once"}
    return pytest.param(mutant, id=name, marks=pytest.mark.soak if long else ())


@pytest.mark.parametrize("mutant", [*map(_mutant, MUTANTS)])
def test_a_broken_sink_is_caught_by_its_check(mutant: Mutant, tmp_path: Path) -> None:
    broken = next(broken_by(mutant, tmp_path), None)
    assert broken is not None, "nobody noticed"
    assert broken.promise is mutant.promise
    assert f"docs/use/custom-sinks.md#{mutant.promise.anchor}" in str(broken)
    assert f"lakesink.two_phase.{mutant.promise.seam}" in str(broken)
    print(broken)


def test_every_check_catches_somebody() -> None:
    assert {mutant.check for mutant in MUTANTS} == CHECKS
