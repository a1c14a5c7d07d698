"""Bounds of a column from the statistics of its row groups: readers skip files by them, and must never skip wrongly.

A missing bound is always correct; a bound that is too narrow hides rows. So an uncertain value gets no bound.
"""

import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lakesink.writer.schema import Primitive
from lakesink.writer.single_value import Raw, encode_value

_LAST_BEFORE_SURROGATES, _FIRST_AFTER_SURROGATES = 0xD7FF, 0xE000
_LAST_CODE_POINT = 0x10FFFF


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
    """A raw value from Parquet's statistics, where decimals longer than eight bytes are big-endian."""
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
    """Readers disagree on the sign of zero, so a zero bound takes the sign that includes both."""
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
    if not upper:
        return text[:length].encode()
    following = _increment([ord(character) for character in text[:length]], _next_code_point)
    return None if following is None else "".join(map(chr, following)).encode()


def _next_bytes(value: bytes) -> bytes | None:
    following = _increment(list(value), lambda byte: byte + 1 if byte < 0xFF else None)
    return None if following is None else bytes(following)


def _next_code_point(code: int) -> int | None:
    if code == _LAST_BEFORE_SURROGATES:
        return _FIRST_AFTER_SURROGATES
    return None if code == _LAST_CODE_POINT else code + 1


def _increment(units: list[int], following: Callable[[int], int | None]) -> list[int] | None:
    """The shortest sequence above all that start with `units`; None if every unit is the last of its kind."""
    for position in range(len(units) - 1, -1, -1):
        unit = following(units[position])
        if unit is not None:
            return [*units[:position], unit]
    return None
