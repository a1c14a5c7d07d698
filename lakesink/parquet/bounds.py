"""Bounds of a column, from the statistics of its row groups. Readers use them to skip files without matching rows.

A missing bound is always correct; a bound that is too narrow hides rows. So an uncertain value gets no bound.
"""

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from lakesink.parquet.single_value import Raw, encode_value
from lakesink.rows.schema import Primitive

_BEFORE_SURROGATES, _AFTER_SURROGATES = "\ud7ff", "\ue000"
_LAST_CHARACTER = chr(sys.maxunicode)


@dataclass(frozen=True, slots=True)
class Range:
    """Smallest and largest raw value of a column chunk or file."""

    low: Raw
    high: Raw


def merge(ranges: Iterable[Range]) -> Range:
    """The range that covers all ranges, of which there is at least one."""
    found = list(ranges)
    return Range(min(part.low for part in found), max(part.high for part in found))


def parquet_raw(kind: Primitive, value: Raw) -> Raw:
    """The raw value of one of Parquet's statistics; decimals longer than eight bytes are big-endian there."""
    if kind.decimal and isinstance(value, bytes):
        return int.from_bytes(value, "big", signed=True)
    return value


def bounds(kind: Primitive, found: Range, truncate_to: int | None) -> tuple[bytes | None, bytes | None]:
    """Lower and upper bound in single-value binary form; None for an uncertain bound.

    `truncate_to` is in code points of a string, or bytes of a binary or fixed; None keeps all.
    """
    if kind.is_floating:
        return _floating(kind, float(found.low), float(found.high))
    low, high = encode_value(kind, found.low), encode_value(kind, found.high)
    length = sys.maxsize if truncate_to is None else truncate_to
    if kind.name == "string":
        return _shorten_text(low, length, upper=False), _shorten_text(high, length, upper=True)
    if kind.name == "binary" or kind.fixed_bytes:
        return low[:length], high if len(high) <= length else _next_bytes(high[:length])
    return low, high


def _floating(kind: Primitive, low: float, high: float) -> tuple[bytes | None, bytes | None]:
    """Readers disagree on the sign of zero, so a zero bound gets the sign that includes both zeros."""
    if math.isnan(low) or math.isnan(high):
        return None, None
    return encode_value(kind, -0.0 if low == 0 else low), encode_value(kind, 0.0 if high == 0 else high)


def _shorten_text(value: bytes, length: int, *, upper: bool) -> bytes | None:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    if len(text) <= length:
        return value
    return _next_text(text[:length]) if upper else text[:length].encode()


def _next_text(text: str) -> bytes | None:
    """The shortest text above all texts that start with `text`; None if there is none."""
    kept = text.rstrip(_LAST_CHARACTER)
    if not kept:
        return None
    following = _AFTER_SURROGATES if kept[-1] == _BEFORE_SURROGATES else chr(ord(kept[-1]) + 1)
    return (kept[:-1] + following).encode()


def _next_bytes(value: bytes) -> bytes | None:
    kept = value.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
