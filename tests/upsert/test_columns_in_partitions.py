"""Files of other programs can lack a column of the key or the sequence: then its value is in their partition alone.

Hive keeps such a column in the name of a folder, and Spark's `add_files` and `migrate` take the files as they are.
"""

from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    UUIDType,
)

from lakesink.audit.key_proof import KeyProof, KeyQuestion
from lakesink.audit.keys import prove_keys
from lakesink_protocol.outcome import Committed
from lakesink_protocol.row_changes import ChangeCounts
from testkit.builders import Lake
from testkit.upserts import local
from tests.upsert.rows import RowStream

ID, PART, VERSION = 1, 2, 3
TYPES: list[tuple[IcebergType, pa.DataType, Any]] = [
    (StringType(), pa.string(), "é\0 "),
    (LongType(), pa.int64(), -(2**63)),
    (DateType(), pa.date32(), -719162),
    (TimestampType(), pa.timestamp("us"), -62135596800000000),
    (DecimalType(38, 2), pa.decimal128(38, 2), Decimal("-999999999999999999999999.99")),
    (FixedType(2), pa.binary(2), b"\xff\x00"),
    (UUIDType(), pa.binary(16), UUID(int=2**127)),
    (BooleanType(), pa.bool_(), False),
]


def lake_of(folder: Path, part: IcebergType, *keys: int, source: int = PART) -> Lake:
    fields = [NestedField(ID, "id", LongType(), required=True), NestedField(PART, "part", part, required=PART in keys)]
    schema = Schema(*fields, NestedField(VERSION, "version", LongType()), identifier_field_ids=list(keys))
    name = {PART: "part", VERSION: "version"}[source]
    return Lake.make(folder, schema=schema, spec=PartitionSpec(PartitionField(source, 1000, IdentityTransform(), name)))


def add_file(lake: Lake, columns: dict[str, pa.Array], partition: Any, *, has_ids: bool) -> None:
    """A file becomes the table's, as it is."""
    table, path = lake.table(), lake.folder / "other.parquet"
    ids = {field.name: field.field_id for field in table.schema().fields}
    said = [{b"PARQUET:field_id": str(ids[name]).encode()} if has_ids else None for name in columns]
    fields = [
        pa.field(name, column.type, metadata=one) for (name, column), one in zip(columns.items(), said, strict=True)
    ]
    pq.write_table(pa.table(list(columns.values()), schema=pa.schema(fields)), path)
    file = DataFile.from_args(
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(partition),
        record_count=2,
        file_size_in_bytes=path.stat().st_size,
    )
    file.spec_id = table.spec().spec_id
    mapping = {"schema.name-mapping.default": table.schema().name_mapping.model_dump_json()}
    with table.transaction() as change:
        change.set_properties({} if has_ids else mapping)
        with change.update_snapshot().fast_append() as append:
            append.append_data_file(file)


def live_rows(lake: Lake) -> list[tuple[int, int]]:
    """Id and version of the live rows; PyIceberg refuses to read a required column that a file lacks."""
    found = []
    for task in lake.table().scan().plan_files():
        deletes = [pq.read_table(local(one.file_path)).column("pos").to_pylist() for one in task.delete_files]
        gone = {position for positions in deletes for position in positions}
        rows = pq.read_table(local(task.file.file_path), columns=["id", "version"]).to_pylist()
        found += [(row["id"], row["version"]) for position, row in enumerate(rows) if position not in gone]
    return sorted(found)


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
