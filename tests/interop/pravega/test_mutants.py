"""Sinks of Pravega that are broken on purpose: a check of the suite, or of this room, catches each."""

import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakesink import LakesinkError
from lakesink.testing import BrokenPromise, SinkConformance
from lakesink_tools.testing.checks.processes import ended, start
from lakesink_tools.testing.points import Phase, Point
from lakesink_tools.testing.stream import Stream
from servers.pravega import PravegaServer

pytest.importorskip("pravega_client", reason="python -m servers.fetch pravega-client; Python 3.11 on Linux only")

import pravega_transaction
from pravega_ledger import Elected, Ledger
from pravega_sink import PravegaSink
from pravega_staging import EVENTS

from tests.interop.pravega.mutants import (
    MUTANTS,
    BelievesThatAnOpenTransactionIsWhole,
    Mutant,
    TakesAbortedForSuccess,
    TakesForgottenForSuccess,
)
from tests.interop.pravega.place import Place
from tests.interop.pravega.test_conformance import MODULES

pytestmark = [pytest.mark.interop, pytest.mark.nightly, pytest.mark.filterwarnings("ignore:.*set most_steps")]


class Suite(SinkConformance):
    stepped_packages = ("tests", *MODULES)
    most_steps = 8

    def __init__(self, kind: type[PravegaSink]) -> None:
        self.kind = kind

    def open_sink(self, target: Place) -> PravegaSink:
        return target.sink(self.kind)

    def read_rows(self, target: Place) -> list[tuple[int, int]]:
        return target.rows()


@pytest.fixture
def place(server: PravegaServer, tmp_path: Path) -> Place:
    return Place.make(server.controller, tmp_path)


def stream_into(place: Place, kind: type[PravegaSink], **more: Any) -> Stream:
    return Stream(partial(place.sink, kind, **more), place.rows)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.sink.__name__)
def test_a_broken_sink_is_caught_by_a_check_of_the_suite(place: Place, mutant: Mutant) -> None:
    check = partial(getattr(Suite(mutant.sink), mutant.check), stream_into(place, mutant.sink), **mutant.arguments)
    with pytest.raises(BrokenPromise) as broken:
        check()
    print(broken.value)


# Each of these stories ends well with the sound sink, and is wrong with the broken one.


def aborted(place: Place, kind: type[PravegaSink]) -> None:
    stream = stream_into(place, kind)
    sink = stream.open_sink()
    transaction, prepared = stream.prepare(sink, 0)
    place.control.abort(prepared.transaction)
    if sink.commit(transaction, prepared) is None:
        stream.run(0)
    stream.check(0)


def forgotten(place: Place, kind: type[PravegaSink]) -> None:
    stream = stream_into(place, kind)
    stream.run(0)
    ledger = Ledger(place.control, "rows")
    assert ledger.swap(ledger.read(), Elected.of(stream.batch(1), 7 << 64))
    try:
        stream.run(1)
    except LakesinkError:
        return
    stream.check(0, 1)


def killed_on_the_way(place: Place, kind: type[PravegaSink]) -> None:
    """The driver does not wait for its events, and is killed as soon as the record has the transaction."""
    child = start(partial(prepares_without_waiting, place, kind))
    code, _, errors = ended(child)
    assert code == -signal.SIGKILL, errors
    stream = stream_into(place, kind, encode=rows_as_long_json)
    stream.candidates[0].append(frozenset(json.loads((place.folder / "voted").read_text())))
    stream.run(0)
    stream.check(0)


def prepares_without_waiting(place: Place, kind: type[PravegaSink]) -> None:
    pravega_transaction._wait_until_durable = lambda *_: None  # noqa: SLF001 - this process's own
    stream = stream_into(place, kind, encode=rows_as_long_json)

    def at_point(point: Point, _: Any) -> None:
        if point == Point(Phase.RECORD, after=True):
            (place.folder / "voted").write_text(json.dumps(sorted(stream.candidates[0][0])))
            os.kill(os.getpid(), signal.SIGKILL)

    stream.run(0, at_point=at_point)


def rows_as_long_json(rows: pa.RecordBatch) -> pa.RecordBatch:
    """So many bytes that they are still on their way."""
    events = [json.dumps({**row, "rest": "x" * 1_500_000}).encode() for row in rows.to_pylist()]
    return pa.record_batch([pa.nulls(len(events), pa.string()), pa.array(events, pa.large_binary())], schema=EVENTS)


STORIES = (
    (aborted, TakesAbortedForSuccess),
    (forgotten, TakesForgottenForSuccess),
    (killed_on_the_way, BelievesThatAnOpenTransactionIsWhole),
)


@pytest.mark.parametrize(("story", "kind"), STORIES, ids=lambda it: it.__name__)
def test_a_story_ends_well_only_with_the_sound_sink(place: Place, story: Any, kind: type[PravegaSink]) -> None:
    with pytest.raises(AssertionError):
        story(Place.make(place.controller, _folder(place, "broken")), kind)
    story(Place.make(place.controller, _folder(place, "sound")), PravegaSink)


def _folder(place: Place, name: str) -> Path:
    folder = place.folder / name
    folder.mkdir()
    return folder
