"""Converts Avro's scalars to Arrow values of a table's types, without loss.

The logical type decides which columns fit: a number of days is a date and not an integer. A column of another kind
accepts no value, even if a value could be converted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.avro.cursor import Bytes, Cursor, Mask, Whole, bitmap
from lakesink.decode.avro.schema import ANY_ZONE, TEXT, Enumeration, Scalar
from lakesink.decode.decimals import MOST_DIGITS, digits_of, parse_decimals, rescale
from lakesink.decode.json_scalars import Convert, bytes_of, converted, converter_of, parse_in_utc
from lakesink.rows.casts import parse_uuids
from lakesink.rows.nested import all_null
from lakesink.rows.plan import BinaryEncoding
from lakesink.rows.schema import Primitive, Type, arrow_type

_STRING = Primitive("string")
_INT = np.iinfo(np.int32)
_LONG = np.iinfo(np.int64)
_DECIMAL_BYTES = 16
_TOO_LARGE = divmod(10**MOST_DIGITS, 2**64)
_DAY_MICROS = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Span:
    """Positions and lengths of bytes."""

    start: Whole
    length: Whole


Floating = npt.NDArray[np.float64]
Fit = Callable[[Cursor, Any, Scalar, Primitive], pa.Array]
"""Converts raw values of a scalar, whose form depends on its type, to a column."""


def read_scalar(
    kind: Scalar, wanted: Primitive | None, cursor: Cursor, encoding: BinaryEncoding | None = None
) -> pa.Array | None:
    """Values of a scalar type other than ``null``; None if `wanted` is None. Misfits fail."""
    raw = _raw(kind, cursor)
    if wanted is None:
        return None
    if kind.name == "string" and wanted.name == "binary":
        assert isinstance(raw, Span)
        return _checked(cursor, _bytes(cursor, raw, kind, _STRING), partial(bytes_of, kind=wanted, encoding=encoding))
    fit = _FITS.get((kind.logical or kind.name, _family(wanted)))
    if fit is None and kind.is_plain:
        fit = _FITS.get((kind.name, _family(wanted)))
    return misfits(wanted, cursor) if fit is None else fit(cursor, raw, kind, wanted)


def read_symbols(kind: Enumeration, wanted: Primitive | None, cursor: Cursor) -> pa.Array | None:
    """Symbols of an enum as strings; see `read_scalar`."""
    number = cursor.varint()
    cursor.fail((number < 0) | (number >= len(kind.symbols)))
    if wanted is None or wanted.name != "string" or not kind.symbols:
        return misfits(wanted, cursor) if wanted is not None else None
    numbers = _array(pa.int32(), np.where(cursor.active, number, 0).astype(np.int32), cursor)
    return pa.DictionaryArray.from_arrays(numbers, pa.array(kind.symbols, pa.string())).dictionary_decode()


def nulls(wanted: Type | None, rows: int) -> pa.Array | None:
    """NULLs; None if `wanted` is None."""
    return None if wanted is None else all_null(rows, arrow_type(wanted))


def misfits(wanted: Type | None, cursor: Cursor) -> pa.Array | None:
    """NULLs for values that are all misfits."""
    cursor.fail(cursor.active)
    return nulls(wanted, len(cursor))


def read_bytes(cursor: Cursor, span: Span) -> pa.Array:
    """Copy bytes out of the documents. In each pair of offsets, the first starts a value and the second a gap."""
    rows = len(cursor)
    offsets = np.empty(2 * rows + 1, np.int32)
    start = np.maximum.accumulate(np.where(cursor.active, span.start, 0))
    offsets[0:-1:2], offsets[1::2] = start, start + np.where(cursor.active, span.length, 0)
    offsets[-1] = offsets[-2] if rows else 0
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(cursor.data)]
    wanted = pa.array(np.arange(0, 2 * rows, 2), pa.int64(), mask=~cursor.active)
    return pa.Array.from_buffers(pa.binary(), 2 * rows, buffers).take(wanted)


def _raw(kind: Scalar, cursor: Cursor) -> Whole | Floating | Mask | Span:
    match kind.name:
        case "int" | "long":
            number = cursor.varint()
            if kind.name == "int":
                cursor.fail((number < _INT.min) | (number > _INT.max))
            return number
        case "float":
            with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
                return np.asarray(cursor.plain(4).view(np.dtype("<f4"))[:, 0], np.float64)
        case "double":
            return np.asarray(cursor.plain(8).view(np.dtype("<f8"))[:, 0])
        case "boolean":
            byte = cursor.plain(1)[:, 0]
            cursor.fail(byte > 1)
            return np.asarray(byte == 1)
        case "fixed":
            return Span(*cursor.fixed(kind.size))
        case _:
            return Span(*cursor.span())


def _family(wanted: Primitive) -> str:
    if wanted.decimal:
        return "decimal"
    return "fixed" if wanted.fixed_bytes else wanted.name


def _array(kind: pa.DataType, values: npt.NDArray[np.generic], cursor: Cursor) -> pa.Array:
    buffers = [cursor.validity(), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(kind, len(cursor), buffers)


def _checked(cursor: Cursor, values: pa.Array, convert: Convert) -> pa.Array:
    """Convert the values that fit, and fail the others."""
    found = converted(values, convert)
    if found.misfits is not None:
        cursor.fail(found.misfits.to_numpy(zero_copy_only=False))
    return found.values


def _whole(cursor: Cursor, raw: Whole, _kind: Scalar, wanted: Primitive) -> pa.Array:
    if wanted.name in ("int", "date"):
        cursor.fail((raw < _INT.min) | (raw > _INT.max))
        return _array(wanted.arrow, raw.astype(np.int32), cursor)
    return _array(wanted.arrow, raw, cursor)


def _whole_as_floating(cursor: Cursor, raw: Whole, _kind: Scalar, wanted: Primitive) -> pa.Array:
    """Fail numbers that do not survive the conversion back."""
    size = np.float32 if wanted.name == "float" else np.float64
    values = raw.astype(size)
    inside = values.astype(np.float64) < -float(_LONG.min)  # the largest ones round up beyond a long
    back = np.where(inside, values, 0).astype(np.int64)
    cursor.fail(~inside | (back != raw))
    return _array(wanted.arrow, values, cursor)


def _whole_as_decimal(cursor: Cursor, raw: Whole, _kind: Scalar, wanted: Primitive) -> pa.Array:
    return _rescaled(cursor, _array(pa.int64(), raw, cursor).cast(pa.decimal128(19, 0)), wanted)


def _floating(cursor: Cursor, raw: Floating, _kind: Scalar, wanted: Primitive) -> pa.Array:
    if wanted.name == "double":
        return _array(wanted.arrow, raw, cursor)
    with np.errstate(over="ignore", invalid="ignore"):
        values = raw.astype(np.float32)
    cursor.fail((values != raw) & ~np.isnan(raw))
    return _array(wanted.arrow, values, cursor)


def _boolean(cursor: Cursor, raw: Mask, _kind: Scalar, wanted: Primitive) -> pa.Array:
    return pa.Array.from_buffers(wanted.arrow, len(cursor), [cursor.validity(), bitmap(raw)])


def _bytes(cursor: Cursor, raw: Span, _kind: Scalar, wanted: Primitive) -> pa.Array:
    """Arrow checks every text for UTF-8, and every length."""
    values = read_bytes(cursor, raw)
    if wanted.arrow == values.type:
        return values
    return _checked(cursor, values, partial(pc.cast, target_type=wanted.arrow))


def _uuid(cursor: Cursor, raw: Span, kind: Scalar, _wanted: Primitive) -> pa.Array:
    """UUIDs of 36 characters, with or without Avro's logical type."""
    return _checked(cursor, _bytes(cursor, raw, kind, _STRING), parse_uuids)


def _decimal(cursor: Cursor, raw: Span, kind: Scalar, wanted: Primitive) -> pa.Array:
    if kind.scale > MOST_DIGITS:
        return misfits(wanted, cursor)
    return _rescaled(cursor, _array(pa.decimal128(MOST_DIGITS, kind.scale), _unscaled(cursor, raw), cursor), wanted)


def read_variable_decimals(cursor: Cursor, rows: pa.Array, wanted: Primitive) -> pa.Array:
    """Decimals of rows with a scale and the digits; see `lakesink.decode.debezium`."""
    assert wanted.decimal
    precision, scale = wanted.decimal

    def convert(some: pa.Array) -> pa.Array:
        texts = [None if row is None else digits_of(row["value"], row["scale"]) for row in some.to_pylist()]
        return parse_decimals(pa.array(texts, pa.string()), precision, scale)

    return _checked(cursor, rows, convert)


def _rescaled(cursor: Cursor, numbers: pa.Array, wanted: Primitive) -> pa.Array:
    assert wanted.decimal
    precision, scale = wanted.decimal
    return _checked(cursor, numbers, partial(rescale, precision=precision, scale=scale))


def _unscaled(cursor: Cursor, raw: Span) -> Bytes:
    """Big-endian numbers of any length in Arrow's form: sixteen bytes, little-endian, at most 38 digits."""
    cursor.fail(raw.length == 0)
    last = np.where(cursor.active, raw.start + raw.length - 1, cursor.padding)
    length = np.where(cursor.active, raw.length, 1)
    sign = np.where(cursor.data[last - length + 1] >= 0x80, 0xFF, 0).astype(np.uint8)
    number = np.empty((len(cursor), _DECIMAL_BYTES), np.uint8)
    for place in range(max(_DECIMAL_BYTES, int(length.max(initial=0)))):
        inside = length > place
        byte = np.where(inside, cursor.data[np.where(inside, last - place, 0)], sign)
        if place < _DECIMAL_BYTES:
            number[:, place] = byte
        else:
            cursor.fail(byte != sign)
    cursor.fail(((number[:, -1] >= 0x80) != (sign != 0)) | _too_large(number))
    return number


def _too_large(number: Bytes) -> Mask:
    """True for numbers with more digits than a decimal may have."""
    low, high = number.view(np.dtype("<u8")).T
    negative = high >> np.uint64(63) == 1
    high = np.where(negative, ~high + (low == 0), high)
    low = np.where(negative, ~low + np.uint64(1), low)
    limit_high, limit_low = (np.uint64(part) for part in _TOO_LARGE)
    too_large: Mask = (high > limit_high) | ((high == limit_high) & (low >= limit_low))
    return too_large


def _time(cursor: Cursor, raw: Whole, kind: Scalar, wanted: Primitive) -> pa.Array:
    micros = _micros(cursor, raw, kind)
    cursor.fail((micros < 0) | (micros >= _DAY_MICROS))
    return _array(wanted.arrow, micros, cursor)


def _moment(cursor: Cursor, raw: Whole, kind: Scalar, wanted: Primitive) -> pa.Array:
    return _array(wanted.arrow, _micros(cursor, raw, kind), cursor)


def _text(cursor: Cursor, raw: Span, kind: Scalar, wanted: Primitive) -> pa.Array:
    """Texts of moments; those without a zone may end in Z."""
    convert = converter_of(wanted) if wanted.name == "timestamptz" else partial(parse_in_utc, kind=wanted)
    return _checked(cursor, _bytes(cursor, raw, kind, _STRING), convert)


def _micros(cursor: Cursor, raw: Whole, kind: Scalar) -> Whole:
    unit = str(kind.logical).rpartition("-")[2]
    if unit == "millis":
        cursor.fail((raw > _LONG.max // 1000) | (raw < -(_LONG.max // 1000)))
        return np.where(cursor.active, raw, 0) * 1000
    if unit == "nanos":
        cursor.fail(raw % 1000 != 0)
        return raw // 1000
    return raw


_FITS: Mapping[tuple[str, str], Fit] = {
    **{(whole, column): _whole for whole in ("int", "long") for column in ("int", "long")},
    **{(whole, column): _whole_as_floating for whole in ("int", "long") for column in ("float", "double")},
    **{(whole, "decimal"): _whole_as_decimal for whole in ("int", "long")},
    **{(floating, column): _floating for floating in ("float", "double") for column in ("float", "double")},
    ("boolean", "boolean"): _boolean,
    ("string", "string"): _bytes,
    ("string", "uuid"): _uuid,
    ("uuid", "uuid"): _bytes,
    ("bytes", "binary"): _bytes,
    ("bytes", "fixed"): _bytes,
    ("bytes", "string"): _bytes,
    ("fixed", "binary"): _bytes,
    ("fixed", "fixed"): _bytes,
    ("decimal", "decimal"): _decimal,
    ("date", "date"): _whole,
    **{(f"time-{unit}", "time"): _time for unit in ("millis", "micros", "nanos")},
    **{(f"timestamp-{unit}", "timestamptz"): _moment for unit in ("millis", "micros", "nanos")},
    **{(f"local-timestamp-{unit}", "timestamp"): _moment for unit in ("millis", "micros", "nanos")},
    **{(f"{ANY_ZONE}timestamp-millis", column): _moment for column in ("timestamp", "timestamptz")},
    **{(f"{TEXT}{column}", column): _text for column in ("date", "time", "timestamp", "timestamptz")},
}
"""By logical type, or else type, and the kind of a column."""
