"""Turns at a table: who waits for whom, what frees a turn, and that no commit depends on one."""

import fcntl
import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from sqlalchemy import text

from lakesink_catalog.commit.batch_commit import FencedCommit
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.connect import sql_waits, turns
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.connect.turns import TakesTurns, local_folder, lock_folder, turn_at
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.tables.tables import create_table
from lakesink_protocol import events
from lakesink_protocol.identity import Batch, SinkKey, stream_batch
from lakesink_protocol.outcome import Committed
from lakesink_protocol.retry import RetryPolicy
from testkit.commits import fence_of, land
from testkit.http_servers import postgres

ROWS = pa.schema([("id", pa.int64())])
PASSWORD = "p@ss/w:rd"  # noqa: S105 - of a database that lives for these tests
LONG = 20.0
"""Seconds for what must happen; far from what it takes."""
Connect = Callable[[], Catalog]
_NUMBERS = itertools.count()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("turns")
    warehouse = {"warehouse": f"file://{folder}/w"}
    if request.param == "sqlite":
        yield warehouse | {"uri": f"sqlite:///{folder}/catalog.db"}
        return
    with postgres(PASSWORD) as server:
        yield warehouse | {"uri": f"postgresql://lake:p%40ss%2Fw%3Ard@{server.address}"}


@pytest.fixture
def open_catalog(shared: dict[str, Any], request: pytest.FixtureRequest) -> Connect:
    """Opens a catalog as another process would, with connections of its own; the table is new."""
    name = f"demo.t{next(_NUMBERS)}"
    create_table(connect("lake", shared), name, ROWS)
    request.node.table_name = name
    return partial(connect, "lake", shared)


@pytest.fixture
def load(open_catalog: Connect, request: pytest.FixtureRequest) -> Callable[[], Table]:
    return lambda: open_catalog().load_table(request.node.table_name)


class Heard:
    """Keeps the events about turns."""

    def __init__(self) -> None:
        self.events: list[events.TurnPassedOver] = []

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.TurnPassedOver):
            self.events.append(event)


def fence(catalog: Catalog, name: str, sink: str = "sink", emit: Any = LISTENERS, **given: Any) -> FencedCommit:
    table = catalog.load_table(name)
    return fence_of(
        lambda: catalog.load_table(name), SinkKey(sink), Effects(emit=emit), turn=partial(turn_at, table, emit), **given
    )


def batch_of(sink: str, number: int) -> Batch:
    return stream_batch(number, f"q-{sink}", start=[number] if number else None, end=[number + 1])


def commit(fenced: FencedCommit, number: int) -> Committed:
    outcome = land(fenced, batch_of(fenced.key.name, number))
    assert isinstance(outcome, Committed)
    return outcome


def test_writers_wait_for_each_other_and_are_served_in_the_order_of_arrival(load: Callable[[], Table]) -> None:
    served: list[int] = []

    def wait(number: int) -> None:
        with turn_at(load(), LISTENERS):
            served.append(number)
            time.sleep(0.05)

    with ThreadPoolExecutor(3) as pool:
        with turn_at(load(), LISTENERS):
            waiting = []
            for number in range(3):
                waiting.append(pool.submit(wait, number))
                time.sleep(0.5)  # it arrives before the next one
            assert served == []
        for one in waiting:
            one.result(LONG)
    assert served == [0, 1, 2]


def test_writers_of_two_tables_do_not_wait_for_each_other(load: Callable[[], Table], open_catalog: Connect) -> None:
    other = create_table(open_catalog(), f"demo.other{time.monotonic_ns()}", ROWS)
    heard = Heard()
    with turn_at(load(), heard), turn_at(other, heard):
        pass
    assert heard.events == []


_HOLD = """
import json, sys, time
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.connect.turns import turn_at
table = connect("lake", json.loads(sys.argv[1])).load_table(sys.argv[2])
with turn_at(table, print):
    print("holds", flush=True)
    time.sleep(600)
"""


def test_a_process_that_is_killed_in_its_turn_frees_it_at_once(
    shared: dict[str, Any], load: Callable[[], Table]
) -> None:
    table, heard = load(), Heard()
    call = [sys.executable, "-c", _HOLD, json.dumps(shared), ".".join(table.name())]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holds\n"
        threading.Timer(0.5, os.kill, (holder.pid, signal.SIGKILL)).start()
        with turn_at(table, heard):
            assert holder.wait(LONG) == -signal.SIGKILL
    assert heard.events == []


def test_a_turn_that_is_not_had_in_time_is_passed_over_once_and_the_commit_lands(
    load: Callable[[], Table], open_catalog: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with turn_at(load(), LISTENERS):
        monkeypatch.setattr(sql_waits, "LOCK_SECONDS", 1)
        catalog, heard = open_catalog(), Heard()
        emit = LISTENERS.also(heard)
        writer = fence(catalog, ".".join(load().name()), emit=emit)
        with caplog.at_level(logging.WARNING):
            assert commit(writer, 0).attempts == 1
        assert len(heard.events) == 1
        assert "lakesink.turn.passed-over table=demo.t" in caplog.text
        assert "p%40ss" not in caplog.text + heard.events[0].error
        assert PASSWORD not in caplog.text + heard.events[0].error

        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(turns.Turns, "_take", lambda *_: pytest.fail("it waited again"))
            assert commit(writer, 1).attempts == 1

        monkeypatch.setattr(turns, "REST_SECONDS", 0)
        commit(writer, 2)
        assert len(heard.events) == 1, "it is said once"
    commit(writer, 3)  # in a turn again
    with turn_at(load(), LISTENERS):
        commit(writer, 4)
    assert len(heard.events) == 2, "it is said again after a turn was had"
    assert len(load().metadata.snapshots) == 5


def test_an_error_of_the_body_ends_the_turn_and_passes(load: Callable[[], Table]) -> None:
    with pytest.raises(KeyError), turn_at(load(), LISTENERS):
        raise KeyError
    heard = Heard()
    with turn_at(load(), heard):
        pass
    assert heard.events == []


def test_the_turn_lasts_from_the_load_to_the_swap(tmp_path: Path) -> None:
    catalog = connect("lake", {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"})
    folder = local_folder(create_table(catalog, "demo.t", ROWS).metadata_location)
    assert folder is not None
    taken: dict[str, bool] = {}

    def see(event: events.Event) -> None:
        if isinstance(event, (events.CommitDue, events.CommitAnswered)):
            taken[type(event).__name__] = is_locked(folder)

    def see_load() -> Table:
        taken["load"] = is_locked(folder)
        return catalog.load_table("demo.t")

    commit(replace(fence(catalog, "demo.t", emit=LISTENERS.also(see)), load=see_load), 0)
    assert taken == {"load": True, "CommitDue": True, "CommitAnswered": False}
    assert not is_locked(folder)


def is_locked(folder: str) -> bool:
    place = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(place)


def test_threads_that_share_one_catalog_take_turns(load: Callable[[], Table], open_catalog: Connect) -> None:
    catalog, name = open_catalog(), ".".join(load().name())

    def run(sink: int) -> int:
        writer = fence(catalog, name, f"sink-{sink}", retry=RetryPolicy(num_retries=0))
        return sum(commit(writer, number).attempts for number in range(5))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, range(8))) == [5] * 8
    assert len(load().metadata.snapshots) == 40


def test_a_race_that_is_lost_uses_up_no_retry_and_waits_as_long_as_an_attempt_took(tmp_path: Path) -> None:
    catalog = connect("lake", {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"})
    create_table(catalog, "demo.t", ROWS)
    other, lost = replace(fence(catalog, "demo.t", "other"), turn=nullcontext), iter(range(30))
    waits: list[float] = []

    def load_and_lose() -> Table:
        table = catalog.load_table("demo.t")
        with suppress(StopIteration):
            commit(replace(other), next(lost))
        return table

    writer = fence(catalog, "demo.t", retry=RetryPolicy(num_retries=0, min_wait_ms=600_000))
    writer = replace(writer, load=load_and_lose, effects=Effects(sleep_ms=waits.append))
    batch, table = batch_of("sink", 0), catalog.load_table("demo.t")
    decision = writer.decide_on(table, batch)
    outcome = writer.commit(batch, writer.prepare(decision, (), schema=table.schema()))
    assert isinstance(outcome, Committed)
    assert outcome.attempts == 31
    assert len(waits) == 30
    assert max(waits) <= 10_000


def test_a_writer_that_takes_no_turns_is_not_held_up_and_loses_nothing(
    load: Callable[[], Table], open_catalog: Connect
) -> None:
    name = ".".join(load().name())
    without = replace(fence(open_catalog(), name, "without"), turn=nullcontext)
    with turn_at(load(), LISTENERS):
        commit(without, 0)

    def run(sink: int) -> None:
        catalog = open_catalog()
        for number in range(8):
            commit(fence(catalog, name, f"sink-{sink}"), number)

    with ThreadPoolExecutor(5) as pool:
        crowd = [pool.submit(run, sink) for sink in range(4)]
        for number in range(1, 5):
            commit(without, number)
        for one in crowd:
            one.result()
    assert len(load().metadata.snapshots) == 5 + 32


@pytest.mark.parametrize("trouble", ["gone", "a file", "a fifo", "no locks"])
def test_a_folder_that_cannot_be_locked_gives_no_turn_and_no_error(
    tmp_path: Path, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = connect("lake", {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"})
    table, heard, place = create_table(catalog, "demo.t", ROWS), Heard(), tmp_path / "place"
    if trouble == "a file":
        place.touch()
    elif trouble == "a fifo":
        os.mkfifo(place)
    elif trouble == "no locks":
        place.mkdir()
        monkeypatch.setattr(fcntl, "flock", no_locks)
    table.metadata_location = f"file://{place}/00000-x.metadata.json"
    entered = 0
    for _ in range(3):
        with turn_at(table, heard):
            entered += 1
    assert (entered, len(heard.events)) == (3, 1)
    assert not (trouble == "gone" and place.exists()), "a folder was made"


def no_locks(_place: int, _how: int) -> None:
    raise OSError(37, "No locks available")


def test_a_link_to_the_folder_is_the_folder(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(mode=0o555)
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    end = lock_folder(str(tmp_path / "link"))
    assert is_locked(str(tmp_path / "folder"))
    end()
    assert not is_locked(str(tmp_path / "folder"))
    assert list((tmp_path / "folder").iterdir()) == []


def test_a_process_forked_in_a_turn_does_not_keep_it(tmp_path: Path) -> None:
    end = lock_folder(str(tmp_path))
    child = os.fork()
    if child == 0:
        time.sleep(600)
    try:
        end()
        assert not is_locked(str(tmp_path))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_turn_that_comes_too_late_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end, others = lock_folder(str(tmp_path)), set(threading.enumerate())
    monkeypatch.setattr(sql_waits, "LOCK_SECONDS", 0.1)
    with pytest.raises(TimeoutError):
        lock_folder(str(tmp_path))
    (waiter,) = set(threading.enumerate()) - others
    end()
    waiter.join(LONG)  # it gets the lock now, and gives it back
    assert not waiter.is_alive()
    assert not is_locked(str(tmp_path))


@pytest.mark.parametrize(
    ("location", "folder"),
    [
        ("file:///w/t/metadata/1.metadata.json", "/w/t/metadata"),
        ("file:/w/t/metadata/1.metadata.json", "/w/t/metadata"),
        ("/w/t/metadata/1.metadata.json", "/w/t/metadata"),
        ("/w/a#b?c/t/metadata/1.metadata.json", "/w/a#b?c/t/metadata"),
        ("s3://bucket/t/metadata/1.metadata.json", None),
        ("hdfs://name/t/metadata/1.metadata.json", None),
        ("file://host/t/metadata/1.metadata.json", None),
        ("t/metadata/1.metadata.json", None),
        ("1.metadata.json", None),
    ],
)
def test_only_a_folder_on_a_local_disk_is_locked(location: str, folder: str | None) -> None:
    assert local_folder(location) == folder


def test_a_catalog_in_memory_has_no_turns(tmp_path: Path) -> None:
    catalog = connect("memory", {"type": "in-memory", "warehouse": f"file://{tmp_path}/w"})
    table = create_table(catalog, "demo.t", ROWS)
    assert not isinstance(catalog, TakesTurns)
    with turn_at(table, LISTENERS), turn_at(table, LISTENERS):
        pass


def test_the_connections_of_turns_are_kept_and_are_no_others(load: Callable[[], Table], shared: dict[str, Any]) -> None:
    if not shared["uri"].startswith("postgresql"):
        pytest.skip("a folder needs no connection")
    table = load()
    catalog: Any = table.catalog
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"

    def count() -> int:
        with catalog.engine.connect() as connection:
            return int(connection.scalar(text(sessions)))

    before = count()
    for _ in range(5):
        with turn_at(table, LISTENERS):
            assert catalog.engine.pool.checkedout() == 0
    assert count() == before + 1
    catalog.close()
    assert count() == before, "the connection of the turns stays open"
