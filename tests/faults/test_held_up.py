"""A driver stopped for a day between its vote and its commit refers to nothing that a cleaner may have taken."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.transaction import IcebergTransaction
from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_protocol.errors import CommitUnresolved
from lakesink_protocol.outcome import Committed, Outcome
from testkit.builders import Lake, Stream, counted, expected, parquet_files
from testkit.maintenance import sweep, unreachable

HOUR_MS = 3_600_000


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    stream = Stream(Lake.make(tmp_path))
    stream.run(0)
    return stream


def voted(stream: Stream) -> tuple[IcebergSink, IcebergTransaction, PreparedBatch]:
    """Batch 1, prepared."""
    sink, batch = stream.sink(), stream.batch(1)
    begun = sink.begin(batch)
    assert isinstance(begun, IcebergTransaction)
    assert begun.writer is not None
    prepared = sink.pre_commit(begun, stream.write(batch)({"it": begun.writer}).receipts("it"))
    begun.prepared_log.put(batch, {sink.name: prepared.payload})
    return sink, begun, prepared


def hold_up(stream: Stream, hours: int, meanwhile: Callable[[], object]) -> Outcome | None:
    """What the commit of batch 1 comes to, whose driver was stopped before it."""
    sink, begun, prepared = voted(stream)
    stream.chance.move_ms(hours * HOUR_MS)
    meanwhile()
    return sink.commit(begun, prepared)


@pytest.mark.parametrize("hours", [30, -30], ids=["stopped", "the clock went back"])
def test_files_that_a_cleaner_took_meanwhile_are_not_committed_and_the_batch_is_written_again(
    stream: Stream, hours: int
) -> None:
    assert hold_up(stream, hours, lambda: sweep(stream.lake)) is None
    assert counted(stream.lake) == expected(0)
    assert isinstance(stream.run(1), Committed)
    assert counted(stream.lake) == expected(0, 1)
    assert parquet_files(stream.lake) - unreachable(stream.lake) == parquet_files(stream.lake)


def test_files_that_are_still_there_are_committed(stream: Stream) -> None:
    assert isinstance(hold_up(stream, 30, lambda: None), Committed)
    assert counted(stream.lake) == expected(0, 1)


def test_within_the_age_that_cleaners_leave_alone_nothing_is_looked_at(stream: Stream) -> None:
    assert isinstance(hold_up(stream, 19, lambda: None), Committed)


def test_a_driver_stopped_inside_its_attempt_does_not_send_what_it_wrote_before(stream: Stream) -> None:
    """Its manifest list, written a day ago, may be gone; nothing but the restart can tell."""
    sink, begun, prepared = voted(stream)
    clock = sink.effects
    looks = iter(range(100))

    def stops_while_it_builds() -> int:
        if next(looks) == 3:
            stream.chance.move_ms(30 * HOUR_MS)
        return clock.now_ms()

    sent = len(stream.lake.catalog.sent)
    held_up = replace(begun, fence=replace(begun.fence, effects=replace(clock, now_ms=stops_while_it_builds)))
    with pytest.raises(CommitUnresolved, match="was stopped for so long"):
        sink.commit(held_up, prepared)
    assert len(stream.lake.catalog.sent) == sent
    assert isinstance(stream.run(1), Committed)
    assert counted(stream.lake) == expected(0, 1)


def test_files_are_as_old_as_the_start_of_their_writing_however_long_it_took(stream: Stream) -> None:
    """A cleaner may take the first file of a long batch before the last one is written."""
    sink, batch = stream.sink(), stream.batch(1)
    begun = sink.begin(batch)
    assert isinstance(begun, IcebergTransaction)
    assert begun.writer is not None
    votes = stream.write(batch)({"it": begun.writer}).receipts("it")
    stream.chance.move_ms(21 * HOUR_MS)
    prepared = sink.pre_commit(begun, votes)
    sweep(stream.lake)
    assert sink.commit(begun, prepared) is None
    assert counted(stream.lake) == expected(0)
    assert isinstance(stream.run(1), Committed)
    assert counted(stream.lake) == expected(0, 1)
