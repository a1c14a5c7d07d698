"""Converts JSON scalars to Arrow values of a table's types, without loss. Pure.

The text of a value is a string's characters, a number's digits, or any other value's JSON. For binary it is the value's
JSON with quotes, because a number may look like Base64.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.decimals import parse_decimals
from lakesink.decode.joined import any_character
from lakesink.rows.casts import parse_uuids
from lakesink.rows.plan import BinaryEncoding
from lakesink.rows.schema import Primitive, Type

Convert = Callable[[pa.Array], pa.Array]
"""Converts texts to values; raises `pyarrow.ArrowInvalid` if a text does not fit."""

_EPOCH_DAY = "1970-01-01T"


@dataclass(frozen=True, slots=True)
class Parsed:
    """Values, and the texts that do not fit.

    Attributes:
        values: NULL for a NULL text, and for one that does not fit.
        misfits: True for a text that does not fit; None if all fit.
        rest: True for a text of which the values hold only a part, if that is not a misfit; None if there is none.
    """

    values: pa.Array
    misfits: pa.BooleanArray | None = None
    rest: pa.BooleanArray | None = None


def parse(texts: pa.StringArray, kind: Primitive, encoding: BinaryEncoding | None = None) -> Parsed:
    """Parse texts as values of a type, NULL for NULL."""
    likely = _LIKELY.get(kind.name, "")
    if kind.decimal:
        precision, scale = kind.decimal
        likely = rf"^-?[0-9]{{1,{max(precision - scale, 1)}}}(?:\.[0-9]{{1,{max(scale, 1)}}})?$"
    return converted(texts, converter_of(kind, encoding), likely)


def texts_of(documents: pa.Array) -> pa.StringArray:
    """Documents as texts; NULL for bytes that are not UTF-8, also in a Spark string."""
    return converted(documents.cast(pa.binary()), partial(pc.cast, target_type=pa.string())).values


def wants_json(kind: Type) -> bool:
    """True if the texts of this type are JSON."""
    return not isinstance(kind, Primitive) or kind.name == "binary" or kind.fixed_bytes is not None


def converted(texts: pa.Array, convert: Convert, likely: str = "") -> Parsed:
    """Convert the values that fit and find the others: all at once if possible, else by bisection.

    `likely` is a pattern of most texts that fit, so that only the others have to be searched.
    """
    try:
        return Parsed(convert(texts))
    except pa.ArrowInvalid:
        mask = _misfit_mask(texts, convert, likely)
    return Parsed(convert(without(texts, mask)), mask)


def parse_in_utc(texts: pa.StringArray, kind: Primitive) -> pa.Array:
    """Parse dates, times or timestamps without a zone, whose texts may end in Z; raises `pyarrow.ArrowInvalid`."""
    return converter_of(kind)(pc.replace_substring_regex(texts, "Z$", ""))


def without(values: pa.Array, misfits: pa.BooleanArray) -> pa.Array:
    """The values with NULL for each misfit."""
    return pc.if_else(misfits, pa.scalar(None, values.type), values)


def forgiven(found: Parsed) -> Parsed:
    """The same, with NULL for each misfit; its text is part of the rest."""
    if found.misfits is None:
        return found
    return Parsed(without(found.values, found.misfits), None, either(found.misfits, found.rest))


def either(one: pa.BooleanArray | None, other: pa.BooleanArray | None) -> pa.BooleanArray | None:
    """The misfits of both masks."""
    if one is None or other is None:
        return one if other is None else other
    return pc.or_(one, other)


def but(mask: pa.BooleanArray | None, others: pa.BooleanArray | None) -> pa.BooleanArray | None:
    """The first mask without the other one."""
    return mask if mask is None or others is None else pc.and_not(mask, others)


def holding(lists: pa.Array, misfits: pa.BooleanArray | None) -> pa.BooleanArray | None:
    """True for lists that contain a misfit."""
    if misfits is None:
        return None
    parents = pc.list_parent_indices(lists)
    hit = set(pc.filter(parents, misfits).to_pylist())
    return pa.array([position in hit for position in range(len(lists))], pa.bool_())


def _misfit_mask(texts: pa.Array, convert: Convert, likely: str) -> pa.BooleanArray:
    no = pa.scalar(value=False)
    if likely:
        doubtful = pc.fill_null(pc.invert(pc.match_substring_regex(texts, likely)), no)
        if _all_fit(without(texts, doubtful), convert):
            distinct = pc.filter(texts, doubtful).unique()
            wrong = distinct.take(pa.array(_misfits(distinct, convert, 0), pa.int64()))
            return pc.fill_null(pc.is_in(texts, wrong), no)
    misfits = set(_misfits(texts, convert, 0))
    return pa.array([position in misfits for position in range(len(texts))], pa.bool_())


def _all_fit(texts: pa.Array, convert: Convert) -> bool:
    try:
        convert(texts)
    except pa.ArrowInvalid:
        return False
    return True


def _misfits(texts: pa.Array, convert: Convert, first: int) -> Iterator[int]:
    try:
        convert(texts)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            yield first
            return
        half = len(texts) // 2
        yield from _misfits(texts[:half], convert, first)
        yield from _misfits(texts[half:], convert, first + half)


def converter_of(kind: Primitive, encoding: BinaryEncoding | None = None) -> Convert:
    """The conversion of texts, see `parse`."""
    if wants_json(kind):
        return partial(_bytes, kind=kind, encoding=encoding)
    if kind.decimal:
        precision, scale = kind.decimal
        return partial(parse_decimals, precision=precision, scale=scale)
    return _SPECIAL.get(kind.name, partial(pc.cast, target_type=kind.arrow))


def _boolean(texts: pa.Array) -> pa.Array:
    true = pc.equal(texts, "true")
    if pc.and_(pc.invert(true), pc.not_equal(texts, "false")).true_count:
        raise pa.ArrowInvalid("neither true nor false")
    return true


def whole_numbers(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Refuse hexadecimal digits, which Arrow also reads; only a string can contain them."""
    if any_character(texts, b"xX") and pc.match_substring_regex(texts, "[xX]").true_count:
        raise pa.ArrowInvalid("not decimal digits")
    return pc.cast(texts, kind)


def _floating(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Round to nearest; refuse a finite number that becomes infinite, and C's ``nan(12)``, which Arrow reads."""
    if any_character(texts, b"(") and pc.match_substring(texts, "(").true_count:
        raise pa.ArrowInvalid("a NaN with a payload")
    values = pc.cast(pc.cast(texts, pa.float64()), kind, safe=False)
    infinite = pc.is_inf(values)
    if infinite.true_count and pc.match_substring_regex(pc.filter(texts, infinite), "[0-9]").true_count:
        raise pa.ArrowInvalid("a number that is too large")
    return values


def _time(texts: pa.Array) -> pa.Array:
    """Arrow parses times of day only as part of a timestamp, and takes a number of two digits for the hour."""
    if pc.match_substring(texts, ":").false_count:
        raise pa.ArrowInvalid("a number, and nothing says of what")
    moments = pc.cast(pc.binary_join_element_wise(_EPOCH_DAY, texts, ""), pa.timestamp("us"))
    return pc.cast(moments, pa.time64("us"))


def _bytes(texts: pa.Array, kind: Primitive, encoding: BinaryEncoding | None) -> pa.Array:
    try:
        written = pa.array([None if text is None else json.loads(text) for text in texts.to_pylist()], pa.string())
    except (ValueError, TypeError):
        raise pa.ArrowInvalid("not a text") from None
    return bytes_of(written, kind, encoding)


def bytes_of(texts: pa.StringArray, kind: Primitive, encoding: BinaryEncoding | None) -> pa.Array:
    """The bytes that texts spell; raises `pyarrow.ArrowInvalid`. Hex never has the length of a fixed type's Base64."""
    if encoding is None and kind.fixed_bytes is None and texts.null_count < len(texts):
        raise pa.ArrowInvalid("a text, and nothing says how it spells bytes")
    decode = binascii.unhexlify if encoding is BinaryEncoding.HEX else _from_base64
    try:
        return pa.array([None if text is None else decode(text) for text in texts.to_pylist()], kind.arrow)
    except ValueError:
        raise pa.ArrowInvalid("another encoding, or another length") from None


def _from_base64(text: str) -> bytes:
    """Accept only canonical Base64: other spellings may have lost information."""
    found = base64.b64decode(text, validate=True)
    if base64.b64encode(found).decode() != text:
        raise ValueError(text)
    return found


_DAY, _TIME = "[0-9]{4}-[0-9]{2}-[0-9]{2}", r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
_LIKELY: dict[str, str] = {
    "boolean": "^(?:true|false)$",
    "int": "^-?[0-9]{1,9}$",
    "long": "^-?[0-9]{1,18}$",
    "float": r"^-?[0-9]{1,15}(?:\.[0-9]{1,20})?$",
    "double": r"^-?[0-9]{1,15}(?:\.[0-9]{1,20})?$",
    "date": f"^{_DAY}$",
    "time": f"^{_TIME}$",
    "timestamp": f"^{_DAY}[T ]{_TIME}$",
    "timestamptz": f"^{_DAY}[T ]{_TIME}(?:Z|[+-][0-9]{{2}}:[0-9]{{2}})$",
    "uuid": "^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
}
"""Patterns of most texts that fit; a text that matches may be a misfit too, such as a 30th of February."""
_SPECIAL: dict[str, Convert] = {
    "boolean": _boolean,
    "int": partial(whole_numbers, kind=pa.int32()),
    "long": partial(whole_numbers, kind=pa.int64()),
    "float": partial(_floating, kind=pa.float32()),
    "double": partial(_floating, kind=pa.float64()),
    "string": lambda texts: texts,
    "time": _time,
    "uuid": parse_uuids,
}
