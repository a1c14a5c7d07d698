"""The reader of Avro files beside another library: every value as it was written; spoilt bytes are malformed."""

import io
import zlib
from typing import Any

import fastavro
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from lakesink_catalog.manifests import avro
from lakesink_catalog.manifests.avro import container, read_header, values
from lakesink_catalog.manifests.avro_skips import skipper
from lakesink_catalog.manifests.avro_values import Malformed, encode_long, read_long, reader
from testkit.examples import examples

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "all",
    "fields": [
        {"name": "nothing", "type": "null"},
        {"name": "flag", "type": "boolean", "field-id": 7},
        {"name": "small", "type": "int"},
        {"name": "large", "type": ["null", "long"]},
        {"name": "single", "type": "float"},
        {"name": "double", "type": ["double", "null"]},
        {"name": "text", "type": "string"},
        {"name": "blob", "type": "bytes"},
        {"name": "fixed", "type": {"type": "fixed", "name": "three", "size": 3}},
        {"name": "again", "type": ["null", "three"]},
        {"name": "kind", "type": {"type": "enum", "name": "kinds", "symbols": ["A", "B"]}},
        {"name": "list", "type": {"type": "array", "items": ["null", "long"]}},
        {"name": "map", "type": {"type": "map", "values": "bytes"}},
        {"name": "inner", "type": {"type": "record", "name": "inner", "fields": [{"name": "x", "type": "long"}]}},
    ],
}
LONGS = st.integers(-(2**63), 2**63 - 1)
RECORDS = st.fixed_dictionaries(
    {
        "nothing": st.none(),
        "flag": st.booleans(),
        "small": st.integers(-(2**31), 2**31 - 1),
        "large": st.none() | LONGS,
        "single": st.floats(width=32, allow_nan=False),
        "double": st.none() | st.floats(allow_nan=False),
        "text": st.text(max_size=20),
        "blob": st.binary(max_size=20),
        "fixed": st.binary(min_size=3, max_size=3),
        "again": st.none() | st.binary(min_size=3, max_size=3),
        "kind": st.sampled_from(["A", "B"]),
        "list": st.lists(st.none() | LONGS, max_size=5),
        "map": st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=4),
        "inner": st.fixed_dictionaries({"x": LONGS}),
    }
)
CODECS = ["null", "deflate", "bzip2", "zstandard"]


def written(records: list[dict[str, Any]], codec: str = "null") -> bytes:
    """By the other library; blocks in zstandard, for which it needs another package, are packed here."""
    out = io.BytesIO()
    known = "null" if codec == "zstandard" else codec
    fastavro.writer(out, fastavro.parse_schema(SCHEMA), records, codec=known, sync_interval=64)
    if codec == known:
        return out.getvalue()
    header = read_header(out.getvalue())
    data = container(header.metadata, "zstandard", [])
    sync = read_header(data).sync
    for count, block in avro.blocks(out.getvalue(), header):
        packed = zstandard.ZstdCompressor().compress(block)
        data += encode_long(count) + encode_long(len(packed)) + packed + sync
    return data


def expected(record: dict[str, Any]) -> dict[int | str, Any]:
    """By id where there is one; an enum is the place of its symbol."""
    named = {**record, "kind": "AB".index(record["kind"])}
    return {field.get("field-id", field["name"]): named[field["name"]] for field in SCHEMA["fields"]}


@given(records=st.lists(RECORDS, max_size=8), codec=st.sampled_from(CODECS))
def test_every_value_is_read_as_it_was_written_whatever_the_codec(records: list[dict[str, Any]], codec: str) -> None:
    data = written(records, codec)
    header = read_header(data)
    assert repr(list(values(data, header))) == repr([expected(record) for record in records])
    skip, read = skipper(header.schema).skip, reader(header.schema)
    for count, block in avro.blocks(data, header):
        at = 0
        for _ in range(count):
            assert skip(block, at) == read(block, at)[1]
            at = skip(block, at)
        assert at == len(block)


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_what_is_written_is_read_by_another_library(codec: str) -> None:
    parts = [[encode_long(number), encode_long(-number)] for number in (1, 2**62, 63, 64)]
    data = container({"avro.schema": b'"long"', "kept": "ä".encode()}, codec, parts)
    found = fastavro.reader(io.BytesIO(data))
    assert list(found) == [value for number in (1, 2**62, 63, 64) for value in (number, -number)]
    assert read_header(data).metadata["kept"] == "ä".encode()


def test_what_is_packed_by_zstandard_is_unpacked_by_another_library() -> None:
    data = container({"avro.schema": b'"long"'}, "zstandard", [[encode_long(7)] * 1000])
    at = read_header(data).ends_at
    count, at = read_long(data, at)
    size, at = read_long(data, at)
    assert (count, zstandard.ZstdDecompressor().decompress(data[at : at + size])) == (1000, encode_long(7) * 1000)


def test_a_block_in_snappy_is_read_and_its_checksum_looked_at() -> None:
    plain = encode_long(5) * 3000
    packed = bytes(pa.Codec("snappy").compress(plain, asbytes=True)) + zlib.crc32(plain).to_bytes(4, "big")
    for spoilt in (False, True):
        block = packed[:-1] + bytes([packed[-1] ^ spoilt])
        data = container({"avro.schema": b'"long"'}, "null", [])
        data = data.replace(b"null", b"snappy").replace(encode_long(4) + b"snappy", encode_long(6) + b"snappy")
        header = read_header(data)
        data += encode_long(3000) + encode_long(len(block)) + block + header.sync
        if spoilt:
            with pytest.raises(Malformed):
                list(values(data, header))
        else:
            assert list(values(data, header)) == [5] * 3000


@given(LONGS)
def test_a_long_is_what_it_was(number: int) -> None:
    assert read_long(encode_long(number), 0) == (number, len(encode_long(number)))


ONE: dict[str, Any] = {
    "nothing": None,
    "flag": True,
    "small": -5,
    "large": None,
    "single": 0.5,
    "double": None,
    "text": "ä" * 9,
    "blob": b"ab",
    "fixed": b"abc",
    "again": None,
    "kind": "B",
    "list": [1, None, 2**40],
    "map": {"k": b"v"},
    "inner": {"x": 7},
}
WHOLE = {codec: written([ONE] * 5, codec) for codec in CODECS}


def _read_all(data: bytes) -> None:
    """Whatever the bytes are, they are read or found malformed; nothing else is raised, and nothing takes long."""
    try:
        header = read_header(data)
        list(values(data, header))
    except Malformed:
        return


@examples(60)
@given(data=st.data(), codec=st.sampled_from(CODECS))
def test_spoilt_bytes_are_malformed_or_other_values_and_never_a_hang(data: st.DataObject, codec: str) -> None:
    spoilt = bytearray(WHOLE[codec])
    for _ in range(data.draw(st.integers(1, 3))):
        spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    _read_all(bytes(spoilt))


@pytest.mark.parametrize("codec", CODECS)
def test_a_file_that_is_cut_is_malformed_wherever_it_is_cut_but_between_blocks(codec: str) -> None:
    whole = WHOLE[codec]
    header = read_header(whole)
    ends = {at + 16 for at in range(header.ends_at, len(whole)) if whole[at : at + 16] == header.sync}
    for end in set(range(len(whole))) - ends - {header.ends_at}:
        with pytest.raises(Malformed):
            list(values(whole[:end], read_header(whole[:end])))


@pytest.mark.parametrize("size", [2**40, -1, -(2**62), 2**63 - 1])
@pytest.mark.parametrize("schema", [b'"bytes"', b'"string"', b'{"type": "array", "items": "null"}'])
def test_sizes_that_cannot_be_are_malformed_before_memory_is_taken(schema: bytes, size: int) -> None:
    data = container({"avro.schema": schema}, "null", [[encode_long(size) + b"\x00"]])
    with pytest.raises(Malformed):
        list(values(data, read_header(data)))


def test_a_block_that_would_be_huge_is_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "MAX_BYTES", 1000)
    for codec in ("null", "deflate", "zstandard"):
        data = container({"avro.schema": b'"long"'}, codec, [[b"\x00"] * 600, [b"\x00"] * 600])
        with pytest.raises(Malformed, match="too large"):
            list(values(data, read_header(data)))


@pytest.mark.parametrize(
    "schema", ['"unknown"', '{"type": "record"}', "[]", "7", '{"type": "fixed", "size": -1, "name": "x"}']
)
def test_a_schema_that_is_not_known_is_malformed_or_holds_no_value(schema: str) -> None:
    data = container({"avro.schema": schema.encode()}, "null", [[b"\x00"]])
    with pytest.raises(Malformed):
        list(values(data, read_header(data)))
