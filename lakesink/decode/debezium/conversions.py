"""Converts the values of Debezium's types to a table's columns, without loss. Pure.

Values arrive as texts, see `json_scalars`. A column that is not in the tables below follows the rules for JSON.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.debezium.wrappers import BYTES, VARIABLE_SCALE, ConnectType, Types
from lakesink.decode.decimals import digits_of
from lakesink.decode.json_raw import as_text, first_members, items, members
from lakesink.decode.json_scalars import Convert, converter_of, parse_in_utc, wants_json, whole_numbers
from lakesink.rows.plan import BinaryEncoding
from lakesink.rows.schema import ListOf, MapOf, Primitive, Struct, Type

_DATES = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_CONNECT_TIME, _CONNECT_TIMESTAMP = (f"org.apache.kafka.connect.data.{name}" for name in ("Time", "Timestamp"))
_PER_MILLISECOND, _PER_MICROSECOND, _PER_NANOSECOND = 1_000, 1, -1_000
"""Microseconds; a negative number divides."""
_TIMES: Mapping[str, int] = {
    "io.debezium.time.Time": _PER_MILLISECOND,
    "io.debezium.time.MicroTime": _PER_MICROSECOND,
    "io.debezium.time.NanoTime": _PER_NANOSECOND,
    _CONNECT_TIME: _PER_MILLISECOND,
}
_TIMESTAMPS: Mapping[str, int] = {
    "io.debezium.time.Timestamp": _PER_MILLISECOND,
    "io.debezium.time.MicroTimestamp": _PER_MICROSECOND,
    "io.debezium.time.NanoTimestamp": _PER_NANOSECOND,
    _CONNECT_TIMESTAMP: _PER_MILLISECOND,
}
_IN_UTC: Mapping[str, str] = {
    "io.debezium.time.IsoDate": "date",
    "io.debezium.time.IsoTime": "time",
    "io.debezium.time.ZonedTime": "time",
    "io.debezium.time.IsoTimestamp": "timestamp",
}
"""Texts of columns without a zone, to which Debezium adds a Z."""
_DAY_MICROS = 86_400_000_000
_NUMBERS = "^-?[0-9]{1,18}$"
_SCALE = re.compile("-?[0-9]{1,5}")
_BASE64 = '^"[A-Za-z0-9+/]{2,20}={0,2}"$'


@dataclass(frozen=True, slots=True)
class Conversion:
    """The conversion of one column.

    Attributes:
        takes_json: True if it takes the values' JSON, in which a text has quotes.
        likely: A pattern of most texts that fit; see `json_scalars.converted`.
    """

    convert: Convert
    takes_json: bool = False
    likely: str = ""


def conversion_of(kind: Type, name: str, types: Types) -> Conversion | None:
    """The conversion of a column with this type and name; None if it follows the rules for JSON."""
    if not isinstance(kind, Primitive):
        return None
    if types is None:
        return _WITHOUT_SCHEMA.get(kind.name)
    found = types.get(name)
    if found is None:
        return None
    if kind.decimal and found.is_decimal:
        likely = "" if found.name == VARIABLE_SCALE else _BASE64
        return Conversion(partial(_decimals, written=found, kind=kind), takes_json=True, likely=likely)
    if found.type == BYTES:
        return _of_bytes(kind)
    return _of_moment(kind, found.name)


def with_bytes(kind: Type, name: str, types: Types) -> ConnectType | None:
    """The type of an array, map or struct with bytes or decimals, which are in Base64; None for other columns."""
    found = None if types is None or isinstance(kind, Primitive) else types.get(name)
    return found if found is not None and found.holds_bytes else None


def spelled_out(
    texts: pa.StringArray, written: ConnectType, kind: Type, encoding: BinaryEncoding | None
) -> pa.StringArray:
    """Arrays, maps and structs as JSON, with all digits of their decimals, and bytes in Base64; raises ArrowInvalid.

    `encoding` is that of parts whose type in the schema is not bytes.
    """
    spell = partial(_spelled_out, encoding=encoding)
    return pa.array([None if text is None else spell(text, written, kind) for text in texts.to_pylist()], pa.string())


def _spelled_out(text: str, written: ConnectType | None, kind: Type, encoding: BinaryEncoding | None) -> str:
    spell = partial(_spelled_out, encoding=encoding)
    part = None if written is None else written.items
    match kind:
        case Primitive():
            return _primitive_spelled_out(text, written, kind, encoding)
        case ListOf(element) if text.startswith("["):
            return f"[{','.join(spell(item, part, element.type) for item in items(text))}]"
        case Struct(fields) if text.startswith("{"):
            named = {} if written is None else written.fields
            known = {one.name: one.type for one in fields}
            found = (
                (json.dumps(key), spell(value, named.get(key), known[key]) if key in known else value)
                for key, value in members(text)
            )
            return _object(found)
        case MapOf(key, value) if text.startswith("{"):
            keys_and_values = ((json.dumps(name), item) for name, item in members(text))
            return _object(
                (spell(name, None, key.type), spell(item, part, value.type)) for name, item in keys_and_values
            )
    return text


def with_digits(text: str, written: ConnectType | None) -> str:
    """JSON with the digits of its decimals: their Base64 says nothing without the schema."""
    if written is None or text == "null":
        return text
    if written.is_decimal:
        try:
            return _digits(text, written)
        except pa.ArrowInvalid:
            return text
    if text.startswith("[") and written.items is not None:
        return f"[{','.join(with_digits(item, written.items) for item in items(text))}]"
    if text.startswith("{"):
        types, others = written.fields, written.items
        return _object((json.dumps(name), with_digits(value, types.get(name, others))) for name, value in members(text))
    return text


def _object(found: Iterable[tuple[str, str]]) -> str:
    return f"{{{','.join(f'{key}:{value}' for key, value in found)}}}"


def _primitive_spelled_out(
    text: str, written: ConnectType | None, kind: Primitive, encoding: BinaryEncoding | None
) -> str:
    if text == "null":
        return text
    if wants_json(kind) and (written is None or written.type != BYTES):
        [value] = converter_of(kind, encoding)(pa.array([text])).to_pylist()
        return json.dumps(base64.b64encode(value).decode())
    if written is None:
        return text
    if kind.decimal and written.is_decimal:
        return json.dumps(_digits(text, written))
    if written.holds_bytes and not wants_json(kind):
        raise pa.ArrowInvalid("bytes do not fit this column")
    return text


def _of_bytes(kind: Primitive) -> Conversion:
    """Kafka Connect's converter writes Base64, which is a text, and may even look like a number."""
    if wants_json(kind):
        return Conversion(converter_of(kind, BinaryEncoding.BASE64), takes_json=True)
    return Conversion(partial(_refuse, kind=kind))


def _of_moment(kind: Primitive, name: str) -> Conversion | None:
    if _IN_UTC.get(name) == kind.name:
        return _WITHOUT_ZONE[kind.name]
    match kind.name:
        case "date" if name in _DATES:
            return Conversion(_days, likely=_NUMBERS)
        case "time" if name in _TIMES:
            return Conversion(partial(_times, factor=_TIMES[name]), likely=_NUMBERS)
        case "timestamp" if name in _TIMESTAMPS:
            return Conversion(partial(_timestamps, factor=_TIMESTAMPS[name], kind=kind), likely=_NUMBERS)
        case "timestamptz" if name == _CONNECT_TIMESTAMP:
            return Conversion(partial(_timestamps, factor=_PER_MILLISECOND, kind=kind), likely=_NUMBERS)
    return None


def _refuse(texts: pa.Array, kind: Primitive) -> pa.Array:
    if texts.null_count < len(texts):
        raise pa.ArrowInvalid("bytes do not fit this column")
    return pa.nulls(len(texts), kind.arrow)


def _days(texts: pa.Array) -> pa.Array:
    return whole_numbers(texts, pa.int32()).cast(pa.date32())


def _dates_or_days(texts: pa.Array) -> pa.Array:
    """Without a schema: a whole number can only be days since 1970, as every precision mode writes them."""
    is_number = pc.match_substring_regex(texts, "^-?[0-9]+$")
    nothing = pa.scalar(None, pa.string())
    days = _days(pc.if_else(is_number, texts, nothing))
    return pc.coalesce(days, parse_in_utc(pc.if_else(is_number, nothing, texts), Primitive("date")))


def _micros(texts: pa.Array, factor: int) -> pa.Array:
    numbers = whole_numbers(texts, pa.int64())
    if factor > 0:
        return pc.multiply_checked(numbers, factor)
    micros = pc.divide(numbers, -factor)  # rounds towards 0; only an exact quotient is used
    if pc.not_equal(pc.multiply(micros, -factor), numbers).true_count:
        raise pa.ArrowInvalid("a part of a microsecond")
    return micros


def _timestamps(texts: pa.Array, factor: int, kind: Primitive) -> pa.Array:
    return _micros(texts, factor).cast(kind.arrow)


def _times(texts: pa.Array, factor: int) -> pa.Array:
    micros = _micros(texts, factor)
    if pc.or_(pc.less(micros, 0), pc.greater_equal(micros, _DAY_MICROS)).true_count:
        raise pa.ArrowInvalid("not within a day")
    return micros.cast(pa.time64("us"))


def _decimals(texts: pa.Array, written: ConnectType, kind: Primitive) -> pa.Array:
    digits = [None if text is None else _digits(text, written) for text in texts.to_pylist()]
    return converter_of(kind)(pa.array(digits, pa.string()))


def _digits(text: str, written: ConnectType) -> str:
    """A decimal with all its digits, from JSON: Base64 in a text, else a number, which Connect can also write."""
    is_variable = written.name == VARIABLE_SCALE
    scale = "0" if is_variable else str(written.scale)
    if is_variable and text.startswith("{"):
        scale, text = (part or "" for part in first_members(text, ("scale", "value")))
        if not _SCALE.fullmatch(scale) or not text.startswith('"'):
            raise pa.ArrowInvalid("no decimal of variable scale")
    if not text.startswith('"'):
        return text
    content = as_text(text) if "\\" in text else text[1:-1]
    try:
        unscaled = binascii.a2b_base64(content or "", strict_mode=True)
    except ValueError:
        raise pa.ArrowInvalid("not Base64") from None
    if binascii.b2a_base64(unscaled, newline=False).decode() != content:
        raise pa.ArrowInvalid("Base64 that no encoder writes")
    return digits_of(unscaled, int(scale))


_WITHOUT_ZONE: Mapping[str, Conversion] = {
    name: Conversion(partial(parse_in_utc, kind=Primitive(name)), likely=pattern)
    for name, pattern in {
        "date": "^[0-9]{4}-[0-9]{2}-[0-9]{2}Z?$",
        "time": r"^[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z?$",
        "timestamp": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z?$",
    }.items()
}
_WITHOUT_SCHEMA: Mapping[str, Conversion] = {
    **_WITHOUT_ZONE,
    "date": Conversion(_dates_or_days, likely="^(?:-?[0-9]{1,6}|[0-9]{4}-[0-9]{2}-[0-9]{2}Z?)$"),
}
