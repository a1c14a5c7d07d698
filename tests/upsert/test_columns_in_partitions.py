"""Files of other programs can lack a column of the key or the sequence: then its value is in their partition alone.

Hive keeps such a column in the name of a folder, and Spark's `add_files` and `migrate` take the files as they are.
"""

from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.types import IcebergType, StringType

from lakesink.read.batch_files import files_of
from lakesink.read.begin import Begin, beginning
from lakesink.read.follow import unread_batches
from lakesink.read.steps import SinkBatches
from lakesink_catalog.manifests.live_reading import LiveMemory
from lakesink_protocol.outcome import Committed
from lakesink_protocol.row_changes import ChangeCounts
from lakesink_tools.audit.key_proof import KeyProof, KeyQuestion
from lakesink_tools.audit.key_scan import prove_keys
from lakesink_tools.operate.outbox.batch_records import BatchRecords
from testkit.builders import Lake
from tests.upsert.foreign_files import ID, PART, TYPES, VERSION, add_file, lake_of, live_rows
from tests.upsert.rows import RowStream


def stored(kind: IcebergType, arrow: pa.DataType, value: Any) -> pa.Array:
    """The value of a partition as an array."""
    plain = value.bytes if isinstance(value, UUID) else value
    return pa.array([plain], {"date": pa.int32(), "timestamp": pa.int64()}.get(str(kind), arrow)).view(arrow)


def stream_of(lake: Lake, part: pa.DataType) -> RowStream:
    stream = RowStream(lake, columns=pa.schema([("id", pa.int64()), ("part", part), ("version", pa.int64())]))
    stream.options["keys"] = ["id", "part"]
    return stream


def proof_of(lake: Lake, *columns: str) -> KeyProof:
    return prove_keys(lake.table(), KeyQuestion(columns, show_values=True))


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize(("kind", "arrow", "value"), TYPES, ids=[str(one[0]) for one in TYPES])
def test_rows_are_found_by_a_key_that_only_the_partition_tells(
    tmp_path: Path, kind: IcebergType, arrow: pa.DataType, value: Any, *, has_ids: bool
) -> None:
    lake = lake_of(tmp_path, kind, ID, PART)
    add_file(lake, {"id": pa.array([1, 2]), "version": pa.array([7, 7])}, value, has_ids=has_ids)
    [part], stream = stored(kind, arrow, value), stream_of(lake, arrow)
    outcome = stream.change(0, [{"id": 1, "part": part, "version": 9}], [{"id": 2, "part": part, "version": 9}])
    assert isinstance(outcome, Committed)
    assert outcome.changes == ChangeCounts(upserts=1, deletes=1, updated=1, deleted=1)
    assert live_rows(lake) == [(1, 9)]


@pytest.mark.parametrize("has_ids", [True, False])
def test_changes_are_compared_with_a_sequence_that_only_the_partition_tells(tmp_path: Path, *, has_ids: bool) -> None:
    lake = lake_of(tmp_path, StringType(), ID, source=VERSION)
    add_file(lake, {"id": pa.array([1, 2]), "part": pa.array(["a", "a"])}, 7, has_ids=has_ids)
    stream = RowStream(lake, columns=pa.schema([("id", pa.int64()), ("part", pa.string()), ("version", pa.int64())]))
    outcome = stream.change(0, [{"id": 1, "part": "b", "version": 6}], [{"id": 2, "version": 8}])
    assert isinstance(outcome, Committed)
    assert outcome.changes == ChangeCounts(upserts=1, deletes=1, deleted=1, late_upserts=1)
    assert lake.table().scan().to_arrow().to_pylist() == [{"id": 1, "part": "a", "version": 7}]


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize(("kind", "arrow", "value"), TYPES, ids=[str(one[0]) for one in TYPES])
def test_a_key_that_only_the_partition_tells_is_proved(
    tmp_path: Path, kind: IcebergType, arrow: pa.DataType, value: Any, *, has_ids: bool
) -> None:
    lake = lake_of(tmp_path, kind, ID, PART)
    add_file(lake, {"id": pa.array([1, 2]), "version": pa.array([7, 7])}, value, has_ids=has_ids)
    part = stored(kind, arrow, value)
    assert isinstance(stream_of(lake, arrow).change(0, [{"id": 1, "part": part[0], "version": 9}]), Committed)

    whole = proof_of(lake)
    assert (whole.columns, whole.rows, whole.keys, whole.repeated, whole.nulls) == (("id", "part"), 2, 2, 0, 0)
    only_part = proof_of(lake, "part")
    assert (only_part.rows, only_part.keys, only_part.repeated, only_part.nulls) == (2, 1, 1, 0)
    assert sorted(rows for _, rows in only_part.files) == [1, 1]
    assert only_part.values is not None
    assert only_part.values.column("part").combine_chunks().to_pylist() == part.to_pylist()


def test_a_key_column_that_neither_file_nor_partition_has_is_null(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, StringType(), ID)
    add_file(lake, {"id": pa.array([1, 2]), "version": pa.array([7, 7])}, None, has_ids=True)
    proof = proof_of(lake, "id", "part")
    assert (proof.rows, proof.keys, proof.nulls) == (2, 0, 2)


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize(("kind", "arrow", "value"), TYPES, ids=[str(one[0]) for one in TYPES])
def test_the_outbox_tells_the_key_of_a_deleted_row_that_another_program_wrote(
    tmp_path: Path, kind: IcebergType, arrow: pa.DataType, value: Any, *, has_ids: bool
) -> None:
    lake = lake_of(tmp_path, kind, ID, PART)
    add_file(lake, {"id": pa.array([1, 2]), "version": pa.array([7, 7])}, value, has_ids=has_ids)
    [part], stream = stored(kind, arrow, value), stream_of(lake, arrow)
    rows = [{"id": number, "part": part, "version": 9} for number in (1, 2)]
    stream.change(0, rows[:1], rows[1:])
    [updated, deleted] = records_of_last_batch(lake)
    stream.change(1, rows[1:])
    [inserted] = records_of_last_batch(lake)
    assert (updated["key"], deleted["key"]) == (inserted["key"].replace(b'"id":2', b'"id":1'), inserted["key"])
    assert deleted["value"] is None
    assert None not in (updated["value"], inserted["value"])


def records_of_last_batch(lake: Lake) -> list[dict[str, Any]]:
    table, sink = lake.table(), SinkBatches("events", "main")
    start = beginning(table, lake.name, sink, Begin.EARLIEST)
    past, unread = unread_batches(table, lake.name, sink, start, changes=True)
    [batch] = files_of(table, past, unread.batches[-1:])
    batches = BatchRecords(table, past, batch, ["id", "part"], LiveMemory()).read()
    return [record for records in batches for record in records.to_pylist()]
