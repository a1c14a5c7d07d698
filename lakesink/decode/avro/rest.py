"""Writes Avro values as JSON, of which the rescue column keeps parts. Pure, and slow: it is Python.

The reader has accepted the bytes as a value of the writer's schema. No value loses anything: whole numbers and decimals
have all their digits, bytes are Base64, dates and times have the digits of their unit.
"""

import base64
import json
import math
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from lakesink.decode.avro import schema as avro
from lakesink.decode.decimals import all_digits
from lakesink_catalog.manifests.avro_values import read_long

_PARTS: Mapping[str, int] = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}
"""Parts of a second by the last word of a logical type."""
_DAY_SECONDS = 86_400
_LONGEST_DECIMAL = 1_000
"""A decimal of more bytes, or with a larger scale, is written as bytes: Python limits the digits of a number."""
_FORMS: Mapping[str, struct.Struct] = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}
_SIZES: Mapping[str, int] = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_quoted = json.JSONEncoder(ensure_ascii=False).encode


def json_of(value: bytes, schema: avro.WriterSchema, without: Collection[str] = ()) -> str:
    """A record as JSON, without the fields of some names; half of a surrogate pair is a byte that is not UTF-8."""
    found = _Value(schema, value)
    return found.record(found.resolved(schema.root), without)


@dataclass(slots=True)
class _Value:
    """Reads one value from its start to its end."""

    schema: avro.WriterSchema
    data: bytes
    at: int = field(default=0, init=False)

    def record(self, kind: avro.Kind, without: Collection[str] = ()) -> str:
        """The next value, a record, as JSON without the fields of some names."""
        assert isinstance(kind, avro.Record)
        members = []
        for name, inner in kind.fields:
            if name in without:
                self._skip(inner)
            else:
                members.append(f"{_quoted(name)}:{self.text(inner)}")
        return f"{{{','.join(members)}}}"

    def text(self, kind: avro.Kind) -> str:
        """The next value, of this type, as JSON."""
        match self.resolved(kind):
            case avro.Scalar() as scalar:
                return self._scalar(scalar)
            case avro.Record() as record:
                return self.record(record)
            case avro.Enumeration(symbols):
                return _quoted(symbols[self._long()])
            case avro.ArrayOf(items):
                return f"[{','.join([self.text(items) for _ in self._items()])}]"
            case avro.MapTo(values):
                return f"{{{','.join([f'{self._string()}:{self.text(values)}' for _ in self._items()])}}}"
            case other:
                raise AssertionError(other)

    def resolved(self, kind: avro.Kind) -> avro.Kind:
        """The type itself: a reference's, and a union's branch, whose number is read."""
        while True:
            if isinstance(kind, avro.Union):
                kind = kind.branches[self._long()]
            elif isinstance(kind, avro.Reference):
                kind = self.schema.named[kind.name]
            else:
                return kind

    def _skip(self, kind: avro.Kind) -> None:
        kind = self.resolved(kind)
        if not isinstance(kind, avro.Scalar):
            self.text(kind)
        elif kind.name in ("int", "long"):
            self._long()
        elif kind.name in ("string", "bytes"):
            self._bytes(self._long())
        else:
            self._bytes(_SIZES.get(kind.name, kind.size))

    def _scalar(self, kind: avro.Scalar) -> str:  # noqa: PLR0911 - one for each type
        match kind.name:
            case "null":
                return "null"
            case "string":
                return self._string()
            case "int" | "long":
                return _whole(self._long(), kind.logical)
            case "float" | "double":
                form = _FORMS[kind.name]
                [number] = form.unpack(self._bytes(form.size))
                if math.isfinite(number):
                    return repr(number)
                return '"NaN"' if math.isnan(number) else '"Infinity"' if number > 0 else '"-Infinity"'
            case "boolean":
                return "true" if self._bytes(1) == b"\1" else "false"
            case "fixed":
                return _of_bytes(self._bytes(kind.size), kind)
            case _:
                return _of_bytes(self._bytes(self._long()), kind)

    def _items(self) -> Iterator[int]:
        while count := self._long():
            if count < 0:
                self._long()
            yield from range(abs(count))

    def _string(self) -> str:
        return _quoted(self._bytes(self._long()).decode(errors="surrogateescape"))

    def _bytes(self, size: int) -> bytes:
        start, self.at = self.at, self.at + size
        return self.data[start : self.at]

    def _long(self) -> int:
        number, self.at = read_long(self.data, self.at)
        return number


def _whole(number: int, logical: str | None) -> str:
    if logical is None:
        return str(number)
    if logical == "date":
        return f'"{_day(number)}"'
    word, _, unit = logical.rpartition("-")
    parts = _PARTS[unit]
    days, clock = divmod(number, _DAY_SECONDS * parts)
    if word == "time":
        return str(number) if days else f'"{_clock(clock, parts)}"'  # a time beyond a day is no time
    return f'"{_day(days)}T{_clock(clock, parts)}{"Z" if word == "timestamp" else ""}"'


def _day(days: int) -> str:
    """A date in ISO's form; NumPy knows every year."""
    return str(np.datetime64(days, "D"))


def _clock(number: int, parts: int) -> str:
    seconds, fraction = divmod(number, parts)
    minutes, second = divmod(seconds, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}.{fraction:0{len(str(parts)) - 1}}"


def _of_bytes(value: bytes, kind: avro.Scalar) -> str:
    if kind.logical == "decimal" and 0 < len(value) <= _LONGEST_DECIMAL and kind.scale <= _LONGEST_DECIMAL:
        return all_digits(int.from_bytes(value, "big", signed=True), kind.scale)
    if kind.logical == "uuid":
        digits = value.hex()
        return f'"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"'
    return f'"{base64.b64encode(value).decode("ascii")}"'
