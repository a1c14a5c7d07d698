"""A driver stopped for a day between its vote and its marker publishes nothing that a cleanup may have removed."""

from collections.abc import Callable
from pathlib import Path

import pytest

import lakesink
from lakesink.sinks.directory.directory_sink import FileSink
from lakesink.sinks.directory.marker import Marker
from lakesink.sinks.staged.sink import StagedTransaction
from lakesink_protocol.outcome import Committed, Outcome
from testkit.builders import expected
from testkit.directory import Stream

HOUR_MS = 3_600_000


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    stream = Stream(tmp_path / "out")
    stream.run(0)
    return stream


def begun(stream: Stream) -> tuple[FileSink, StagedTransaction[Marker]]:
    sink = stream.sink()
    transaction = sink.begin(stream.batch(1))
    assert isinstance(transaction, StagedTransaction)
    return sink, transaction


def hold_up(
    stream: Stream, hours: float, meanwhile: Callable[[], object], *, writing_hours: float = 0
) -> Outcome | None:
    """What becomes of batch 1, whose driver is stopped between its vote and its commit."""
    sink, transaction = begun(stream)
    assert transaction.writer is not None
    batch = stream.batch(1)
    votes = stream.write(batch, tasks=2)({"it": transaction.writer}).receipts("it")
    stream.chance.move_ms(int(writing_hours * HOUR_MS))
    prepared = sink.pre_commit(transaction, votes)
    transaction.prepared_log.put(batch, {sink.name: prepared.payload})
    stream.chance.move_ms(int(hours * HOUR_MS))
    meanwhile()
    return sink.commit(transaction, prepared)


def sweep(stream: Stream, *, taken: int = 2) -> None:
    """A cleanup removes parts that no marker names; it may come no further than some of them."""
    named = {Path(path) for path in lakesink.committed_files(stream.directory)}
    for path in [path for path in stream.part_files() if path not in named][:taken]:
        path.unlink()


@pytest.mark.parametrize("hours", [30, -1])
@pytest.mark.parametrize("taken", [1, 2])
def test_parts_that_a_cleanup_took_meanwhile_are_not_published_and_the_batch_is_written_again(
    stream: Stream, hours: float, taken: int
) -> None:
    assert hold_up(stream, hours, lambda: sweep(stream, taken=taken)) is None
    assert stream.counted() == expected(0)
    assert isinstance(stream.run(1), Committed)
    assert stream.counted() == expected(0, 1)


def test_a_part_that_was_cut_meanwhile_is_not_published(stream: Stream) -> None:
    assert hold_up(stream, 30, lambda: stream.part_files()[-1].write_bytes(b"PAR1")) is None


def test_parts_that_are_still_there_are_published(stream: Stream) -> None:
    assert isinstance(hold_up(stream, 30, lambda: None), Committed)
    assert stream.counted() == expected(0) + expected(1, rows=6)


def test_the_age_counts_from_before_the_first_part_and_not_from_the_vote(stream: Stream) -> None:
    assert hold_up(stream, 11, lambda: sweep(stream), writing_hours=11) is None


def test_the_age_of_a_recovered_batch_counts_from_its_first_run(stream: Stream, tmp_path: Path) -> None:
    """The restart finds a young record with all parts; its driver is stopped too."""
    assert hold_up(stream, 30, lambda: sweep(stream)) is None
    stream = Stream(tmp_path / "other")
    stream.run(0)
    sink, transaction = begun(stream)
    assert transaction.writer is not None
    prepared = sink.pre_commit(transaction, stream.write(stream.batch(1))({"it": transaction.writer}).receipts("it"))
    later, again = begun(stream)
    stream.chance.move_ms(19 * HOUR_MS)
    found = later.recover(again, prepared.payload)
    assert found is not None
    stream.chance.move_ms(2 * HOUR_MS)
    sweep(stream)
    assert later.commit(again, found) is None


def test_a_young_batch_is_published_without_a_look_at_its_parts(stream: Stream) -> None:
    stream.storage.looked_at.clear()
    assert isinstance(hold_up(stream, 19, lambda: None), Committed)
    assert not [path for path in stream.storage.looked_at if "/parts/" in path]
