"""Converts texts, and decimals of another scale, to decimals without loss. Pure.

Arrow's casts to a decimal multiply without a complete check: a number that needs more bits than the type has becomes
another number. So no cast may need more than the 256 bits of Arrow's widest decimal.
"""

import re
from decimal import Context, Decimal, Inexact, InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.joined import any_character
from lakesink.rows.scalars import FALSE

MOST_DIGITS = 38
"""Most digits of a decimal in Iceberg, and its largest scale."""
_WIDEST = 76
"""Digits of Arrow's widest decimal: enough for `MOST_DIGITS` digits at the largest scale."""
_LONGEST_BYTES = 1_000
"""A number with more bytes has more digits than Python writes."""
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def parse_decimals(texts: pa.StringArray, precision: int, scale: int) -> pa.Array:
    """Parse decimals, NULL for NULL; raises `pyarrow.ArrowInvalid` unless each is exact in the type."""
    unusual = _unusual(texts)
    if unusual is None:
        return _parse_short(texts, precision, scale)
    short = _parse_short(pc.if_else(unusual, pa.scalar(None, texts.type), texts), precision, scale)
    chosen = zip(texts.to_pylist(), unusual.to_pylist(), strict=True)
    others = [_parse_one(text, precision, scale) if text and is_unusual else None for text, is_unusual in chosen]
    return pc.coalesce(short, pa.array(others, pa.decimal128(precision, scale)))


def digits_of(unscaled: bytes, scale: int) -> str:
    """A decimal of any scale as text, from its digits as a big-endian number; raises ArrowInvalid."""
    if not unscaled or len(unscaled) > _LONGEST_BYTES:
        raise pa.ArrowInvalid("no digits, or too many")
    number = int.from_bytes(unscaled, "big", signed=True)
    if not 0 < scale <= MOST_DIGITS:
        return f"{number}E{-scale}" if scale else str(number)
    return all_digits(number, scale)


def all_digits(unscaled: int, scale: int) -> str:
    """A decimal as text without an exponent; its scale is not negative."""
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    number = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{number}" if unscaled < 0 else number


def rescale(values: pa.Array, precision: int, scale: int) -> pa.Array:
    """Change precision and scale of decimals with 38 digits at most; raises `pyarrow.ArrowInvalid` unless exact."""
    return values.cast(pa.decimal256(_WIDEST, scale)).cast(pa.decimal128(precision, scale))


def _unusual(texts: pa.StringArray) -> pa.BooleanArray | None:
    """True for texts with an exponent or more digits than any decimal; None if there are none."""
    if _longest(texts) <= MOST_DIGITS and not any_character(texts, b"eE"):
        return None
    found = pc.or_(
        pc.greater(pc.binary_length(texts), MOST_DIGITS),
        pc.or_(pc.match_substring(texts, "e"), pc.match_substring(texts, "E")),
    )
    return pc.fill_null(found, FALSE) if found.true_count else None


def _parse_short(texts: pa.StringArray, precision: int, scale: int) -> pa.Array:
    """Parse texts without exponents. 128 bits hold every short text with zeros up to the scale; others need 256."""
    if _longest(texts) + scale <= MOST_DIGITS:
        return pc.cast(texts, pa.decimal128(MOST_DIGITS, scale)).cast(pa.decimal128(precision, scale))
    return rescale(pc.cast(texts, pa.decimal256(_WIDEST, scale)), precision, scale)


def _longest(texts: pa.StringArray) -> int:
    return pc.max(pc.binary_length(texts)).as_py() or 0


def _parse_one(text: str, precision: int, scale: int) -> Decimal:
    """Parse a decimal of any length and exponent; slow."""
    try:
        if _NUMBER.fullmatch(text):
            exact = Context(prec=precision, traps=[Inexact, InvalidOperation])
            return Decimal(text).quantize(Decimal((0, (1,), -scale)), context=exact)
    except (Inexact, InvalidOperation):
        pass
    raise pa.ArrowInvalid("the type cannot represent this number exactly")
