"""Avro values, bit for bit, as a writer's schema defines them. Pure.

A value is decoded as its Avro type: logical types are not interpreted.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Read = Callable[[bytes, int], tuple[Any, int]]
"""From the start of a value to the value and its end; IndexError if the bytes end before."""

LONGEST_VARINT_BITS = 63
_ONE_BYTE = [bytes([number]) for number in range(0x80)]


class Malformed(ValueError):
    """The bytes are damaged, or have a layout that this code does not know. Functions that read Avro raise it."""


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """An int or a long: zigzag, seven bits per byte."""
    byte = data[at]
    at += 1
    number, shift = byte & 0x7F, 7
    while byte & 0x80:
        if shift > LONGEST_VARINT_BITS:
            raise Malformed("a number is longer than 64 bits")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
    return (number >> 1) ^ -(number & 1), at


def encode_long(value: int) -> bytes:
    """The inverse of `read_long`."""
    rest = (value << 1) ^ (value >> LONGEST_VARINT_BITS)
    if rest <= 0x7F:
        return _ONE_BYTE[rest]
    if rest <= 0x3FFF:
        return bytes((rest & 0x7F | 0x80, rest >> 7))
    if rest <= 0x1FFFFF:
        return bytes((rest & 0x7F | 0x80, rest >> 7 & 0x7F | 0x80, rest >> 14))
    found = bytearray()
    while rest > 0x7F:
        found.append((rest & 0x7F) | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def encode_bytes(value: bytes) -> bytes:
    """The inverse of `read_bytes`."""
    return encode_long(len(value)) + value


def reader(schema: Any) -> Read:
    """A function that decodes a value of this schema; raises `Malformed` for an unknown schema or name."""
    compiled: Read = compile_with(_READS, schema)
    return compiled


@dataclass(frozen=True, slots=True)
class Tools:
    """What a schema is compiled to, by type: functions that decode values, or that skip them."""

    plain: Mapping[str, Any]
    fixed: Callable[[int], Any]
    union: Callable[[Sequence[Any]], Any]
    array: Callable[[Any], Any]
    map: Callable[[Any], Any]
    record: Callable[[Sequence[tuple[int | str, Any]]], Any]


def compile_with(tools: Tools, schema: Any) -> Any:
    """What a schema becomes; raises `Malformed` for an unknown schema or name."""
    return _compiled(schema, {}, tools)


def _compiled(schema: Any, names: dict[str, Any], tools: Tools) -> Any:
    try:
        if isinstance(schema, str):
            return tools.plain[schema] if schema in tools.plain else names[schema]
        if isinstance(schema, list):
            return tools.union([_compiled(branch, names, tools) for branch in schema])
        return _compiled_complex(schema, names, tools)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Malformed("a schema of an unknown kind") from error


def _compiled_complex(schema: Mapping[str, Any], names: dict[str, Any], tools: Tools) -> Any:
    match schema["type"]:
        case "record":
            keys = (field.get("field-id", field["name"]) for field in schema["fields"])
            types = [_compiled(field["type"], names, tools) for field in schema["fields"]]
            made = tools.record(list(zip(keys, types, strict=True)))
        case "array":
            return tools.array(_compiled(schema["items"], names, tools))
        case "map":
            return tools.map(_compiled(schema["values"], names, tools))
        case "fixed":
            if type(schema["size"]) is not int or schema["size"] < 0:
                raise Malformed("a fixed type without a valid size")
            made = tools.fixed(schema["size"])
        case "enum":
            made = tools.plain["int"]
        case inner:
            return _compiled(inner, names, tools)
    names[schema["name"]] = made
    return made


def counts(data: bytes, at: int) -> tuple[int, int, int]:
    """Number of items in the next block of an array or a map, the block's end if stated, and the start of its items."""
    byte = data[at]
    if not byte & 0x81 and byte >> 1 < len(data) - at:
        return byte >> 1, 0, at + 1
    count, at = read_long(data, at)
    end = 0
    if count < 0:
        size, at = read_long(data, at)
        count, end = -count, at + size
        if size < 0:
            raise Malformed("a block of a negative size")
    if count > len(data) - at:
        raise Malformed("more items than bytes")
    return count, end, at


def check_block_end(stated: int, at: int) -> None:
    """Raise `Malformed` unless the items of an array's block end where its size says, if it is stated."""
    if stated and stated != at:
        raise Malformed("a block of an array has another size than its items")


def _read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    if data[at] > 1:
        raise Malformed("a boolean is neither true nor false")
    return data[at] == 1, at + 1


def _read_packed(form: str) -> Read:
    packed = struct.Struct(form)

    def read(data: bytes, at: int) -> tuple[float, int]:
        if len(data) - at < packed.size:
            raise Malformed("a number is cut")
        return packed.unpack_from(data, at)[0], at + packed.size

    return read


def read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """Bytes with their length in front."""
    size, at = read_long(data, at)
    if not 0 <= size <= len(data) - at:
        raise Malformed("a text or bytes of an impossible size")
    return data[at : at + size], at + size


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    text, at = read_bytes(data, at)
    try:
        return text.decode(), at
    except UnicodeDecodeError as error:
        raise Malformed("a text that is not UTF-8") from error


def _read_fixed(size: int) -> Read:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        if len(data) - at < size:
            raise Malformed("a fixed is cut")
        return data[at : at + size], at + size

    return read


def _read_union(branches: Sequence[Read]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        index, at = read_long(data, at)
        value: tuple[Any, int] = branch(branches, index)(data, at)
        return value

    return read


def _read_array(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        while True:
            count, end, at = counts(data, at)
            if count == 0:
                return found, at
            for _ in range(count):
                value, at = item(data, at)
                found.append(value)
            check_block_end(end, at)

    return read


def _read_record(fields: Sequence[tuple[int | str, Read]]) -> Read:
    def read(data: bytes, at: int) -> tuple[dict[int | str, Any], int]:
        found = {}
        for key, one in fields:
            found[key], at = one(data, at)
        return found, at

    return read


def _read_map(value: Read) -> Read:
    pairs = _read_array(_read_record([("key", _read_string), ("value", value)]))

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found, at = pairs(data, at)
        return {pair["key"]: pair["value"] for pair in found}, at

    return read


def branch(branches: Sequence[Any], index: int) -> Any:
    """The branch of a union."""
    if not 0 <= index < len(branches):
        raise Malformed("a branch that the union does not have")
    return branches[index]


_READS = Tools(
    plain={
        "null": lambda _, at: (None, at),
        "boolean": _read_boolean,
        "int": read_long,
        "long": read_long,
        "float": _read_packed("<f"),
        "double": _read_packed("<d"),
        "bytes": read_bytes,
        "string": _read_string,
    },
    fixed=_read_fixed,
    union=_read_union,
    array=_read_array,
    map=_read_map,
    record=_read_record,
)
