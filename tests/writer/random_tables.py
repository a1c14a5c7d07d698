"""Hypothesis strategies: schemas of every Iceberg v2 type, nested, and rows that have what breaks writers."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

ROW = "row"
LOWEST_INT, LOWEST_LONG = -(2**31) + 3, -(2**63) + 3
"""Lower, truncate[3] leaves the type's range: it wraps for Iceberg's Java and Rust, and fails for PyIceberg."""
DAY_MICROS = 24 * 60 * 60 * 1_000_000
DAYS = st.integers(-700_000, 2_900_000)
MICROS = st.one_of(
    st.integers(-DAY_MICROS * 700_000, DAY_MICROS * 2_900_000),
    st.sampled_from([-1, 0, 1, -DAY_MICROS, -DAY_MICROS - 1]),
)
TEXT = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=24),
    st.sampled_from(
        ["", "..", "%2e", "a/b", "\n", "😀" * 17, "z" * 15 + "\U0010ffff" * 3, "\ud7ff" * 17, "null", "é" * 9]
    ),
)
BINARY = st.one_of(st.binary(max_size=24), st.sampled_from([b"", b"\xff" * 20, b"\x00\xff", b"a" * 16 + b"\xff"]))


def floats(width: int) -> st.SearchStrategy[float]:
    special = st.sampled_from([math.nan, -0.0, 0.0, math.inf, -math.inf])
    return st.one_of(special, st.floats(width=width))  # type: ignore[arg-type] # 16, 32 and 64 are its literals


VALUES: dict[type[IcebergType], Callable[[Any], st.SearchStrategy[Any]]] = {
    BooleanType: lambda _: st.booleans(),
    IntegerType: lambda _: st.integers(LOWEST_INT, 2**31 - 1),
    LongType: lambda _: st.integers(LOWEST_LONG, 2**63 - 1),
    FloatType: lambda _: floats(32),
    DoubleType: lambda _: floats(64),
    DecimalType: lambda kind: st.integers(-(10**kind.precision) + 1, 10**kind.precision - 1).map(
        lambda unscaled: Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -kind.scale))
    ),
    DateType: lambda _: DAYS,
    TimeType: lambda _: st.integers(0, DAY_MICROS - 1),
    TimestampType: lambda _: MICROS,
    TimestamptzType: lambda _: MICROS,
    StringType: lambda _: TEXT,
    UUIDType: lambda _: st.uuids().map(str),
    FixedType: lambda kind: st.binary(min_size=len(kind), max_size=len(kind)),
    BinaryType: lambda _: BINARY,
}
PRIMITIVES: st.SearchStrategy[IcebergType] = st.one_of(
    st.sampled_from([kind() for kind in VALUES if kind not in (DecimalType, FixedType)]),
    st.integers(1, 38).flatmap(lambda precision: st.builds(DecimalType, st.just(precision), st.integers(0, precision))),
    st.integers(1, 20).map(FixedType),
)
KEYS = PRIMITIVES.filter(lambda kind: not isinstance(kind, FloatType | DoubleType))
TRANSFORMS = ("identity", "bucket[7]", "truncate[3]", "year", "month", "day", "hour", "void")


@dataclass(frozen=True)
class Case:
    """A schema, a spec over it, and rows in the form that `pa.array` takes for each type."""

    schema: Schema
    spec: PartitionSpec
    rows: list[dict[str, Any]]

    @property
    def arrow(self) -> pa.Table:
        """The rows under Arrow types without field ids, all nullable, as they come from Spark."""
        kinds = schema_to_pyarrow(self.schema, include_field_ids=False)
        fields = [pa.field(field.name, _plain(field.type)) for field in kinds]
        columns = [pa.array([row[field.name] for row in self.rows], field.type) for field in fields]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    @property
    def sent(self) -> pa.Table:
        """The same, but a column without any value does not come at all."""
        return self.arrow.select(
            [name for name in self.arrow.column_names if self.arrow[name].null_count < len(self.rows)]
        )


@st.composite
def cases(draw: st.DrawFn, *, partitioned: bool = True) -> Case:
    ids = iter(range(1, 1000))
    fields = [NestedField(next(ids), ROW, LongType(), required=True)]
    fields += [_field(draw, ids, f"c{index}", depth=2) for index in range(draw(st.integers(1, 5)))]
    schema = Schema(*fields)
    spec = draw(specs(schema)) if partitioned else PartitionSpec()
    count = draw(st.integers(1, 12))
    values = [draw(st.lists(_values(field), min_size=count, max_size=count)) for field in fields[1:]]
    rows = [
        {ROW: number, **{field.name: column[number] for field, column in zip(fields[1:], values, strict=True)}}
        for number in range(count)
    ]
    return Case(schema, spec, rows)


@st.composite
def specs(draw: st.DrawFn, schema: Schema) -> PartitionSpec:
    sources = [
        (field, transform)
        for field in _partitionable(schema.as_struct())
        for transform in TRANSFORMS
        if parse_transform(transform).can_transform(field.field_type)
    ]
    chosen = draw(st.lists(st.sampled_from(sources), max_size=3))
    return PartitionSpec(
        *(
            PartitionField(field.field_id, PARTITION_FIELD_ID_START + index, parse_transform(transform), f"p{index}")
            for index, (field, transform) in enumerate(chosen)
        )
    )


def _partitionable(struct: StructType) -> list[NestedField]:
    found = []
    for field in struct.fields:
        if isinstance(field.field_type, PrimitiveType):
            found.append(field)
        elif isinstance(field.field_type, StructType):
            found += _partitionable(field.field_type)
    return found


def _field(draw: st.DrawFn, ids: Any, name: str, depth: int) -> NestedField:
    return NestedField(next(ids), name, _type(draw, ids, depth), required=draw(st.booleans()))


def _type(draw: st.DrawFn, ids: Any, depth: int) -> IcebergType:
    kind = draw(st.sampled_from(["primitive", "primitive", "struct", "list", "map"])) if depth else "primitive"
    match kind:
        case "struct":
            return StructType(*(_field(draw, ids, f"s{index}", depth - 1) for index in range(draw(st.integers(1, 3)))))
        case "list":
            return ListType(next(ids), _type(draw, ids, depth - 1), element_required=draw(st.booleans()))
        case "map":
            key, value = draw(KEYS), _type(draw, ids, depth - 1)
            return MapType(next(ids), key, next(ids), value, value_required=draw(st.booleans()))
        case _:
            return draw(PRIMITIVES)


def _values(field: NestedField) -> st.SearchStrategy[Any]:
    return _of(field.field_type, required=field.required)


def _of(kind: IcebergType, *, required: bool) -> st.SearchStrategy[Any]:
    match kind:
        case StructType():
            found: st.SearchStrategy[Any] = st.fixed_dictionaries({f.name: _values(f) for f in kind.fields})
        case ListType():
            found = st.lists(_of(kind.element_type, required=kind.element_required), max_size=3)
        case MapType():
            pairs = st.tuples(_of(kind.key_type, required=True), _of(kind.value_type, required=kind.value_required))
            found = st.lists(pairs, max_size=2, unique_by=lambda pair: pair[0])
        case _:
            found = VALUES[type(kind)](kind)
    return found if required else st.one_of(st.none(), found)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type as Spark sends it: nullable throughout, without field ids, text for uuid and binary for fixed."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    if kind in (pa.large_string(), pa.uuid()):
        return pa.string()
    return pa.binary() if kind == pa.large_binary() or pa.types.is_fixed_size_binary(kind) else kind
