"""Two or three drivers of one stream at once, requests that arrive late, and what they leave behind."""

import itertools
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import CommitTableResponse

from lakesink_protocol.coordinator import Write
from lakesink_protocol.errors import CommitUnresolved
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Votes
from testkit.builders import Apply, Lake, Stream, contents, counted, expected, parquet_files
from testkit.maintenance import append_foreign, expire, remove_ref, roll_back, sweep

ORDERS = list(itertools.permutations(range(3)))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake.make(tmp_path)
    stream = Stream(lake)
    stream.run(0)
    stream.run(1)
    return lake


class Driver(threading.Thread):
    """A driver that has decided, written and prepared, and stops before its request leaves."""

    def __init__(self, lake: Lake, batch_id: int, *, meet: threading.Barrier | None = None) -> None:
        super().__init__(daemon=True)
        catalog = Lake.connect(lake.folder)
        self.stream = Stream(lake, catalog=catalog)
        self.batch_id, self.meet = batch_id, meet
        self.outcome: Outcome | BaseException | None = None
        self.arrived, self.released = threading.Event(), threading.Event()
        catalog.faults = [self._hold]

    def run(self) -> None:
        sink, batch = self.stream.sink(), self.stream.batch(self.batch_id)
        try:
            self.outcome = self.stream.run_with(sink, batch, job=self._job(self.stream.write(batch)))
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.outcome = error
        self.arrived.set()

    def _job(self, write: Write) -> Write:
        """All drivers meet once each has found no prepared record."""

        def job(writers: Mapping[str, TaskWriter]) -> Votes:
            if self.meet:
                self.meet.wait(30)
            return write(writers)

        return job

    def _hold(self, apply: Apply) -> CommitTableResponse:
        self.arrived.set()
        assert self.released.wait(30)
        return apply()

    def release(self) -> None:
        self.released.set()
        self.join(30)
        assert not self.is_alive()


def past_the_check(drivers: Sequence[Driver]) -> None:
    for driver in drivers:
        driver.start()
    for driver in drivers:
        assert driver.arrived.wait(30)
        assert driver.outcome is None


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_three_drivers_past_the_check_commit_the_batch_once_in_whatever_order(
    lake: Lake, order: tuple[int, ...]
) -> None:
    """Each has written files of its own."""
    meet = threading.Barrier(3)
    drivers = [Driver(lake, 2, meet=meet) for _ in range(3)]
    past_the_check(drivers)
    files = {path: digest for path, digest in contents(lake).items() if "/lakesink/events/main/1-" not in str(path)}
    for number in order:
        drivers[number].release()
    winner, *losers = (drivers[number].outcome for number in order)
    assert isinstance(winner, Committed)
    assert losers == [AlreadyCommitted(winner.snapshot_id)] * 2
    assert counted(lake) == expected(0, 1, 2)
    assert len(Stream(lake).marks()) == 3
    assert len(parquet_files(lake)) == 5
    assert files.items() <= contents(lake).items()  # only the record of the batch before is of no use any more


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_three_drivers_of_one_prepared_record_commit_it_once(lake: Lake, order: tuple[int, ...]) -> None:
    drivers = []
    for _ in range(3):
        drivers.append(Driver(lake, 2))
        past_the_check(drivers[-1:])
    for number in order:
        drivers[number].release()
    outcomes = [driver.outcome for driver in drivers]
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    assert len({outcome.snapshot_id for outcome in outcomes if isinstance(outcome, Committed)}) == 1
    assert [driver.stream.writes for driver in drivers] == [1, 0, 0]
    assert counted(lake) == expected(0, 1, 2)
    assert len(Stream(lake).marks()) == 3


def test_a_driver_that_slept_through_later_batches_finds_its_own_committed(lake: Lake) -> None:
    sleeper, stream = Driver(lake, 2), Stream(lake)
    past_the_check([sleeper])
    for batch_id in (2, 3, 4):
        assert isinstance(stream.run(batch_id), Committed)
    sleeper.release()
    assert isinstance(sleeper.outcome, Committed)
    assert sleeper.outcome.snapshot_id == stream.snapshot_of(2)
    assert counted(lake) == expected(0, 1, 2, 3, 4)


def test_a_check_outside_the_attempt_doubles_the_batch_in_the_very_same_race(lake: Lake) -> None:
    """What lakesink does not do: check, then append through the library's transaction, which re-bases by itself."""
    stream, met = Stream(lake), threading.Barrier(2)

    def check_then_append() -> None:
        table = Lake.connect(lake.folder).load_table("demo.events")
        assert "2" not in {snapshot.summary.get("batch") for snapshot in table.snapshots() if snapshot.summary}
        met.wait(30)
        table.append(pa.Table.from_batches(stream.rows(2, range(3))), snapshot_properties={"batch": "2"})

    threads = [threading.Thread(target=check_then_append) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert counted(lake) == expected(0, 1, 2, 2)


@pytest.mark.parametrize("delivered", ["before", "after"], ids=lambda word: f"{word} the next batch")
def test_a_request_that_arrives_after_the_replay_is_refused(lake: Lake, delivered: str) -> None:
    stream = _sent_into_the_void(lake)
    _forget_records(lake)
    assert isinstance(stream.run(2), Committed)
    if delivered == "after":
        assert isinstance(stream.run(3), Committed)
    before = counted(lake)
    with pytest.raises(Exception, match="Requirement failed"):
        lake.catalog.late[0]()
    assert counted(lake) == before
    assert isinstance(stream.run(3), AlreadyCommitted if delivered == "after" else Committed)


@pytest.mark.parametrize("tag", [True, False], ids=["with the tag", "without the tag"])
def test_after_a_rollback_to_the_asserted_head_and_expiry_the_tag_keeps_a_late_request_out(
    lake: Lake,
    tag: bool,  # noqa: FBT001 - a table of cases
) -> None:
    stream = _sent_into_the_void(lake, ledger_tag=tag)
    _forget_records(lake)
    asserted = lake.head().snapshot_id
    assert isinstance(stream.run(2), Committed)
    roll_back(lake, asserted)
    if not tag:
        remove_ref(lake, stream.key.ledger_tag)
    expire(lake)
    sweep(lake)
    requirements, _ = lake.catalog.sent[-2]
    if tag:
        with pytest.raises(Exception, match="tag lakesink-events has changed"):
            lake.catalog.late[0]()
        assert counted(lake) == expected(0, 1)
        assert isinstance(stream.run(2), Committed)
        assert counted(lake) == expected(0, 1, 2)
    else:
        for requirement in requirements:
            requirement.validate(lake.table().metadata)  # all hold: but for the tag, the request would be let in


@pytest.mark.parametrize("swept", [False, True], ids=["files there", "files deleted by expiry"])
def test_a_prepared_record_is_not_used_after_a_rollback(lake: Lake, swept: bool) -> None:  # noqa: FBT001 - a case
    stream = Stream(lake)
    asserted = lake.head().snapshot_id
    assert isinstance(stream.run(2), Committed)
    roll_back(lake, asserted)
    if swept:
        remove_ref(lake, stream.key.ledger_tag)
        expire(lake)
        assert sweep(lake)
        append_foreign(lake)
    outcome = stream.run(2)
    assert isinstance(outcome, Committed)
    assert not outcome.recovered
    assert stream.writes == 2
    rows = counted(lake)
    assert all(rows[row] == 1 for row in expected(0, 1, 2))


def test_a_record_of_a_batch_that_never_landed_is_not_used_after_a_rollback_before_it(lake: Lake) -> None:
    stream = _sent_into_the_void(lake)
    roll_back(lake, stream.snapshot_of(0))
    assert isinstance(stream.run(1), Committed)
    with pytest.raises(Exception, match="Requirement failed"):
        lake.catalog.late[0]()
    outcome = stream.run(2)
    assert isinstance(outcome, Committed)
    assert not outcome.recovered
    assert counted(lake) == expected(0, 1, 2)


def _sent_into_the_void(lake: Lake, **options: Any) -> Stream:
    """A stream whose batch 2 was prepared and sent, and nobody knows what became of it."""
    stream = Stream(lake, options=options)
    lake.catalog.faults = [lake.catalog.arrives_late] * 21
    with pytest.raises(CommitUnresolved):
        stream.run(2)
    lake.catalog.faults = []
    return stream


def _forget_records(lake: Lake) -> None:
    """As if the record had grown too old: the replay writes files of its own, under another snapshot id."""
    for path in (lake.folder / "warehouse").rglob("*/lakesink/**/*.json"):
        path.unlink()
