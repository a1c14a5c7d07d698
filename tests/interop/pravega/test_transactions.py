"""What becomes of Pravega's transactions when drivers die, leases end and servers restart."""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from lakesink import AlreadyCommitted, BatchRefused, Committed, CommitUnresolved, Outcome, WriteError
from lakesink_tools.testing.checks.processes import ended, start
from lakesink_tools.testing.stream import Stream
from servers.pravega import PravegaServer, pravega

pytest.importorskip("pravega_client", reason="python -m servers.fetch pravega-client; Python 3.11 on Linux only")

import pravega_client
import pravega_transaction
from pravega_controller import Controller, State
from pravega_ledger import Elected, Ledger
from pravega_sink import PravegaSink, Prepared
from pravega_staging import LARGEST_EVENT_BYTES, key_and_value
from pravega_transaction import is_durable, write_transaction

from tests.interop.pravega.place import SCOPE, Place
from tests.interop.pravega.scaling import split

pytestmark = [pytest.mark.interop, pytest.mark.nightly]

SHORTEST_LEASE = timedelta(seconds=10)
"""The server grants no shorter one."""
MANY = 10_000


@pytest.fixture
def place(server: PravegaServer, tmp_path: Path) -> Place:
    return Place.make(server.controller, tmp_path)


def stream_into(place: Place, **more: object) -> Stream:
    return Stream(partial(place.sink, **more), place.rows)  # type: ignore[arg-type] # passed on as they are


def end_of(control: Controller, transaction: int) -> State:
    """The state in which a transaction ends on its own."""
    deadline = time.monotonic() + 60
    while (state := control.state(transaction)) not in (State.COMMITTED, State.ABORTED):
        assert time.monotonic() < deadline, state
        time.sleep(0.1)
    return state


def prepared_by(stream: Stream, batch_id: int = 0) -> Prepared:
    _, prepared = stream.prepare(stream.open_sink(), batch_id)
    assert isinstance(prepared, Prepared)
    return prepared


# The client alone


def writes_and_dies(place: Place) -> None:
    """As a program that trusts the client: it writes, hands the id over, and ends."""
    manager = pravega_client.StreamManager(f"tcp://{place.controller}")
    writer = manager.create_transaction_writer(SCOPE, place.stream, 1)
    opened = writer.begin_txn()
    for number in range(MANY):
        opened.write_event_bytes(str(number).encode())
    (place.folder / "id").write_text(str(opened.get_txn_id()))
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_client_alone_loses_events_of_a_transaction_that_is_committed(place: Place) -> None:
    code, _, errors = ended(start(partial(writes_and_dies, place)))
    assert code == -signal.SIGKILL, errors
    control, transaction = place.control, int((place.folder / "id").read_text())
    sent = sum(pravega_transaction.FRAME_BYTES + len(str(number)) for number in range(MANY))
    assert not is_durable(control, transaction, sent)
    control.commit(transaction)
    assert end_of(control, transaction) is State.COMMITTED
    assert len(place.events()) < MANY


def test_a_transaction_that_the_client_fetched_by_its_id_cannot_be_committed(place: Place) -> None:
    written = write_transaction(place.control, [(None, b"one")], 60_000)
    manager = pravega_client.StreamManager(f"tcp://{place.controller}")
    writer = manager.create_transaction_writer(SCOPE, place.stream, 1)
    fetched = writer.get_txn(written.transaction)
    assert fetched.is_open()
    with pytest.raises(pravega_client.TxnFailedException):
        fetched.commit()
    assert place.control.state(written.transaction) is State.OPEN


@pytest.mark.nightly
def test_a_prepared_transaction_outlives_the_clients_own_lease(place: Place) -> None:
    """The client renews its lease of 90 s after 90 s: if it could, the transaction would end after 180 s."""
    stream = stream_into(place)
    prepared = prepared_by(stream)
    time.sleep(185)
    assert place.control.state(prepared.transaction) is State.OPEN
    assert isinstance(stream.run(0), Committed)
    assert stream.jobs == [0]
    stream.check(0)


# Drivers that die


def dies_before_its_events_are_durable(place: Place) -> None:
    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    pravega_transaction._wait_until_durable = die  # type: ignore[assignment] # noqa: SLF001 - this process's own
    stream_into(place).run(0)


def test_a_driver_killed_between_write_and_durability_leaves_nothing_and_the_batch_is_written_again(
    place: Place,
) -> None:
    code, _, errors = ended(start(partial(dies_before_its_events_are_durable, place)))
    assert code == -signal.SIGKILL, errors
    stream = stream_into(place)
    stream.check()
    outcome = stream.run(0)
    assert isinstance(outcome, Committed)
    assert not outcome.recovered
    stream.check(0)


def test_staged_files_are_removed_once_the_transaction_has_them(place: Place) -> None:
    stream = stream_into(place)
    stream.run(0)
    assert not list((place.folder / "staging").glob("*.arrow"))


# Leases


def test_a_prepared_transaction_that_pravega_aborted_is_written_again(place: Place) -> None:
    stream = stream_into(place, lease=SHORTEST_LEASE)
    sink = stream.open_sink()
    transaction, prepared = stream.prepare(sink, 0)
    assert end_of(place.control, prepared.transaction) is State.ABORTED
    assert sink.recover(transaction, prepared.payload) is None
    assert sink.commit(transaction, prepared) is None
    stream.check()
    outcome = stream.run(0)
    assert isinstance(outcome, Committed)
    assert not outcome.recovered
    assert stream.jobs == [0, 0]
    assert set(stream.seen()[0]) == stream.candidates[0][1]
    stream.goes_on(1)


def test_an_elected_transaction_that_pravega_aborted_gives_way_to_another_one(place: Place) -> None:
    stream = stream_into(place)
    first, second = stream.open_sink(), stream.open_sink()
    late, lost = stream.prepare(first, 0)
    ledger = Ledger(place.control, "rows")
    assert ledger.swap(ledger.read(), Elected.of(stream.batch(0), lost.transaction))
    place.control.abort(lost.transaction)
    transaction, prepared = stream.prepare(second, 0)
    assert isinstance(second.commit(transaction, prepared), Committed)
    assert isinstance(first.commit(late, lost), AlreadyCommitted)
    assert set(stream.seen()[0]) == stream.candidates[0][1]
    stream.goes_on(1)


def test_an_elected_transaction_is_completed_by_a_driver_that_prepared_another_one(place: Place) -> None:
    stream = stream_into(place)
    elected = prepared_by(stream)
    sink = stream.open_sink()
    transaction, own = stream.prepare(sink, 0)
    ledger = Ledger(place.control, "rows")
    assert ledger.swap(ledger.read(), Elected.of(stream.batch(0), elected.transaction))
    assert isinstance(sink.commit(transaction, own), AlreadyCommitted)
    assert set(stream.seen()[0]) == stream.candidates[0][0]
    assert place.control.state(own.transaction) is State.OPEN
    stream.goes_on(1)


def test_a_lease_that_the_server_does_not_grant_is_refused_at_the_start(place: Place) -> None:
    stream = stream_into(place, lease=timedelta(hours=1))
    with pytest.raises(WriteError, match=r"LAKESINK_PRAVEGA_LEASE.*no lease of 3600000 ms") as refused:
        stream.run(0)
    assert "max value is 600000" in str(refused.value)
    assert "controller.transaction.lease.count.max" in str(refused.value)
    assert not stream.jobs


# Transactions that Pravega has forgotten


def test_a_forgotten_transaction_is_never_taken_for_success_and_an_operator_settles_it(place: Place) -> None:
    stream = stream_into(place)
    stream.run(0)
    ledger = Ledger(place.control, "rows")
    for batch_id, landed in ((1, False), (2, True)):
        assert ledger.swap(ledger.read(), Elected.of(stream.batch(batch_id), 7 << 64))
        with pytest.raises(CommitUnresolved, match="LAKESINK_PRAVEGA_FORGOTTEN"):
            stream.run(batch_id)
        place.sink().settle(landed=landed)
        assert isinstance(stream.run(batch_id), AlreadyCommitted if landed else Committed)
    stream.check(0, 1)
    with pytest.raises(ValueError, match="knows what became"):
        place.sink().settle(landed=True)


def test_a_batch_before_which_one_was_only_elected_is_refused(place: Place) -> None:
    stream = stream_into(place)
    prepared = prepared_by(stream)
    ledger = Ledger(place.control, "rows")
    assert ledger.swap(ledger.read(), Elected.of(stream.batch(0), prepared.transaction))
    with pytest.raises(BatchRefused, match="LAKESINK_GAP"):
        stream.run(1)
    stream.goes_on(0, 1)


# Servers


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[PravegaServer]:
    (tmp_path / "server").mkdir()
    with pravega(tmp_path / "server", longest_lease_ms=7_200_000) as running:
        yield running


def test_a_server_that_lost_its_memory_is_refused_and_a_record_of_before_is_not_used(
    own_server: PravegaServer, tmp_path: Path
) -> None:
    place = Place.make(own_server.controller, tmp_path)
    stream = stream_into(place, lease=timedelta(hours=2))  # longer than the default maximum
    before = prepared_by(stream)
    own_server.stop()
    own_server.start()
    with pytest.raises(WriteError, match="LAKESINK_PRAVEGA_FAILED"):
        stream.run(0)
    stream.jobs.clear()

    place.create()
    while True:  # ids begin anew: another program's transaction gets the id that the record has
        foreign = write_transaction(place.control, [(None, b"foreign")] * before.rows, 60_000)
        if foreign.transaction >= before.transaction:
            break
    assert foreign.transaction == before.transaction
    assert isinstance(stream.run(0), Committed)
    assert stream.jobs == [0]
    stream.check(0)
    assert place.control.state(foreign.transaction) is State.OPEN


def test_a_server_that_does_not_answer_leaves_the_commit_unresolved_and_the_restart_completes_it(
    own_server: PravegaServer, tmp_path: Path
) -> None:
    place = Place.make(own_server.controller, tmp_path)
    stream = stream_into(place)
    impatient = PravegaSink(replace_patience(place.control, 2), sink_id="rows", staging=tmp_path / "staging")
    transaction, prepared = stream.prepare(stream.open_sink(), 0)
    own_server.pause()
    try:
        with pytest.raises(CommitUnresolved, match="LAKESINK_COMMIT_UNRESOLVED"):
            impatient.commit(transaction, prepared)
    finally:
        own_server.resume()
    stream.run(0)
    stream.check(0)


def replace_patience(control: Controller, seconds: float) -> Controller:
    return Controller(control.address, control.scope, control.stream, seconds)


def test_a_stream_that_scales_between_prepare_and_commit_has_the_batch_once(place: Place) -> None:
    stream = stream_into(place)
    stream.run(0)
    transaction, prepared = stream.prepare(stream.open_sink(), 1)
    split(place)
    # The commit of a transaction of an older epoch makes two epochs more: its segments again, and the present ones.
    stream = replace(stream, read_rows=replace(place, epochs=4).rows)
    assert isinstance(stream.open_sink().commit(transaction, prepared), Committed)
    stream.check(0, 1)
    stream.goes_on(2)


# Rows


KEYS = (None, "", "k", "ключ\0\U0001f511")
VALUES = (b"", b"\0", b"\0" * 8, "ünï\0\U0001f511".encode(), bytes(range(256)), b"x" * 1_000_000, b"y")


def test_bytes_in_are_bytes_out_in_a_stream_of_several_segments(server: PravegaServer, tmp_path: Path) -> None:
    place = Place.make(server.controller, tmp_path, segments=3)
    sink = place.sink(encode=key_and_value)
    cells = [*itertools.product(KEYS, VALUES), (None, b"z" * LARGEST_EVENT_BYTES)]
    rows = pa.record_batch([[key for key, _ in cells], [value for _, value in cells]], names=["key", "value"])
    outcome = committed(sink, place, rows)
    assert isinstance(outcome, Committed)
    assert outcome.rows == len(cells)
    assert Counter(place.events()) == Counter(value for _, value in cells)
    assert sum(map(bool, place.by_segment())) > 1


def committed(sink: PravegaSink, place: Place, rows: pa.RecordBatch) -> Outcome | None:
    batch = Stream(place.sink, place.rows).batch(0)
    transaction = sink.begin(batch)
    assert not isinstance(transaction, AlreadyCommitted)
    receipt = transaction.writer.write(0, iter([rows]))
    return sink.commit(transaction, sink.pre_commit(transaction, [receipt]))


def test_events_of_a_key_keep_the_order_of_their_task(server: PravegaServer, tmp_path: Path) -> None:
    place = Place.make(server.controller, tmp_path, segments=3)
    keys = [f"key-{number % 7}" for number in range(700)]
    values = [f"{key}:{number}" for number, key in enumerate(keys)]
    committed(place.sink(encode=key_and_value), place, pa.record_batch([keys, values], names=["key", "value"]))
    found = [event.decode().split(":") for event in place.events()]
    for key in set(keys):
        numbers = [int(number) for of, number in found if of == key]
        assert numbers == sorted(numbers)
        assert len(numbers) == 100


READ = """
import asyncio, os, sys, pravega_client
uri, scope, stream, wanted = sys.argv[1:]
manager = pravega_client.StreamManager(uri)
reader = manager.create_reader_group("readers", scope, stream).create_reader("reader")
async def read():
    found = 0
    while found < int(wanted):
        piece = await reader.get_segment_slice_async()
        for event in piece:
            print(bytes(event.data()).hex(), flush=True)
            found += 1
        reader.release_segment(piece)
asyncio.run(read())
os._exit(0)  # the client's reader hangs when it is closed
"""


def test_pravegas_own_reader_reads_the_rows(place: Place) -> None:
    stream = stream_into(place)
    stream.run_all(0, 1)
    call = [sys.executable, "-c", READ, f"tcp://{place.controller}", SCOPE, place.stream, str(len(place.events()))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(call, capture_output=True, text=True, timeout=120, check=True, env=environment)
    assert Counter(map(bytes.fromhex, done.stdout.split())) == Counter(place.events())


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (pa.array([b"x", None]), "NULL"),
        (pa.array([b"x", b"x" * (LARGEST_EVENT_BYTES + 1)]), "longer than"),
        (pa.array([1, 2]), "STRING or BINARY"),
    ],
)
def test_a_row_that_cannot_be_an_event_is_refused(place: Place, value: pa.Array, why: str) -> None:
    with pytest.raises(WriteError, match=f"LAKESINK_PRAVEGA_EVENT.*{why}"):
        committed(place.sink(encode=key_and_value), place, pa.record_batch([value], names=["value"]))
    assert not place.events()
