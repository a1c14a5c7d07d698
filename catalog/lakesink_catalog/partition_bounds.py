"""Bounds of partition fields over a manifest: what lets a reader pass over it, and never over a matching row. Pure."""

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.manifest import PartitionFieldSummary, construct_partition_summaries
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, FloatType, IcebergType


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
