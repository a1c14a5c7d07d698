"""Partition values in manifests: their type, records, and bounds that let no reader pass over a matching row. Pure."""

import struct
from collections.abc import Sequence

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.manifest import PartitionFieldSummary, construct_partition_summaries
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, FloatType, IcebergType, NestedField, PrimitiveType, StructType

from lakesink_catalog.receipt import ReceiptInvalid


def partition_record(spec: PartitionSpec, schema: Schema, values: Sequence[bytes | None]) -> Record:
    """One value a field, from single-value binary form.

    Raises:
        ReceiptInvalid: A value is none of its field's type.
    """
    fields = spec.partition_type(schema).fields
    try:
        return Record(
            *(
                None if value is None else from_bytes(_primitive(field), value)
                for field, value in zip(fields, values, strict=True)
            )
        )
    except (ValueError, struct.error) as error:
        raise ReceiptInvalid("a partition value is none of its type") from error


def partition_type(spec: PartitionSpec, schema: Schema) -> StructType:
    """Optional fields of ASCII names, as the specs of Iceberg and Avro ask for; readers go by field id.

    PyIceberg takes over what a source column requires, which `void` cannot give, and lets any letter into names.
    """
    fields = spec.partition_type(schema).fields
    return StructType(*(field.model_copy(update={"name": _ascii(field.name), "required": False}) for field in fields))


def _ascii(name: str) -> str:
    return "".join(char if char.isascii() else f"_x{ord(char):X}" for char in name)


def partition_summaries(spec: PartitionSpec, schema: Schema, partitions: list[Record]) -> list[PartitionFieldSummary]:
    """Bounds of every partition field. A zero bound takes the side that includes both zeros, as readers order them."""
    found = construct_partition_summaries(spec, schema, partitions)
    return [
        _signed(summary, field.field_type)
        for summary, field in zip(found, spec.partition_type(schema).fields, strict=True)
    ]


def _signed(summary: PartitionFieldSummary, kind: IcebergType) -> PartitionFieldSummary:
    if not isinstance(kind, FloatType | DoubleType):
        return summary
    bounds = [
        to_bytes(kind, zero) if bound is not None and float(from_bytes(kind, bound)) == 0 else bound
        for bound, zero in ((summary.lower_bound, -0.0), (summary.upper_bound, 0.0))
    ]
    return PartitionFieldSummary(summary.contains_null, summary.contains_nan, *bounds)


def _primitive(field: NestedField) -> PrimitiveType:
    assert isinstance(field.field_type, PrimitiveType)
    return field.field_type
