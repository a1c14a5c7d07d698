"""Others commit while changes by key are committed: no deleted row comes back, and no row is lost."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest
from pyiceberg.table import CommitTableResponse

from lakesink_protocol.ledger import mark_of
from lakesink_protocol.outcome import Committed
from servers.spark_sql import SparkFailed
from testkit.builders import TABLE
from testkit.change_table import Change, ChangeStream, Reference
from tests.interop.maintenance.changing import Changing, changing, connected
from tests.interop.maintenance.foreign import ALL, MERGE_ON_READ, SPARK_MAINTAINS, TRINO, Operation
from tests.interop.maintenance.lake import Lake, local

pytestmark = pytest.mark.interop
FILE_BY_FILE = "map('rewrite-all', 'true', 'max-file-group-size-bytes', '1', 'max-concurrent-file-group-rewrites', '1')"
"""So that there is time between the first new file and the commit of all."""
PATIENCE_SECONDS = 60.0
BATCHES = 30


def test_spark_gives_up_a_compaction_of_files_that_lost_rows_meanwhile(lake: Lake) -> None:
    with changing(lake) as stream, ThreadPoolExecutor(1) as beside:
        stream.run(12)
        compaction = begun(beside, stream, options=FILE_BY_FILE)
        stream.change(every_other_row(stream.reference))
        with pytest.raises(SparkFailed, match="ValidationException"):
            compaction.result()
        stream.assert_read()
        SPARK_MAINTAINS[0].do(stream)
        stream.assert_read()


def test_spark_compacts_a_partition_while_rows_of_another_one_change(lake: Lake) -> None:
    """Java knows from the delete files' bounds which data files lost rows."""
    with changing(lake, partitioned=True) as stream, ThreadPoolExecutor(1) as beside:
        stream.run(12)
        compaction = begun(beside, stream, options=FILE_BY_FILE, where="'part = \"a\"'")
        others = [row for row in stream.reference.rows.values() if row.part != "a"]
        stream.change([Change(row.key, row.version + 10**6, row.part, "", row.amount, deletes=True) for row in others])
        answer: pa.Table = compaction.result()
        assert answer["rewritten_data_files_count"].to_pylist() > [0]
        stream.assert_read()


@pytest.mark.parametrize(
    "operation",
    [
        *(SPARK_MAINTAINS[0], TRINO[0]),
        *(pytest.param(one, marks=pytest.mark.nightly) for one in ALL if one not in (SPARK_MAINTAINS[0], TRINO[0])),
    ],
    ids=lambda one: one.name,
)
def test_a_batch_is_located_again_if_another_engine_was_first(lake: Lake, operation: Operation) -> None:
    with changing(lake, partitioned=True, properties=MERGE_ON_READ) as stream:
        stream.run(10)
        heads = [stream.stream.lake.head()]

        def comes_first(apply: Callable[[], CommitTableResponse]) -> CommitTableResponse:
            operation.do(stream)
            heads.append(stream.stream.lake.head())
            return apply()

        stream.stream.lake.catalog.faults = [comes_first]
        outcome = stream.stream.run(stream.batches)
        counts = stream.reference.apply(stream.stream.changes(stream.batches))
        assert isinstance(outcome, Committed)
        is_located_again = heads[0].snapshot_id != heads[1].snapshot_id
        assert (outcome.attempts, outcome.changes) == (2 if is_located_again else 1, counts)
        stream.assert_read()


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_two_streams_change_the_same_rows_while_spark_compacts(lake: Lake) -> None:
    """The table is what their batches make in the order of the snapshots."""
    with changing(lake, partitioned=True) as stream, ThreadPoolExecutor(3) as beside:
        streams = [stream.stream, other_stream(stream)]
        stop = Event()
        refused = beside.submit(compact_until, stop, lake)
        done = [beside.submit(run_all, one) for one in streams]
        try:
            for one in done:
                one.result()
        finally:
            stop.set()
        assert not [error for error in refused.result() if "ValidationException" not in error]
        stream.reference = in_order_of_snapshots(stream, streams)
        stream.assert_read()
        SPARK_MAINTAINS[0].do(stream)
        stream.assert_read()


def begun(beside: ThreadPoolExecutor, stream: Changing, **arguments: str) -> "Future[pa.Table]":
    """A compaction that has written its first file."""
    data = local(stream.lake.load(TABLE).location()) / "data"
    before = files(data)
    compaction = beside.submit(stream.lake.call, "rewrite_data_files", TABLE, **arguments)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while files(data) == before:
        assert time.monotonic() < deadline
        assert not compaction.done(), compaction.result()
        time.sleep(0.01)
    return compaction


def files(folder: Path) -> set[Path]:
    return set(folder.rglob("*.parquet"))


def every_other_row(reference: Reference) -> list[Change]:
    """Every other row is deleted, and the next one gets another value."""
    rows = [reference.rows[key] for key in sorted(reference.rows)]
    return [
        Change(row.key, row.version + 10**6, row.part, "meanwhile", Decimal(0), deletes=place % 2 == 0)
        for place, row in enumerate(rows)
    ]


def other_stream(stream: Changing) -> ChangeStream:
    """Into the same table, with a connection of its own."""
    first = stream.stream
    return ChangeStream(
        first.lake, "other", catalog=connected(stream.lake), chance=first.chance, seed=1, keys=first.keys, size=80
    )


def run_all(stream: ChangeStream) -> None:
    for number in range(BATCHES):
        assert isinstance(stream.run(number), Committed)
        time.sleep(0.2)


def compact_until(stop: Event, lake: Lake) -> list[str]:
    """Compact again and again; returns what Spark says if it gives up."""
    said = []
    while not stop.is_set():
        try:
            SPARK_MAINTAINS[0].run(lake)
        except SparkFailed as error:
            said.append(str(error))
    return said


def in_order_of_snapshots(stream: Changing, streams: Sequence[ChangeStream]) -> Reference:
    by_key = {one.key: one for one in streams}
    marks = [mark_of(snapshot.summary) for snapshot in stream.lake.load(TABLE).metadata.snapshots]
    reference, batches = Reference(), [mark for mark in marks if mark is not None]
    assert len(batches) == BATCHES * len(streams)
    for mark in batches:
        reference.apply(by_key[mark.key].changes(mark.batch_id))
    return reference
