"""Partition values in manifests: types, records, and bounds with which no reader skips a matching row. Pure."""

import math
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any

from pyiceberg import types
from pyiceberg.manifest import PartitionFieldSummary
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata


class Kind(StrEnum):
    """How values of a partition field are ordered and encoded; named by the Avro type, except decimals."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"
    FIXED = "fixed"
    DECIMAL = "decimal"


_PACKED: Mapping[Kind, struct.Struct] = {
    Kind.BOOLEAN: struct.Struct("<?"),
    Kind.INT: struct.Struct("<i"),
    Kind.LONG: struct.Struct("<q"),
    Kind.FLOAT: struct.Struct("<f"),
    Kind.DOUBLE: struct.Struct("<d"),
}
_NARROW: Mapping[Kind, Kind] = {Kind.LONG: Kind.INT, Kind.DOUBLE: Kind.FLOAT}
_FLOATING = (Kind.FLOAT, Kind.DOUBLE)
_PLAIN: Mapping[type[types.IcebergType], Kind] = {
    types.BooleanType: Kind.BOOLEAN,
    types.IntegerType: Kind.INT,
    types.DateType: Kind.INT,
    types.FloatType: Kind.FLOAT,
    types.DoubleType: Kind.DOUBLE,
    types.DecimalType: Kind.DECIMAL,
    types.StringType: Kind.STRING,
}
_LONGS = ("long", "time", "timestamp")


def single_value(kind: Kind, value: Any) -> bytes | None:
    """A value that was decoded from Avro, in Iceberg's single-value binary form."""
    if value is None:
        return None
    if kind in _PACKED:
        return _PACKED[kind].pack(value)
    if kind is Kind.STRING:
        return bytes(value.encode())
    return _shortest(int.from_bytes(value, "big", signed=True)) if kind is Kind.DECIMAL else bytes(value)


def promoted(kinds: Sequence[Kind], partition: Sequence[bytes | None]) -> tuple[bytes | None, ...]:
    """Values as these kinds have them: a file's value has the type that its column had before it was widened."""
    return tuple(
        _PACKED[kind].pack(_PACKED[_NARROW[kind]].unpack(value)[0])
        if kind in _NARROW and value is not None and len(value) == _PACKED[_NARROW[kind]].size
        else value
        for kind, value in zip(kinds, partition, strict=True)
    )


def schema_for(spec: PartitionSpec, metadata: TableMetadata) -> Schema | None:
    """The present or newest schema with all source columns of a spec: a column of an old spec may have been dropped."""
    sources = {part.source_id for part in spec.fields}
    newest = sorted(metadata.schemas, key=lambda one: (one.schema_id == metadata.current_schema_id, one.schema_id))
    return next((one for one in newest[::-1] if all(map(one.find_column_name, sources))), None)


def kinds_of(spec: PartitionSpec, schema: Schema) -> tuple[Kind, ...]:
    """The kind of every partition field."""
    found = [field.field_type for field in spec.partition_type(schema).fields]
    return tuple(Kind.LONG if str(one).startswith(_LONGS) else _PLAIN.get(type(one), Kind.BYTES) for one in found)


def summaries(
    kinds: Sequence[Kind], partitions: Collection[Sequence[bytes | None]]
) -> tuple[PartitionFieldSummary, ...]:
    """Bounds of every partition field. A zero bound gets the sign that includes both zeros in the order of readers.

    `partitions` are in single-value binary form, one value per field.
    """
    return tuple(_summary(kind, {partition[place] for partition in partitions}) for place, kind in enumerate(kinds))


def partition_type(spec: PartitionSpec, schema: Schema) -> types.StructType:
    """Optional fields with ASCII names, as the specs of Iceberg and Avro require; readers use field ids.

    PyIceberg would copy "required" from a source column, which `void` cannot satisfy, and would allow any letter in
    names.
    """
    fields = spec.partition_type(schema).fields
    names = ["".join(char if char.isascii() else f"_x{ord(char):X}" for char in field.name) for field in fields]
    changes = [{"name": name, "required": False} for name in names]
    return types.StructType(*(field.model_copy(update=change) for field, change in zip(fields, changes, strict=True)))


def _summary(kind: Kind, found: Collection[bytes | None]) -> PartitionFieldSummary:
    order = _order(kind)
    there = [value for value in found if value is not None]
    known = [value for value in there if kind not in _FLOATING or not math.isnan(order(value))]
    return PartitionFieldSummary.from_args(
        contains_null=len(there) < len(found),
        contains_nan=len(known) < len(there),
        lower_bound=_bound(kind, min(known, key=order), -0.0) if known else None,
        upper_bound=_bound(kind, max(known, key=order), 0.0) if known else None,
    )


def _bound(kind: Kind, value: bytes, zero: float) -> bytes:
    if kind in _FLOATING and _order(kind)(value) == 0:
        return _PACKED[kind].pack(zero)
    return _shortest(_order(kind)(value)) if kind is Kind.DECIMAL else value


def _order(kind: Kind) -> Callable[[bytes], Any]:
    """The sort key for values of a kind; texts and bytes compare by their unsigned bytes."""
    if kind in _PACKED:
        unpack = _PACKED[kind].unpack
        return lambda value: unpack(value)[0]
    if kind is Kind.DECIMAL:
        return lambda value: int.from_bytes(value, "big", signed=True)
    return lambda value: value


def _shortest(unscaled: int) -> bytes:
    """Two's complement, big endian, in the fewest possible bytes."""
    magnitude = unscaled if unscaled >= 0 else ~unscaled
    return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)
