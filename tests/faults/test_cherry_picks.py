"""A batch that was rolled back and picked back by hand is in the table: its replay does not double it."""

from pathlib import Path

import pytest

from lakesink_protocol.errors import BatchRefused, Reason
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from testkit.builders import Lake, Stream, counted, expected
from testkit.maintenance import append_foreign, expire, roll_back


def pick(lake: Lake, snapshot_id: int) -> None:
    """As Iceberg's `cherrypick_snapshot` does: the same files in a new snapshot that names its source."""
    table = lake.table()
    source = table.snapshot_by_id(snapshot_id)
    assert source is not None
    entries = [
        entry
        for manifest in source.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.snapshot_id == snapshot_id
    ]
    properties = {"source-snapshot-id": str(snapshot_id)}
    with table.transaction() as changing, changing.update_snapshot(properties).fast_append() as appending:
        for entry in entries:
            appending.append_data_file(entry.data_file)


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """Batches 0 to 4; 3 and 4 are rolled back, and 4 is picked back: 3 was the bad one."""
    lake = Lake.make(tmp_path)
    stream = Stream(lake).filled(5)
    picked = stream.snapshot_of(4)
    roll_back(lake, stream.snapshot_of(2))
    pick(lake, picked)
    assert counted(lake) == expected(0, 1, 2, 4)
    return stream


def test_the_picked_batch_is_recognised_and_the_stream_goes_on_after_it(stream: Stream) -> None:
    assert isinstance(stream.run(4), AlreadyCommitted)
    assert isinstance(stream.run(5), Committed)
    assert isinstance(stream.run(4), AlreadyCommitted)
    assert counted(stream.lake) == expected(0, 1, 2, 4, 5)


def test_the_batch_that_was_left_out_comes_back_only_by_a_humans_word(stream: Stream) -> None:
    with pytest.raises(BatchRefused) as refused:
        stream.run(3)
    assert refused.value.reason is Reason.ROLLED_BACK
    assert "the newest batch in it is 4" in refused.value.what
    assert counted(stream.lake) == expected(0, 1, 2, 4)


def test_it_is_recognised_under_others_and_after_expiry(stream: Stream) -> None:
    foreign = append_foreign(stream.lake)
    expire(stream.lake, [stream.snapshot_of(0)])
    assert isinstance(stream.run(4), AlreadyCommitted)
    assert isinstance(stream.run(5), Committed)
    assert counted(stream.lake) == expected(0, 1, 2, 4, 5) + foreign
