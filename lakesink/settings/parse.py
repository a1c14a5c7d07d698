"""Parsers for sizes, times, switches, whole numbers and places. Pure; each raises ValueError with a hint."""

import re
from datetime import UTC, datetime, timedelta
from functools import partial

_SIZE = re.compile(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*(b|bytes?|[kmgt](?:i?b)?)?\s*", re.IGNORECASE | re.ASCII)
_SIZE_POWERS = {"b": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_DURATION_PART = re.compile(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([a-z]+)\s*", re.IGNORECASE | re.ASCII)
_UNIT_SECONDS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86_400),
    **dict.fromkeys(("w", "week", "weeks"), 604_800),
}
_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})
_READER = re.compile(r"otel|prometheus|(?:(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\]):)?(?P<port>[1-9]\d{,4})", re.ASCII)
LAST_PORT, LOOPBACK = 65_535, "127.0.0.1"
_LARGEST = 2**63 - 1
_LONGEST = timedelta(days=36_500)


def whole_number(value: object, lowest: int = 0, highest: int = _LARGEST) -> int:
    """A whole number in a range, from an int or its digits."""
    number: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and re.fullmatch(r"\s*-?\d{1,19}\s*", value, re.ASCII):
        number = int(value)
    if number is None or not lowest <= number <= highest:
        raise ValueError(f"expected a whole number from {lowest}" + (f" to {highest}" if highest < _LARGEST else ""))
    return number


LEAST_TARGET = 16 * 1024
"""Bytes of a file that is made of others: a smaller one would be little more than its footer."""


def size_bytes(value: object, lowest: int = 1) -> int:
    """A size of so many bytes at least: an int, or text such as ``512MB``. Units are powers of 1024."""
    if isinstance(value, str) and (found := _SIZE.fullmatch(value)):
        power = _SIZE_POWERS[(found[2] or "b")[0].lower()]
        value = int(float(found[1]) * 1024**power) if "." in found[1] else int(found[1]) * 1024**power
    try:
        return whole_number(value, lowest)
    except ValueError:
        least = f", of {lowest} bytes at least" if lowest > 1 else ""
        raise ValueError(f"expected bytes, or text such as '512MB'{least}") from None


target_size = partial(size_bytes, lowest=LEAST_TARGET)


def duration(value: object) -> timedelta:
    """A time span above zero: a timedelta, or text such as ``20 hours`` or ``1h 30m``. A bare number has no unit."""
    span = value if isinstance(value, timedelta) else None
    seconds = _seconds(value)
    if seconds is not None and 0 < seconds <= _LONGEST.total_seconds():
        span = timedelta(seconds=seconds)
    if span is None or not timedelta(0) < span <= _LONGEST:
        raise ValueError("expected a time span above zero, with its unit: a timedelta, or text such as '20 hours'")
    return span


def utc_time(text: str) -> datetime:
    """A time; without a zone it is UTC."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("expected a time such as 2026-11-21T05:00:12Z; without a zone it is UTC") from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def switch(value: object) -> bool:
    """True or false, from a bool or a word."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _TRUE | _FALSE:
        return value.strip().lower() in _TRUE
    raise ValueError("expected true or false")


def _seconds(value: object) -> float | None:
    if not isinstance(value, str) or not value.strip():
        return None
    total, place = 0.0, 0
    while place < len(value):
        part = _DURATION_PART.match(value, place)
        if part is None or part[2].lower() not in _UNIT_SECONDS:
            return None
        total += float(part[1]) * _UNIT_SECONDS[part[2].lower()]
        place = part.end()
    return total


def metrics_reader(value: object) -> str:
    """Who reads metrics: ``otel``, ``prometheus``, or whoever asks at a host and port."""
    found = None if isinstance(value, bool) else _READER.fullmatch(str(value))
    if found is None or int(found["port"] or 0) > LAST_PORT:
        raise ValueError("expected 'otel', 'prometheus', or a port, such as 9464 or '0.0.0.0:9464'")
    return f"{found['host'] or LOOPBACK}:{found['port']}" if found["port"] else found[0]
