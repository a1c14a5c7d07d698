"""Predicates at the edges of what a column holds, and which rows they ask for by the rules of plain Python."""

import math
import operator
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

import numpy as np
from pyiceberg.expressions import (
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotNaN,
    NotNull,
    StartsWith,
)
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
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

Path = tuple[str, ...]
COMPARISONS: Mapping[str, tuple[Callable[..., BooleanExpression], Callable[[Any, Any], Any]]] = {
    "==": (EqualTo, operator.eq),
    "<": (LessThan, operator.lt),
    "<=": (LessThanOrEqual, operator.le),
    ">": (GreaterThan, operator.gt),
    ">=": (GreaterThanOrEqual, operator.ge),
}
CHECKS: Mapping[str, tuple[Callable[..., BooleanExpression], Callable[[Any], bool]]] = {
    "is null": (IsNull, lambda value: value is None),
    "is not null": (NotNull, lambda value: value is not None),
    "is nan": (IsNaN, lambda value: value is not None and math.isnan(value)),
    "is not nan": (NotNaN, lambda value: value is not None and not math.isnan(value)),
}


@dataclass(frozen=True)
class Predicate:
    """A condition on one column.

    Attributes:
        path: The column, from the top through structs.
        operator: A key of `COMPARISONS` or `CHECKS`, or ``in``, or ``starts with``.
        operand: What it is compared with: a value, values for ``in``, None for checks.
    """

    path: Path
    operator: str
    operand: Any = None

    @property
    def expression(self) -> BooleanExpression:
        name = ".".join(self.path)
        if self.operator in COMPARISONS:
            return COMPARISONS[self.operator][0](name, self.operand)
        if self.operator in CHECKS:
            return CHECKS[self.operator][0](name)
        among: Callable[..., BooleanExpression] = In if self.operator == "in" else StartsWith
        return among(name, self.operand)

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Whether it asks for the row."""
        value = value_at(row, self.path)
        if self.operator in CHECKS:
            return CHECKS[self.operator][1](value)
        if value is None:
            return False
        if self.operator in COMPARISONS:
            return bool(COMPARISONS[self.operator][1](value, self.operand))
        return value in self.operand if self.operator == "in" else bool(value.startswith(self.operand))


def value_at(row: Mapping[str, Any], path: Path) -> Any:
    value: Any = row
    for name in path:
        value = None if value is None else value[name]
    return value


def columns_of(struct: StructType, above: Path = ()) -> Iterator[tuple[Path, NestedField]]:
    """Columns that have bounds: primitive and outside lists and maps."""
    for field in struct.fields:
        path = (*above, field.name)
        if isinstance(field.field_type, StructType):
            yield from columns_of(field.field_type, path)
        elif isinstance(field.field_type, PrimitiveType):
            yield path, field


def predicates_on(path: Path, kind: PrimitiveType, points: Iterable[Any]) -> Iterator[Predicate]:
    """Every operator at every point and at its neighbours: just inside and just outside of what a column holds."""
    floating = isinstance(kind, FloatType | DoubleType)
    yield from (Predicate(path, check) for check in CHECKS if floating or "nan" not in check)
    for edge in sorted({near for point in points for near in (point, *neighbours(kind, point))}):
        yield from (Predicate(path, comparison, edge) for comparison in COMPARISONS)
        yield Predicate(path, "in", (edge,))
        if isinstance(kind, StringType):
            yield from (Predicate(path, "starts with", edge[:length]) for length in (1, 8, 16, 17, 99))


def neighbours(kind: PrimitiveType, value: Any) -> Iterator[Any]:
    """The values of the type next to one, below and above; for text and bytes some that are close."""
    for step in (-1, 1):
        with suppress(OverflowError):
            yield _STEPS[type(kind)](kind, value, step)


def _bounded(value: int, low: int, high: int) -> int:
    if not low <= value < high:
        raise OverflowError
    return value


def _next_float(width: type[np.floating[Any]], value: float, step: int) -> float:
    return float(np.nextafter(width(value), width(step * math.inf)))


def _next_decimal(kind: DecimalType, value: Decimal, step: int) -> Decimal:
    unscaled = int(value.scaleb(kind.scale, _EXACT)) + step
    return Decimal(_bounded(unscaled, 1 - 10**kind.precision, 10**kind.precision)).scaleb(-kind.scale, _EXACT)


def _next_fixed(value: bytes, step: int) -> bytes:
    return (int.from_bytes(value, "big") + step).to_bytes(len(value), "big")


def _next_time(value: time, step: int) -> time:
    """A day is a circle: below the first comes the last, which is a good point too."""
    return (datetime.combine(date(2000, 1, 1), value) + timedelta(microseconds=step)).time()


_EXACT = Context(prec=80)
_STEPS: Mapping[type[IcebergType], Callable[[Any, Any, int], Any]] = {
    BooleanType: lambda _kind, value, _step: not value,
    IntegerType: lambda _, value, step: _bounded(value + step, -(2**31), 2**31),
    LongType: lambda _, value, step: _bounded(value + step, -(2**63), 2**63),
    FloatType: lambda _, value, step: _next_float(np.float32, value, step),
    DoubleType: lambda _, value, step: _next_float(np.float64, value, step),
    DecimalType: _next_decimal,
    DateType: lambda _, value, step: value + timedelta(days=step),
    TimeType: lambda _, value, step: _next_time(value, step),
    TimestampType: lambda _, value, step: value + timedelta(microseconds=step),
    TimestamptzType: lambda _, value, step: value + timedelta(microseconds=step),
    StringType: lambda _, value, step: value[:-1] if step < 0 else f"{value}\0",
    BinaryType: lambda _, value, step: value[:-1] if step < 0 else value + b"\0",
    UUIDType: lambda _, value, step: str(uuid.UUID(int=_bounded(uuid.UUID(value).int + step, 0, 2**128))),
    FixedType: lambda _, value, step: _next_fixed(value, step),
}
