"""Conditions on the columns of decoded documents: a small part of Spark SQL, with Spark's meaning. Pure.

Every operand has one type, known before a row comes. Where Spark would cast values to compare them, or would round a
result, the condition is refused: its meaning would be in the cast.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.rows.scalars import text
from lakesink.rows.schema import Field, Primitive, Struct, arrow_type
from lakesink_catalog.spark_types import sql_name, sql_type
from lakesink_protocol.suggest import did_you_mean


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column, or by more names a field of a struct in it."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Literal:
    """A value, as it is written."""

    written: str
    kind: pa.DataType


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or a function: ``AND``, ``<=``, ``length``, ..."""

    name: str
    args: tuple["Condition", ...]


Condition = ColumnRef | Literal | Call
Evaluate = Callable[[pa.RecordBatch], Any]
"""Values of rows; one scalar if no column is in it."""

FUNCTIONS: Mapping[str, range] = {"length": range(1, 2), "trim": range(1, 2), "coalesce": range(2, 100)}
"""How many arguments they take."""
MOST_DIGITS = 38
_COMPARE: Mapping[str, Callable[..., Any]] = {
    "coalesce": pc.coalesce,
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_ORDER = frozenset({"<", "<=", ">", ">="})


def _equal(one: Any, other: Any) -> Any:
    """Whether floats are equal: NaN is equal to itself, as in Spark."""
    return pc.or_(pc.equal(one, other), pc.and_(pc.is_nan(one), pc.is_nan(other)))


def _less(one: Any, other: Any) -> Any:
    """Whether one float is less: NaN is greater than all numbers, as in Spark."""
    return pc.or_(pc.less(one, other), pc.and_not(pc.is_nan(other), pc.is_nan(one)))


_FLOAT_COMPARE: Mapping[str, Callable[..., Any]] = {
    "=": _equal,
    "<>": lambda one, other: pc.invert(_equal(one, other)),
    "<": _less,
    "<=": lambda one, other: pc.invert(_less(other, one)),
    ">": lambda one, other: _less(other, one),
    ">=": lambda one, other: pc.invert(_less(one, other)),
}
_ARITHMETIC: Mapping[str, Callable[..., Any]] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_OF_ONE_TYPE: Mapping[str, tuple[pa.DataType | None, pa.DataType, Callable[..., Any]]] = {
    "AND": (pa.bool_(), pa.bool_(), lambda *values: reduce(pc.and_kleene, values)),
    "OR": (pa.bool_(), pa.bool_(), lambda *values: reduce(pc.or_kleene, values)),
    "NOT": (pa.bool_(), pa.bool_(), pc.invert),
    "IS NULL": (None, pa.bool_(), pc.is_null),
    "LIKE": (pa.string(), pa.bool_(), lambda values, pattern: pc.match_like(values, pattern.as_py())),
    "length": (pa.string(), pa.int32(), pc.utf8_length),
    "trim": (pa.string(), pa.string(), lambda values: pc.utf8_trim(values, " ")),
}
"""The type that they take, or any, the type that they give, and how."""
_INTEGERS: Mapping[pa.DataType, int] = {pa.int32(): 10, pa.int64(): 20}
"""With the digits of the decimals to which Spark converts them."""
_WIDEST = pa.decimal256(41, 0)
"""Holds any sum and product of two of them."""


@dataclass(frozen=True, slots=True)
class _Typed:
    """A part of a condition with its type; `written` is the text of a literal."""

    kind: pa.DataType
    of: Evaluate
    written: str | None = None
    may_overflow: bool = False

    @property
    def is_float(self) -> bool:
        return bool(pa.types.is_floating(self.kind))

    @property
    def is_number(self) -> bool:
        return self.kind in _INTEGERS or self.is_float or bool(pa.types.is_decimal(self.kind))

    @property
    def digits(self) -> tuple[int, int]:
        """Those of an exact number before and after the point."""
        if pa.types.is_decimal(self.kind):
            return self.kind.precision - self.kind.scale, self.kind.scale
        return _INTEGERS[self.kind] if self.written is None else len(self.written.lstrip("-0")) or 1, 0

    def cast(self, kind: pa.DataType) -> Evaluate:
        """Its values in a type that holds them."""
        if self.written is not None:
            value = text(self.written).cast(kind)
            return lambda _: value
        of = self.of
        return of if kind == self.kind else lambda batch: of(batch).cast(kind)


def evaluator(
    condition: Condition, columns: Struct, rule: Callable[[str], str]
) -> Callable[[pa.RecordBatch], pa.Array]:
    """Which rows make a condition true, false or NULL; raises ValueError if it has no meaning on these columns.

    Names are the same if `rule` makes them the same.
    """
    found = _Typing(columns, rule).of(condition)
    if found.kind != pa.bool_():
        raise ValueError(f"it is {sql_type(found.kind)}, not a condition (BOOLEAN)")

    def evaluate(batch: pa.RecordBatch) -> pa.Array:
        values = found.of(batch)
        return pa.repeat(values, batch.num_rows) if isinstance(values, pa.Scalar) else values

    return evaluate


@dataclass(frozen=True, slots=True)
class _Typing:
    """Finds the types of the parts of a condition, and how to evaluate them."""

    columns: Struct
    rule: Callable[[str], str]

    def of(self, part: Condition) -> _Typed:
        """A part with its type; raises ValueError if it has none."""
        match part:
            case ColumnRef(path):
                return self._column(path)
            case Literal(written, kind):
                value = text(written).cast(kind)
                return _Typed(kind, lambda _: value, written)
            case Call(name, args):
                return _call(name, [self.of(one) for one in args])

    def _column(self, path: Sequence[str]) -> _Typed:
        fields: Sequence[Field] = self.columns.fields
        found: list[Field] = []
        for name in path:
            same = [one for one in fields if self.rule(one.name) == self.rule(name)]
            if len(same) != 1:
                hint = did_you_mean(name, [one.name for one in fields])
                raise ValueError(f"there is no column {sql_name(*path)}. {hint}".rstrip())
            found += same
            fields = same[0].type.fields if isinstance(same[0].type, Struct) else ()
        column, *within = [one.name for one in found]
        kind = arrow_type(found[-1].type)

        def of(batch: pa.RecordBatch) -> Any:
            values = batch.column(column)
            for name in within:
                values = pc.struct_field(values, name)
            return values.cast(kind) if values.type != kind and isinstance(found[-1].type, Primitive) else values

        return _Typed(kind, of)


def _call(name: str, args: Sequence[_Typed]) -> _Typed:
    if name in _ARITHMETIC:
        return _arithmetic(name, *args)
    if name in _OF_ONE_TYPE:
        takes, kind, apply = _OF_ONE_TYPE[name]
        other = next((one for one in args if takes not in (None, one.kind)), None)
        if other is not None:
            raise ValueError(f"{name} takes {sql_type(takes)}, not {sql_type(other.kind)}")
        parts = [one.of for one in args]
    else:
        common = _common(args)
        apply, parts = _comparison(name, common), [one.cast(common) for one in args]
        kind = common if name == "coalesce" else pa.bool_()
    return _Typed(kind, lambda batch: apply(*(one(batch) for one in parts)))


def _comparison(name: str, kind: pa.DataType) -> Callable[..., Any]:
    if name == "IN":
        if pa.types.is_floating(kind):
            raise ValueError("IN takes no FLOAT or DOUBLE")
        return lambda value, *items: reduce(pc.or_kleene, (pc.equal(value, item) for item in items))
    if kind == pa.bool_() and name in _ORDER:
        raise ValueError(f"{name} cannot compare BOOLEAN values")
    return _FLOAT_COMPARE[name] if pa.types.is_floating(kind) and name in _FLOAT_COMPARE else _COMPARE[name]


def _common(args: Sequence[_Typed]) -> pa.DataType:
    """The type in which values are compared."""
    kinds = list(dict.fromkeys(one.kind for one in args))
    if all(one.is_number for one in args):
        if any(one.is_float for one in args):
            exact = next((one.kind for one in args if not one.is_float and one.written is None), None)
            if exact is not None:
                raise ValueError(f"it compares {sql_type(exact)} with FLOAT or DOUBLE, which rounds")
            return pa.float64()
        if all(kind in _INTEGERS for kind in kinds):
            return pa.int64() if pa.int64() in kinds else pa.int32()
        far = next(
            (one.written for one in args if one.written and not -(2**63) <= Decimal(one.written) <= 2**63 - 1), None
        )
        if far is not None and not _INTEGERS.keys().isdisjoint(kinds):  # Spark compares even NULL with it
            raise ValueError(f"it compares INT or BIGINT with {far}, which no BIGINT can reach")
        return _decimal(*(max(parts) for parts in zip(*(one.digits for one in args), strict=True)))
    if len(kinds) > 1:
        raise ValueError(f"it compares {sql_type(kinds[0])} with {sql_type(kinds[1])}")
    [kind] = kinds
    if kind not in (pa.bool_(), pa.string(), pa.date32()) and not pa.types.is_timestamp(kind):
        raise ValueError(f"values of {sql_type(kind)} cannot be compared, only IS NULL")
    return kind


def _decimal(whole: int, scale: int) -> pa.DataType:
    if whole + scale > MOST_DIGITS:
        raise ValueError(f"{whole + scale} digits are needed for exact numbers, and {MOST_DIGITS} are possible")
    return pa.decimal128(whole + scale, scale)


def _arithmetic(name: str, left: _Typed, right: _Typed) -> _Typed:
    """Exact numbers. A result that is no INT or BIGINT, where Spark's query would fail, is NULL."""
    both, apply = (left, right), _ARITHMETIC[name]
    wrong = next((one for one in both if not one.is_number or one.is_float), None)
    if wrong is not None:
        raise ValueError(f"{name} takes INT, BIGINT and DECIMAL, not {sql_type(wrong.kind)}")
    if left.kind in _INTEGERS and right.kind in _INTEGERS:
        if left.may_overflow or right.may_overflow:  # Spark orders operations anew, and others overflow
            raise ValueError(f"{name} of INT or BIGINT takes no other sum or product of them")
        kind = pa.int64() if pa.int64() in (left.kind, right.kind) else pa.int32()
        limit = 2 ** (kind.bit_width - 1)
        lowest, highest = (text(str(one)).cast(_WIDEST) for one in (-limit, limit - 1))
        nothing = pa.nulls(1, _WIDEST)[0]
        one, other = (part.cast(pa.decimal256(20, 0)) for part in both)

        def of(batch: pa.RecordBatch) -> Any:
            exact = apply(one(batch), other(batch)).cast(_WIDEST)
            fits = pc.and_(pc.greater_equal(exact, lowest), pc.less_equal(exact, highest))
            return pc.if_else(fits, exact, nothing).cast(kind)

        return _Typed(kind, of, may_overflow=True)
    (whole, scale), (other_whole, other_scale) = (part.digits for part in both)
    if name == "*":
        kind = _decimal(whole + other_whole + 1, scale + other_scale)
    else:
        kind = _decimal(max(whole, other_whole) + 1, max(scale, other_scale))
    one, other = (part.cast(_decimal(*part.digits)) for part in both)
    return _Typed(kind, lambda batch: apply(one(batch), other(batch)))
