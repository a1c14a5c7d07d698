"""Iceberg's partition transforms over Arrow arrays, by `pyiceberg_core`, and their values as text for paths.

Files are grouped by these values, so equal values must have equal bits: all NaNs become one; -0.0 stays distinct from
0.0, as in Iceberg's order.
"""

import math
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from functools import partial
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg_core import transform as core

from lakesink.parquet.single_value import Raw, raw_values
from lakesink.rows.scalars import int64
from lakesink.rows.schema import Primitive
from lakesink.rows.task_errors import schema_mismatch, shown

_SPELLING = re.compile(r"(\w+)(?:\[(\d+)\])?")
_INT = Primitive("int")
_SIZED = ("bucket", "truncate")
_WIDEST = 2**31 - 1
_MICROS_AN_HOUR = 3_600_000_000
_MICROS_A_DAY = 24 * _MICROS_AN_HOUR
_DAYS_IN_400_YEARS = 146_097
_EXACT = Context(prec=80)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform of one source type; `width` is the number of buckets or the truncation width, else 0."""

    name: str
    width: int
    source: Primitive

    @property
    def result(self) -> Primitive:
        """Type of the transform's values."""
        if self.name == "day":
            return Primitive("date")
        return _INT if self.name in ("bucket", *_PERIODS) else self.source

    @property
    def may_not_fit(self) -> bool:
        """True if the result for some values of the source type is beyond the type of the results."""
        return self.name == "hour" or (self.name == "truncate" and self.source.name not in ("string", "binary"))

    def apply(self, values: pa.Array) -> pa.Array:
        """The transform's values, one bit pattern for NaN; `pyarrow.ArrowInvalid` for a result beyond its type."""
        match self.name:
            case "identity":
                if not self.source.is_floating:
                    return values
                return pc.if_else(pc.is_nan(values), pa.scalar(math.nan, values.type), values)
            case "bucket":
                return core.bucket(values, self.width)
            case "truncate":
                return _truncated(values, self.width)
            case "void":
                return pa.nulls(len(values), values.type)
            case period:
                return _with_far_periods(period, values, _PERIODS[period](values))

    def path_text(self, raw: Raw | None) -> str:
        """A value as text in a path, in Iceberg's form before escaping."""
        if raw is None:
            return "null"
        kind = self.result
        if kind.decimal:
            return f"{Decimal(int(raw)).scaleb(-kind.decimal[1], _EXACT):f}"
        return _PATH_TEXTS.get(self.name, _PATH_TEXTS.get(kind.name, _PATH_TEXTS["binary"]))(raw)


def parse_transform(spelling: str, source: Primitive) -> Transform:
    """Parse Iceberg's spelling of a transform."""
    found = _SPELLING.fullmatch(spelling)
    name = found[1] if found else ""
    if found is None or name not in ("identity", "bucket", "truncate", "void", *_PERIODS):
        raise schema_mismatch(
            f"The table's partition spec uses the transform {shown(spelling)!r}, which lakesink does not support.",
            action="Partition the table by identity, bucket, truncate, year, month, day or hour, or upgrade lakesink.",
        )
    width = int(found[2] or 0)
    if name in _SIZED and not 0 < width <= _WIDEST:
        raise schema_mismatch(
            f"The partition spec uses the transform {shown(spelling)!r}, whose width is not from 1 to {_WIDEST}.",
            action="No reader supports such a width. Change the table's partition spec.",
        )
    return Transform(name, width, source)


def distinguishable(values: pa.Array) -> pa.Array:
    """Values that have equal bits exactly if they are equal, for grouping by hash."""
    if pa.types.is_float32(values.type):
        return values.view(pa.int32())
    return values.view(pa.int64()) if pa.types.is_float64(values.type) else values


def numbers_of(columns: Iterable[pa.ChunkedArray]) -> pa.Array:
    """A number for each row, equal for rows of equal values, counted from 0 in the order of appearance."""
    every = map(_dense, columns)
    numbers = next(every)
    for more in every:
        count = pc.add(pc.max(more).cast(pa.int64()), int64(1))
        pairs = pc.add(pc.multiply(numbers.cast(pa.int64()), count), more.cast(pa.int64()))
        numbers = _dense(pa.chunked_array([pairs]))
    return numbers


def _dense(column: pa.ChunkedArray) -> pa.Array:
    encoded = column.dictionary_encode(null_encoding="encode").chunks
    return pa.chunked_array([chunk.indices for chunk in encoded], pa.int32()).combine_chunks()  # none, if no row


def _truncated(values: pa.Array, width: int) -> pa.Array:
    """Check the result: `pyiceberg_core` wraps around below the smallest number, and exceeds a decimal's precision."""
    found = core.truncate(values, width)
    if pa.types.is_decimal(found.type):
        found.validate(full=True)
    elif pa.types.is_integer(found.type) and pc.any(pc.greater(found, values)).as_py():
        raise pa.ArrowInvalid("below the smallest number")
    return found


def _hours(values: pa.Array) -> pa.Array:
    """Check the result: `pyiceberg_core` wraps around beyond an int."""
    ends = pc.min_max(values.view(pa.int64()))
    hours = [micros // _MICROS_AN_HOUR for micros in ends.as_py().values() if micros is not None]
    if not all(-(2**31) <= hour < 2**31 for hour in hours):
        raise pa.ArrowInvalid("hours beyond an int")
    return core.hour(values)


def _with_far_periods(period: str, values: pa.Array, found: pa.Array) -> pa.Array:
    """Replace NULLs that `pyiceberg_core` returns for a year or month beyond its calendar."""
    if found.null_count == values.null_count:
        return found
    day = 1 if pa.types.is_date32(values.type) else _MICROS_A_DAY
    periods = [None if raw is None else _far_period(period, int(raw) // day) for raw in raw_values(values)]
    return pa.array(periods, found.type)


def _far_period(period: str, days: int) -> int:
    """Years or months since 1970; the calendar repeats every 400 years."""
    cycles, rest = divmod(days, _DAYS_IN_400_YEARS)
    day = date(1970, 1, 1) + timedelta(days=rest)
    years = day.year - 1970 + 400 * cycles
    return years if period == "year" else years * 12 + day.month - 1


def _date_text(days: int) -> str:
    try:
        return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        return f"{days}d"


def _timestamp_text(micros: int, *, zoned: bool) -> str:
    try:
        moment = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return f"{micros}us"
    return moment.isoformat() if zoned else moment.replace(tzinfo=None).isoformat()


_PERIODS: Mapping[str, Callable[[pa.Array], pa.Array]] = {
    "year": core.year,
    "month": core.month,
    "day": core.day,
    "hour": _hours,
}
"""By the names of the transforms."""
_PATH_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "year": lambda years: f"{1970 + years:04d}",
    "month": lambda months: f"{1970 + months // 12:04d}-{months % 12 + 1:02d}",
    "hour": lambda hours: f"{_date_text(hours // 24)}-{hours % 24:02d}",
    "boolean": lambda raw: str(raw).lower(),
    "int": str,
    "long": str,
    "float": repr,
    "double": repr,
    "date": _date_text,
    "time": lambda micros: (_EPOCH + timedelta(microseconds=micros)).time().isoformat(),
    "timestamp": partial(_timestamp_text, zoned=False),
    "timestamptz": partial(_timestamp_text, zoned=True),
    "string": lambda raw: raw.decode("utf-8", "replace"),
    "binary": lambda raw: b64encode(raw).decode(),
    "uuid": lambda raw: str(UUID(bytes=raw)),
}
"""By the names of the transforms, or else of the types of their values; a fixed is a binary too."""
