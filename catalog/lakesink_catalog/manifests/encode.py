"""Entries of new data files and delete files, encoded as the schema of their manifest lays them out. Pure.

Values are in single-value form, which mostly is Avro's form too, so few of them are decoded.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from lakesink_catalog.manifests import entries
from lakesink_catalog.manifests.avro_values import encode_bytes, encode_long
from lakesink_protocol.change import Content, ContentFile
from lakesink_protocol.receipt_json import ReceiptInvalid

FILE_FORMAT, COLUMN_SIZES, VALUE_COUNTS, NULL_VALUE_COUNTS, NAN_VALUE_COUNTS = 101, 108, 109, 110, 137
LOWER_BOUNDS, UPPER_BOUNDS, SPLIT_OFFSETS = 125, 128, 132
NULL, PRESENT = encode_long(0), encode_long(1)
"""Branches of an optional field; null is the first."""

Encode = Callable[[ContentFile], bytes]
Value = Callable[[bytes], bytes]
"""From single-value form to Avro; ValueError or struct.error if the value is not of the type."""

_encode_often = lru_cache(maxsize=4096)(encode_long)
"""For numbers that come again and again: most columns have as many values as the file has rows, and no NULLs."""


def entry_encoder(avro_schema: Any, snapshot_id: int) -> Encode:
    """A function that encodes the entry of a file which this snapshot adds; `avro_schema` is that of the manifest."""
    added = {entries.STATUS: encode_long(entries.ADDED), entries.SNAPSHOT_ID: PRESENT + encode_long(snapshot_id)}
    head = added | dict.fromkeys((entries.SEQUENCE_NUMBER, entries.FILE_SEQUENCE_NUMBER), NULL)
    ids = [field["field-id"] for field in avro_schema["fields"]]
    assert ids == [*head, entries.DATA_FILE], "the order of fields that this module writes"
    before = b"".join(head.values())
    encoders = [_encoder(field) for field in avro_schema["fields"][-1]["type"]["fields"]]

    def encode(file: ContentFile) -> bytes:
        return before + b"".join([one(file) for one in encoders])

    return encode


def _encoder(field: Mapping[str, Any]) -> Encode:
    if field["field-id"] == entries.PARTITION:
        return _partition([_value(part["type"][1]) for part in field["type"]["fields"]])
    if field["field-id"] not in _FIELDS and field["type"][0] == "null":
        return lambda _: NULL
    return _FIELDS[field["field-id"]]


def _partition(values: Sequence[Value]) -> Encode:
    def encode(file: ContentFile) -> bytes:
        try:
            pairs = zip(values, file.partition, strict=True)
            return b"".join([NULL if value is None else PRESENT + convert(value) for convert, value in pairs])
        except (ValueError, OverflowError, struct.error) as error:
            raise ReceiptInvalid("a partition value does not match its type") from error

    return encode


def _value(avro_type: Any) -> Value:
    match avro_type:
        case {"type": "fixed", "logicalType": "decimal", "size": size}:
            return lambda value: int.from_bytes(value, "big", signed=True).to_bytes(size, "big", signed=True)
        case {"type": "fixed", "size": size}:
            return lambda value: _of_size(value, size)
        case {"type": inner}:
            return _value(inner)
    return _VALUES[avro_type]


def _of_size(value: bytes, size: int) -> bytes:
    if len(value) != size:
        raise ValueError("a value of another size")
    return value


def _whole(form: str) -> Value:
    packed = struct.Struct(form)
    return lambda value: encode_long(packed.unpack(value)[0])


@lru_cache(maxsize=64)
def _keys(field_ids: tuple[int, ...], gaps: int) -> list[bytes]:
    """The parts of a map from field ids, with so many places for each value. Neighbouring files share it: copy it."""
    parts = [PRESENT + encode_long(len(field_ids))]
    for field_id in field_ids:
        parts += (encode_long(field_id), *[b""] * gaps)
    return [*parts, NULL]


def _counts(found: Mapping[int, int], encode: Callable[[int], bytes]) -> bytes:
    if not found:
        return _EMPTY
    parts = _keys(tuple(found), 1).copy()
    parts[2::2] = map(encode, found.values())
    return b"".join(parts)


def _bounds(found: Mapping[int, bytes]) -> bytes:
    if not found:
        return _EMPTY
    parts, bounds = _keys(tuple(found), 2).copy(), found.values()
    parts[2::3] = map(_encode_often, map(len, bounds))
    parts[3::3] = bounds
    return b"".join(parts)


def _offsets(found: Sequence[int]) -> bytes:
    return b"".join([PRESENT, encode_long(len(found)), *map(encode_long, found), NULL]) if found else _EMPTY


_EMPTY, _PARQUET = PRESENT + NULL, encode_bytes(b"PARQUET")
_CONTENTS: Mapping[Content, bytes] = {content: encode_long(content.value) for content in Content}
_VALUES: Mapping[str, Value] = {
    "boolean": lambda value: bytes([_of_size(value, 1) != b"\x00"]),
    "int": _whole("<i"),
    "long": _whole("<q"),
    "float": lambda value: _of_size(value, 4),
    "double": lambda value: _of_size(value, 8),
    "string": lambda value: encode_bytes(value.decode().encode()),  # a ValueError if it is no text
    "bytes": encode_bytes,
}
_FIELDS: Mapping[int, Encode] = {
    entries.CONTENT: lambda file: _CONTENTS[file.content],
    entries.FILE_PATH: lambda file: encode_bytes(file.path.encode()),
    FILE_FORMAT: lambda _: _PARQUET,
    entries.RECORD_COUNT: lambda file: encode_long(file.record_count),
    entries.FILE_SIZE: lambda file: encode_long(file.file_size_bytes),
    COLUMN_SIZES: lambda file: _counts(file.column_sizes, encode_long),
    VALUE_COUNTS: lambda file: _counts(file.value_counts, _encode_often),
    NULL_VALUE_COUNTS: lambda file: _counts(file.null_value_counts, _encode_often),
    NAN_VALUE_COUNTS: lambda file: _counts(file.nan_value_counts, _encode_often),
    LOWER_BOUNDS: lambda file: _bounds(file.lower_bounds),
    UPPER_BOUNDS: lambda file: _bounds(file.upper_bounds),
    SPLIT_OFFSETS: lambda file: _offsets(file.split_offsets),
    # Position deletes are in an order of their own, and state none.
    entries.SORT_ORDER_ID: lambda file: (
        PRESENT + encode_long(file.sort_order_id) if file.content is Content.DATA else NULL
    ),
    entries.REFERENCED_DATA_FILE: lambda file: (
        PRESENT + encode_bytes(file.referenced_data_file.encode()) if file.referenced_data_file else NULL
    ),
}
