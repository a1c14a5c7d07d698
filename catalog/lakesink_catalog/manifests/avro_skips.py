"""Skips Avro values fast: a merge looks for the ends of many thousand entries, and needs few of their values. Pure.

The items of an array are skipped by regular expressions where their type allows it: that is several times as fast as a
loop. Whatever an expression does not match is skipped value by value.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lakesink_catalog.manifests import avro_values

Skip = Callable[[bytes, int], int]
"""From the start of a value to its end; IndexError if the bytes end before."""

LONGEST_SHORT_TEXT = 63
"""Its length is a single byte."""
MOST_AT_ONCE = 255
"""Items that one expression skips; there is one for each number of items, so this limits how many there are."""
LONGEST_PATTERN = 4096


@dataclass(frozen=True, slots=True)
class Skipper:
    """Skips values of one type.

    Attributes:
        skip: Skips any value.
        pattern: A regular expression of the values, or of most; None if there is none, or only a long one.
        fields: Of a record, by id, or by name without an id.
    """

    skip: Skip
    pattern: bytes | None = None
    fields: tuple[tuple[int | str, "Skipper"], ...] = ()


def skipper(schema: Any) -> Skipper:
    """What skips values of this schema; raises `Malformed` for an unknown schema or name."""
    compiled: Skipper = avro_values.compile_with(_SKIPS, schema)
    return compiled


def _skip_long(data: bytes, at: int) -> int:
    if not data[at] & 0x80:
        return at + 1
    return avro_values.read_long(data, at)[1]


def _skip_bytes(data: bytes, at: int) -> int:
    return avro_values.read_bytes(data, at)[1]


def _checked(kind: str) -> Skipper:
    """Skips what a decoder accepts, and only that."""
    read = avro_values.reader(kind)
    return Skipper(lambda data, at: read(data, at)[1])


def _fixed(size: int) -> Skipper:
    return Skipper(lambda _, at: at + size, b".{%d}" % size if size <= LONGEST_PATTERN else None)


def _union(branches: Sequence[Skipper]) -> Skipper:
    skips = [one.skip for one in branches]
    by_byte = {avro_values.encode_long(index)[0]: one for index, one in enumerate(skips[:LONGEST_SHORT_TEXT])}

    def skip(data: bytes, at: int) -> int:
        chosen = by_byte.get(data[at])
        if chosen is None:
            index, at = avro_values.read_long(data, at)
            chosen = avro_values.branch(skips, index)
            at -= 1
        return chosen(data, at + 1)

    indexed = [_joined([re.escape(avro_values.encode_long(index)), one.pattern]) for index, one in enumerate(branches)]
    return Skipper(skip, _any_of(indexed))


def _record(fields: Sequence[tuple[int | str, Skipper]]) -> Skipper:
    skips = [one.skip for _, one in fields]

    def skip(data: bytes, at: int) -> int:
        for one in skips:
            at = one(data, at)
        return at

    return Skipper(skip, _joined([one.pattern for _, one in fields]), tuple(fields))


def _array(item: Skipper) -> Skipper:
    skip_some = _some(item)

    def skip(data: bytes, at: int) -> int:
        while True:
            count, end, at = avro_values.counts(data, at)
            if count == 0:
                return at
            while count > MOST_AT_ONCE:
                at = skip_some(MOST_AT_ONCE, data, at)
                count -= MOST_AT_ONCE
            at = skip_some(count, data, at)
            avro_values.check_block_end(end, at)

    return Skipper(skip)


def _some(item: Skipper) -> Callable[[int, bytes, int], int]:
    """What skips so many items, at most `MOST_AT_ONCE`."""
    pattern = item.pattern
    if pattern is None:
        return partial(_skip_each, item.skip)
    known: dict[int, re.Pattern[bytes]] = {}

    def skip(count: int, data: bytes, at: int) -> int:
        if count not in known:
            known[count] = re.compile(b"(?:%s){%d}" % (pattern, count), re.DOTALL)
        found = known[count].match(data, at)
        return found.end() if found else _skip_each(item.skip, count, data, at)

    return skip


def _skip_each(skip: Skip, count: int, data: bytes, at: int) -> int:
    for _ in range(count):
        at = skip(data, at)
    return at


def _joined(patterns: Sequence[bytes | None]) -> bytes | None:
    known = [pattern for pattern in patterns if pattern is not None]
    return _short(b"".join(known)) if len(known) == len(patterns) else None


def _any_of(patterns: Sequence[bytes | None]) -> bytes | None:
    known = [pattern for pattern in patterns if pattern is not None]
    return _short(b"(?:%s)" % b"|".join(known)) if 0 < len(known) == len(patterns) else None


def _short(pattern: bytes) -> bytes | None:
    return pattern if len(pattern) <= LONGEST_PATTERN else None


_SHORT_TEXTS = [re.escape(avro_values.encode_long(size)) + b".{%d}" % size for size in range(LONGEST_SHORT_TEXT + 1)]
_NUMBER = Skipper(_skip_long, rb"[\x80-\xff]{0,9}[\x00-\x7f]")
_BYTES = Skipper(_skip_bytes, _any_of(_SHORT_TEXTS))
_STRING = _checked("string")
_SKIPS = avro_values.Tools(
    plain={
        "null": Skipper(lambda _, at: at, b""),
        "boolean": _checked("boolean"),
        "int": _NUMBER,
        "long": _NUMBER,
        "float": _fixed(4),
        "double": _fixed(8),
        "bytes": _BYTES,
        "string": _STRING,
    },
    fixed=_fixed,
    union=_union,
    array=_array,
    map=lambda value: _array(_record([("key", _STRING), ("value", value)])),
    record=_record,
)
