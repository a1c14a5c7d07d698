"""A hundred batches of changes by key while Spark and Trino work on the table: five engines read it alike."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import pytest
from pyiceberg.table.snapshots import Operation as Does
from pyiceberg.table.snapshots import Snapshot

from lakesink_protocol.ledger import mark_of
from lakesink_protocol.outcome import Committed
from testkit.builders import TABLE
from testkit.change_table import Reference
from tests.interop.maintenance.changing import Changing, changing
from tests.interop.maintenance.foreign import MERGE_ON_READ, SPARK_CHANGES, SPARK_MAINTAINS, TRINO, Operation
from tests.interop.maintenance.lake import Lake
from tests.interop.maintenance.others import KEPT, Others, ago
from tests.interop.maintenance.running import at_work
from tests.interop.maintenance.test_beside_a_stream import CONFLICTS
from tests.interop.readers.engines import OfFlink

pytestmark = [pytest.mark.interop, pytest.mark.nightly, pytest.mark.timeout(1800)]
BATCHES, AT_ONCE = 100, 10
"""Batches in all, and those without a pause in which others get a turn."""
PATIENCE_SECONDS = 300.0
LOOK_SECONDS = 0.1
MERGE, DELETE = SPARK_CHANGES[0], TRINO[0]


def test_five_engines_read_a_hundred_batches_with_others_beside_them(lake: Lake, of_flink: OfFlink) -> None:
    with changing(lake, partitioned=True, properties=MERGE_ON_READ) as stream:
        others = beside(lake)
        with watched(lake) as seen, at_work(others):
            for first in range(0, BATCHES, AT_ONCE):
                run(stream, range(first, first + AT_ONCE))
                wait_for(others, 1 + first // (4 * AT_ONCE))
        given_up = [error for one in others for _, error in one.refused]
        print(f"\ndone {[dict(one.done) for one in others]}, given up {len(given_up)} times")
        assert not [error for error in given_up if not any(word in error for word in CONFLICTS)]
        stream.reference = in_order(stream, list(seen.values()))
        stream.assert_read(of_flink)
        for operation in (SPARK_MAINTAINS[2], SPARK_MAINTAINS[3], MERGE, DELETE):
            operation.do(stream)
            stream.assert_read(of_flink)
        audit = lake.asked("audit", TABLE, "--keys")
        assert audit["findings"] == []


def beside(lake: Lake) -> Sequence[Others]:
    """Each engine with its turns."""

    def expire() -> object:
        return lake.call("expire_snapshots", TABLE, older_than=ago(KEPT))

    spark = {one.name: lambda one=one: one.run(lake) for one in (SPARK_MAINTAINS[0], MERGE)}
    return (
        Others({**spark, "Spark expire_snapshots": expire}, pause_seconds=0.5),
        Others({DELETE.name: lambda: DELETE.run(lake)}, pause_seconds=2.0),
    )


@contextmanager
def watched(lake: Lake) -> Iterator[dict[int, Snapshot]]:
    """All snapshots of the table by their ids, those that expire meanwhile too."""
    seen: dict[int, Snapshot] = {}

    def look() -> None:
        seen.update((one.snapshot_id, one) for one in lake.load(TABLE).metadata.snapshots)

    def work() -> None:
        while not stop.wait(LOOK_SECONDS):
            look()

    stop = Event()
    with ThreadPoolExecutor(1) as thread:
        looking = thread.submit(work)
        try:
            yield seen
        finally:
            stop.set()
        looking.result()
    look()


def run(stream: Changing, numbers: range) -> None:
    for number in numbers:
        assert isinstance(stream.stream.run(number), Committed)
        stream.batches += 1


def wait_for(others: Sequence[Others], times: int) -> None:
    """Until each operation was done so often: a stream that never rests can keep others from their commits."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while min(one.done[kind] for one in others for kind in one.operations) < times:
        assert time.monotonic() < deadline, [(one.done, one.refused[-1:]) for one in others]
        time.sleep(LOOK_SECONDS)


def in_order(stream: Changing, snapshots: Sequence[Snapshot]) -> Reference:
    """What the dictionary is after these snapshots, one after another."""
    stream.reference = Reference()
    batches = 0
    for snapshot in sorted(snapshots, key=lambda one: one.sequence_number or 0):
        mark = mark_of(snapshot.summary)
        if mark is not None:
            stream.reference.apply(stream.stream.changes(mark.batch_id))
            batches += 1
        elif (operation := of_others(snapshot)) is not None:
            operation.changes(stream.reference)
    assert batches == BATCHES
    return stream.reference


def of_others(snapshot: Snapshot) -> Operation | None:
    """The statement whose snapshot this is; None for a compaction."""
    assert snapshot.summary is not None
    if snapshot.summary.operation == Does.REPLACE:
        return None
    return DELETE if "trino_query_id" in snapshot.summary.additional_properties else MERGE
