"""Branches and tags of others that bear the names lakesink would use: none is moved, turned into the other, or lost."""

from pathlib import Path

import pytest
from pyiceberg.table.refs import SnapshotRef

from lakesink.sinks.iceberg.transaction import IcebergTransaction
from lakesink_protocol.errors import BatchRefused, CatalogError, Reason
from lakesink_protocol.identity import SinkKind
from lakesink_protocol.outcome import Committed
from testkit.builders import Lake, Stream, counted, expected
from testkit.maintenance import FOREIGN_BATCH, append_foreign, branch_off, remove_ref, roll_back


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake.make(tmp_path)
    append_foreign(lake)
    return lake


def refs(lake: Lake) -> dict[str, SnapshotRef]:
    return lake.table().metadata.refs


def test_a_tag_is_no_branch_to_write(lake: Lake) -> None:
    lake.table().manage_snapshots().create_tag(lake.head().snapshot_id, "release").commit()
    before, files = refs(lake), lake.files()
    with pytest.raises(BatchRefused) as refused:
        Stream(lake, branch="release").run(0)
    assert refused.value.reason is Reason.BRANCH_MISSING
    assert (refs(lake), lake.files()) == (before, files)


@pytest.mark.parametrize("batches_before", [0, 2])
def test_a_branch_that_bears_the_name_of_the_ledger_tag_is_left_alone(lake: Lake, batches_before: int) -> None:
    stream = Stream(lake).filled(batches_before)
    if batches_before:
        remove_ref(lake, stream.key.ledger_tag)
    branch_off(lake, stream.key.ledger_tag)
    append_foreign(lake, stream.key.ledger_tag)
    before, files = refs(lake), lake.files()
    with pytest.raises(CatalogError, match="LAKESINK_TAG_NAME_TAKEN"):
        stream.run(batches_before)
    assert (refs(lake), lake.files()) == (before, files)
    assert isinstance(stream.run(batches_before, ledger_tag=False), Committed)
    assert refs(lake)[stream.key.ledger_tag] == before[stream.key.ledger_tag]


def test_a_branch_that_takes_the_tags_name_between_look_and_request_stays(lake: Lake) -> None:
    stream = Stream(lake)
    sink = stream.sink()
    begun = sink.begin(stream.batch(0))
    assert isinstance(begun, IcebergTransaction)
    assert begun.writer is not None
    branch_off(lake, stream.key.ledger_tag)
    before = refs(lake)
    prepared = sink.pre_commit(begun, stream.write(stream.batch(0))({"it": begun.writer}).receipts("it"))
    with pytest.raises(CatalogError, match="LAKESINK_TAG_NAME_TAKEN"):
        sink.commit(begun, prepared)
    assert refs(lake) == before


def test_the_marks_of_an_application_of_the_same_name_are_none_of_the_streams(lake: Lake) -> None:
    """Its branch was published as main: the stream that bears its name has no history there."""
    branch_off(lake, "audit")
    Stream(lake, branch="audit", kind=SinkKind.TXN).run(5)
    roll_back(lake, lake.head("audit").snapshot_id)
    assert isinstance(Stream(lake).run(0), Committed)
    rows = counted(lake)
    assert {row: count for row, count in rows.items() if row[0] != FOREIGN_BATCH} == expected(0, 5)
