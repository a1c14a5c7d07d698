"""The table changes in mid-stream, or between locate and commit: rows are found and compared as they are then."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, TruncateTransform
from pyiceberg.types import DecimalType, IntegerType, LongType, NestedField

from lakesink_protocol.errors import BatchRefused, WriteError
from lakesink_protocol.outcome import Committed
from lakesink_protocol.row_changes import ChangeCounts
from lakesink_tools.audit.audit import audit
from testkit.builders import Apply, Lake
from testkit.maintenance import upgrade
from tests.upsert.rows import Row, RowStream, live_rows

NAMES = ("id", "part", "version")
ID, PART = 1, 2
SCHEMA = Schema(
    NestedField(ID, "id", IntegerType(), required=True),
    NestedField(PART, "part", IntegerType()),
    NestedField(3, "version", IntegerType()),
    identifier_field_ids=[ID],
)


def row(key: int, version: int, part: int = 1) -> Row:
    return {"id": key, "part": part, "version": version}


def stream_into(folder: Path, source: int, transform: Transform[Any, Any]) -> RowStream:
    lake = Lake.make(folder, schema=SCHEMA, spec=PartitionSpec(PartitionField(source, 1000, transform, "place")))
    return RowStream(lake, columns=pa.schema([(name, pa.int32()) for name in NAMES]))


def widen(stream: RowStream, *names: str) -> None:
    with stream.lake.table().update_schema() as change:
        for name in names:
            change.update_column(name, LongType())
    stream.columns = pa.schema([(name, pa.int64() if name in names else pa.int32()) for name in NAMES])


@pytest.mark.parametrize("transform", [IdentityTransform(), TruncateTransform(10), BucketTransform(4)], ids=str)
@pytest.mark.parametrize("source", [ID, PART], ids=["key", "another column"])
def test_rows_are_found_after_the_column_of_their_partition_was_widened(
    tmp_path: Path, source: int, transform: Transform[Any, Any]
) -> None:
    stream = stream_into(tmp_path, source, transform)
    stream.change(0, [row(key, 1, key % 2) for key in range(6)])
    stream.change(1, [row(key, 2, key % 2) for key in range(2)], [row(5, 2)])
    widen(stream, *NAMES)
    stream.change(2, [row(key, 3) for key in range(1, 4)] + [row(2**40, 3, 2**41)], [row(0, 3)])
    assert live_rows(stream.lake) == [*(row(key, 3) for key in range(1, 4)), row(4, 1, 0), row(2**40, 3, 2**41)]
    assert audit(stream.lake.table()).findings == ()


def test_a_row_that_was_deleted_after_the_widening_is_gone_for_the_next_batch(tmp_path: Path) -> None:
    """Else a late change, which a hard delete lets in, would lose against a row that no reader sees."""
    stream = stream_into(tmp_path, PART, IdentityTransform())
    stream.change(0, [row(1, 5), row(2, 5), row(3, 5)])
    widen(stream, "part")
    stream.change(1, [], [row(1, 5), row(2, 5)])
    outcome = stream.change(2, [row(1, 4)], [row(2, 9)])
    assert isinstance(outcome, Committed)
    assert outcome.changes == ChangeCounts(upserts=1, deletes=1, inserted=1, absent=1)
    assert live_rows(stream.lake) == [row(1, 4), row(3, 5)]


def test_a_key_that_is_widened_between_locate_and_commit_is_compared_as_the_wider_type(tmp_path: Path) -> None:
    stream = stream_into(tmp_path, ID, BucketTransform(2))
    stream.change(0, [row(1, 1), row(2, 1)])

    def widened_first(apply: Apply) -> CommitTableResponse:
        widen(stream, "id")
        table = stream.lake.table()
        table.append(pa.Table.from_pylist([row(2**40, 1), row(2, 0)], schema=table.schema().as_arrow()))
        return apply()

    stream.lake.catalog.faults = [widened_first]
    outcome = stream.change(1, [row(2, 2)], [row(1, 2)])
    assert isinstance(outcome, Committed)
    assert outcome.attempts == 2
    assert live_rows(stream.lake) == [row(2, 2), row(2**40, 1)]


def test_changes_that_a_rival_makes_late_fail_a_batch_at_once_if_late_changes_fail(tmp_path: Path) -> None:
    stream = stream_into(tmp_path, PART, IdentityTransform())
    stream.change(0, [row(1, 1)])
    stream.options["on_late"] = "fail"
    rival = RowStream(stream.lake, "rival", columns=stream.columns)

    def rival_first(apply: Apply) -> CommitTableResponse:
        rival.change(0, [row(1, 3)])
        return apply()

    stream.lake.catalog.faults = [rival_first]
    with pytest.raises(WriteError, match=r"CHANGES_LATE.* than 1 change of the batch"):
        stream.change(1, [row(1, 2)])
    assert len(stream.chance.waited_ms) == 1
    assert live_rows(stream.lake) == [row(1, 3)]


def test_deletes_that_were_located_before_an_upgrade_are_not_committed_after_it(tmp_path: Path) -> None:
    """Format version 3 prohibits new position delete files."""
    stream = stream_into(tmp_path, ID, IdentityTransform())
    stream.change(0, [row(1, 1), row(2, 1)])
    before = stream.lake.head()

    def comes_first(apply: Apply) -> CommitTableResponse:
        upgrade(stream.lake)
        return apply()

    stream.lake.catalog.faults = [comes_first]
    with pytest.raises(BatchRefused, match=r"LAKESINK_UNSUPPORTED.*format version 3"):
        stream.change(1, [row(1, 2)], [row(2, 2)])
    assert stream.lake.head() == before


EVOLVES = {"schema_evolution": "widen", "sequence_by": "version"}


def evolving(folder: Path, schema: Schema = SCHEMA, **options: Any) -> RowStream:
    columns = pa.schema([(name, pa.int32()) for name in NAMES])
    stream = RowStream(Lake.make(folder, schema=schema), columns=columns)
    stream.options |= EVOLVES | options
    return stream


@pytest.mark.parametrize("log", [{}, {"changelog_table": "demo.log"}], ids=["alone", "changelog"])
def test_a_batch_of_changes_adds_and_widens_columns_in_its_own_commit(tmp_path: Path, log: dict[str, Any]) -> None:
    stream = evolving(tmp_path, **log)
    stream.change(0, [row(1, 1), row(2, 1), row(3, 1)])
    stream.columns = pa.schema(
        [("id", pa.int64()), ("part", pa.int64()), ("version", pa.int64()), ("note", pa.string())]
    )
    for _ in range(2):
        stream.change(1, [row(2, 2**40) | {"note": "new"}, row(2**40, 1) | {"note": None}], [row(3, 2)])
        assert live_rows(stream.lake) == [
            row(1, 1) | {"note": None},
            row(2, 2**40) | {"note": "new"},
            row(2**40, 1) | {"note": None},
        ]
    head = stream.lake.head()
    assert head.schema_id == stream.lake.table().schema().schema_id
    assert [one.field_type for one in stream.lake.table().schema().fields[:3]] == [LongType()] * 3
    stream.change(2, [row(1, 2) | {"note": "b"}], [row(2, 1)])
    assert [(one["id"], one["note"]) for one in live_rows(stream.lake)] == [(1, "b"), (2, "new"), (2**40, None)]
    assert audit(stream.lake.table()).findings == ()


def test_a_key_of_decimals_does_not_widen(tmp_path: Path) -> None:
    key = NestedField(ID, "id", DecimalType(9, 2), required=True)
    stream = evolving(tmp_path, Schema(key, *SCHEMA.fields[1:], identifier_field_ids=[ID]))
    stream.columns = stream.columns.set(0, pa.field("id", pa.decimal128(12, 2)))
    with pytest.raises(WriteError, match="SCHEMA_MISMATCH") as refused:
        stream.change(0, [row(1, 1)])
    assert "widen" not in refused.value.action
