"""Streams of several processes into one table: each row is there once, whoever dies or stands still in its turn."""

import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from proof.oracle import Promise
from proof.processes.evidence import judge
from proof.processes.harness import Stream

SINKS = 6


def crowd(root: Path, batches: int = 4, modules: tuple[str, ...] = ()) -> list[Stream]:
    """Streams into one table, and all of its rows are their own. The first one has made the table."""
    first = Stream(root / "sink-0", batches=batches, sink_id="sink-0", modules=modules)
    assert replace(first, batches=1).run().code is None
    others = [replace(first, root=root / f"sink-{n}", sink_id=f"sink-{n}") for n in range(1, SINKS)]
    return [first, *(replace(one, catalog=first.properties) for one in others)]


def check(streams: list[Stream]) -> None:
    """Rows of all streams are alike: each is there once from every stream."""
    other_rows = sum((stream.keys() for stream in streams[1:]), Counter[tuple[int, int]]())
    broken = judge(streams[0], other_rows)
    assert [one for one in broken if one.promise is not Promise.NO_ROW_IS_DOUBLED] == []
    table = streams[0].load()
    assert table is not None
    found = Counter(zip(*table.scan().to_arrow().to_pydict().values(), strict=True))
    assert found == sum((stream.keys() for stream in streams), Counter())
    assert len(table.metadata.snapshots) == sum(stream.batches for stream in streams)


def lost_races(streams: list[Stream]) -> int:
    return sum(stream.log.read_text().count("LostRace") for stream in streams)


def test_many_processes_write_every_row_once_and_lose_no_race(tmp_path: Path) -> None:
    streams = crowd(tmp_path)
    with ExitStack() as running:
        drivers = [running.enter_context(stream.driver()) for stream in streams]
        assert [driver.wait() for driver in drivers] == [0] * SINKS
    check(streams)
    assert lost_races(streams) == 0


@pytest.mark.parametrize("place", ["before-call", "after-call"])
def test_a_driver_killed_in_its_turn_holds_nobody_up(tmp_path: Path, place: str) -> None:
    streams = crowd(tmp_path)
    with ExitStack() as running:
        doomed = running.enter_context(streams[0].driver(f"{place}@2=stop"))
        assert doomed.wait_until_stopped()
        drivers = [running.enter_context(stream.driver()) for stream in streams[1:]]
        time.sleep(0.5)  # some wait for the turn by now
        doomed.kill()
        assert [driver.wait() for driver in drivers] == [0] * (SINKS - 1)
    assert streams[0].run().code is None
    check(streams)
    assert all("lakesink.turn.passed-over" not in stream.log.read_text() for stream in streams)


def test_a_driver_that_stands_still_in_its_turn_is_passed_over(tmp_path: Path) -> None:
    streams = crowd(tmp_path, modules=("proof.processes.short_turns",))
    with ExitStack() as running:
        still = running.enter_context(streams[0].driver("before-call@2=stop"))
        assert still.wait_until_stopped()
        drivers = [running.enter_context(stream.driver()) for stream in streams[1:]]
        assert [driver.wait() for driver in drivers] == [0] * (SINKS - 1)
        assert still.go_on() == 0
    check(streams)
    assert all("lakesink.turn.passed-over" in stream.log.read_text() for stream in streams[1:])
