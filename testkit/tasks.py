"""How tests write the files of a task: plans, writers, and what they wrote, read by others. No Spark."""

import struct
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import from_bytes
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.partitioning import PartitionField as IcebergPartitionField
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import parse_transform
from pyiceberg.types import IcebergType, NestedField, PrimitiveType

from lakesink.parquet.partitions import PartitionSource, partition_sources
from lakesink.rows.expectations import Expected
from lakesink.rows.plan import PartitionField, WritePlan
from lakesink.rows.schema import parse_schema
from lakesink.task.task import ParquetTaskWriter
from lakesink_protocol.change import ContentFile
from lakesink_protocol.receipt import Receipt, decode

Row = dict[str, Any]


def plan_for(
    schema: Schema, folder: Path | str, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC, **overrides: Any
) -> WritePlan:
    fields = tuple(PartitionField(f.source_id, f.field_id, f.name, str(f.transform)) for f in spec.fields)
    settings: dict[str, Any] = {
        "schema_json": schema.model_dump_json(),
        "schema_id": schema.schema_id,
        "spec_id": spec.spec_id,
        "partition_fields": fields,
        "data_location": str(folder),
        "file_stem": "events-7",
        **overrides,
    }
    return WritePlan(**settings)


def spec_of(*transforms: str, source_ids: Sequence[int] = (1, 1, 1)) -> PartitionSpec:
    return PartitionSpec(
        *(
            IcebergPartitionField(
                source_id, PARTITION_FIELD_ID_START + number, parse_transform(transform), f"p{number}"
            )
            for number, (transform, source_id) in enumerate(zip(transforms, source_ids, strict=False))
        )
    )


def column(kind: IcebergType) -> Schema:
    return Schema(NestedField(1, "c", kind))


def sources_of(schema: Schema, spec: PartitionSpec) -> tuple[PartitionSource, ...]:
    return partition_sources(parse_schema(schema.model_dump_json()), plan_for(schema, "/", spec).partition_fields)


def write_values(
    values: Sequence[Any], kind: pa.DataType, schema: Schema, spec: PartitionSpec, folder: Path
) -> Receipt:
    batch = pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["c"])
    return write(plan_for(schema, folder, spec), [batch])


def writer_of(plan: WritePlan, expected: Sequence[Expected] = ()) -> Any:
    """The writer of a task."""
    return ParquetTaskWriter(plan, tuple(expected))


def write(plan: WritePlan, batches: Iterable[pa.RecordBatch], task: int = 0, **given: Any) -> Receipt:
    return decode(writer_of(plan, **given).write(task, iter(batches)))


def in_batches(table: pa.Table, rows: int) -> list[pa.RecordBatch]:
    return list(table.to_batches(max_chunksize=rows))


def local(path: str) -> str:
    return path.removeprefix("file://")


def footer(file: ContentFile) -> pq.FileMetaData:
    return pq.read_metadata(local(file.path))


def rows_of(files: Sequence[ContentFile]) -> list[Row]:
    """All rows, read by PyArrow file by file."""
    return [row for file in files for row in pq.ParquetFile(local(file.path)).read().to_pylist()]


def rows_by_duckdb(files: Sequence[ContentFile]) -> list[Row]:
    paths = [local(file.path) for file in files]
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        read = connection.read_parquet(paths, hive_partitioning=False)
        rows: list[Row] = read.to_arrow_table().to_pylist()
        return rows


def exactly(value: Any) -> Any:
    """A form in which equal means the same bits: -0.0 is not 0.0, a NaN is a NaN, whoever read it."""
    if isinstance(value, float):
        return "nan" if value != value else struct.pack("<d", value)  # noqa: PLR0124 - how a NaN is told
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, dict):
        return {key: exactly(part) for key, part in value.items()}
    return [exactly(part) for part in value] if isinstance(value, list | tuple) else value


@contextmanager
def new_table(folder: Path, schema: Schema, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC) -> Iterator[Table]:
    """A table in a catalog of its own; its field ids are its own too."""
    catalog = SqlCatalog("test", uri="sqlite:///:memory:", warehouse=f"file://{folder}")
    try:
        catalog.create_namespace("demo")
        properties = {"format-version": "2"}
        yield catalog.create_table(f"demo.t{uuid.uuid4().hex}", schema, partition_spec=spec, properties=properties)
    finally:
        catalog.destroy_tables()
        catalog.close()


def table_in_memory(
    schema: Schema, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC, properties: Mapping[str, str] | None = None
) -> Table:
    """A table without a catalog and without a file, for what reads its metadata only."""
    metadata = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, "file:///t", dict(properties or {}))
    io = load_file_io({}, "file:///t")
    return Table(("demo", "events"), metadata, "file:///t/metadata/v1.metadata.json", io, NoopCatalog("none"))


def partition_values(table: Table, file: ContentFile) -> list[Any]:
    """The values of a file's partition as PyIceberg decodes them."""
    values = []
    for field, value in zip(table.spec().partition_type(table.schema()).fields, file.partition, strict=True):
        assert isinstance(field.field_type, PrimitiveType)
        values.append(None if value is None else from_bytes(field.field_type, value))
    return values
