"""What a message says fits the case: batch loads, files, a dropped table, a copy, a history that expired."""

import pytest

from lakesink_protocol.errors import BatchRefused, CatalogError, Reason
from lakesink_protocol.identity import Batch, SinkKind, stream_batch
from testkit.builders import TABLE, Lake, Stream, offered
from testkit.maintenance import append_foreign, edit_metadata, expire


def refused(stream: Stream, batch: Batch | int, reason: Reason) -> BatchRefused:
    with pytest.raises(BatchRefused) as caught:
        stream.run(batch)
    assert caught.value.reason is reason
    return caught.value


def test_an_older_version_hears_nothing_of_checkpoints(lake: Lake) -> None:
    load = Stream(lake, "nightly", kind=SinkKind.TXN)
    load.run(20260102)
    error = refused(load, 20260101, Reason.REWOUND)
    assert "checkpoint" not in str(error)
    assert "digest" not in str(error)
    assert 'txn=("load-2026-01-01", 1)' in error.action
    assert "never committed" in error.what


def test_over_files_nobody_is_sent_to_start_in_the_middle(lake: Lake) -> None:
    stream = Stream(lake)
    first, again = (
        stream_batch(0, query, start=None, end=[{"logOffset": 0}], source_log=["file"])
        for query in ("query-1", "query-2")
    )
    job = stream.write(stream.batch(0))
    stream.run_with(stream.sink(), first, job=job)
    sink = stream.sink()
    with pytest.raises(BatchRefused) as caught:
        stream.run_with(sink, again, job=job)
    error = caught.value
    assert error.reason is Reason.NEW_CHECKPOINT
    assert "exactly where the sink ended" not in error.action
    assert "a file source always starts at the beginning" in error.action
    assert "rows of files that the sink has already read come twice" in error.action
    assert "leaves out every file of batch 0" in error.action
    assert offered(error).keys() == {"commit", "skip"}


def test_a_table_that_was_dropped_is_said_to_be_and_not_made_anew(lake: Lake) -> None:
    stream = Stream(lake, options={"create_table": True})
    stream.run(0)
    lake.catalog.drop_table(TABLE)
    with pytest.raises(CatalogError) as caught:
        stream.run(1)
    assert caught.value.code == "LAKESINK_TABLE_MISSING"
    assert "create_table" not in caught.value.action
    assert "The rows of batch 0 were in the missing table" in caught.value.data
    assert not lake.catalog.table_exists(TABLE)


def test_a_copy_is_told_from_a_table_that_was_made_anew(lake: Lake) -> None:
    stream = Stream(lake).filled(2)
    other = "11111111-2222-3333-4444-555555555555"
    edit_metadata(lake, lambda metadata: metadata.update({"table-uuid": other}))
    error = refused(stream, 2, Reason.TABLE_REPLACED)
    assert "This table is a copy" in error.action
    assert "starts where these batches end: [2]" in error.action
    assert "brings their rows twice" in error.action


def test_an_old_batch_whose_history_expired_is_not_said_to_be_rolled_back(lake: Lake) -> None:
    stream = Stream(lake).filled(3)
    append_foreign(lake)
    expire(lake)
    error = refused(stream, 0, Reason.REWOUND)
    assert error.what.endswith("expiry hides whether it was committed.")
    assert "Nothing was rolled back" in error.action
    assert "come twice unless they were deleted" in error.action
