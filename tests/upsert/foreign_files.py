"""Files of other programs in a table with a key: they lack a column whose value is in their partition alone."""

from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
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

from testkit.builders import Lake
from testkit.upserts import local

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
        record_count=len(next(iter(columns.values()))),
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
