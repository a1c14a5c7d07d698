"""The reader of Avro files beside another library: every value as it was written; spoilt bytes are malformed."""

import io
import random
import zlib
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from lakesink_catalog.manifests import avro
from lakesink_catalog.manifests.avro import container, container_of_blocks, packed_block, read_header, values
from lakesink_catalog.manifests.avro_skips import skipper
from lakesink_catalog.manifests.avro_values import Malformed, counts, encode_bytes, encode_long, read_long, reader
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
    assert longs("snappy", 3000, packed) == [5] * 3000
    with pytest.raises(Malformed, match="a wrong checksum"):
        longs("snappy", 3000, packed[:-1] + bytes([packed[-1] ^ 1]))


def longs(codec: str, count: int, packed: bytes) -> list[int]:
    """What is read of a file with this block of so many longs."""
    data = container_of_blocks({"avro.schema": b'"long"'}, codec, [encode_long(count) + encode_bytes(packed)])
    return list(values(data, read_header(data)))


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "zstandard", "snappy"])
def test_a_block_that_was_not_packed_by_its_codec_is_said_to_be_so(codec: str) -> None:
    with pytest.raises(Malformed, match="a block cannot be decompressed"):
        longs(codec, 1, b"\x07not packed")


def test_a_packed_block_without_its_end_is_cut_though_all_its_values_are_there() -> None:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    values_only = packer.compress(encode_long(5) * 3) + packer.flush(zlib.Z_SYNC_FLUSH)
    with pytest.raises(Malformed, match="a block is cut"):
        longs("deflate", 3, values_only)
    assert longs("deflate", 3, values_only + packer.flush()) == [5] * 3


@given(LONGS)
def test_a_long_is_what_it_was(number: int) -> None:
    assert read_long(encode_long(number), 0) == (number, len(encode_long(number)))


@pytest.mark.parametrize("length", range(1, 10))
def test_the_largest_number_of_so_many_bytes_has_no_byte_more(length: int) -> None:
    """Seven bits a byte, of which one is for the sign."""
    most = 2 ** (7 * length - 1) - 1
    assert [len(encode_long(number)) for number in (most, -most - 1, most + 1)] == [length, length, length + 1]
    assert encode_long(-most - 1) == b"\xff" * (length - 1) + b"\x7f"


LIST = {"type": "array", "items": "long"}


def test_a_list_of_more_items_than_bytes_is_malformed_before_an_item_is_read() -> None:
    """Items without bytes could be any number."""
    three = encode_long(3)
    assert reader(LIST)(three + b"\x02\x04\x06\x00", 0) == ([1, 2, 3], 5)
    for schema in (LIST, {"type": "array", "items": "null"}):
        for read in (reader(schema), skipper(schema).skip):
            with pytest.raises(Malformed, match="more items than bytes"):
                read(three + b"\x02\x04", 0)


@pytest.mark.parametrize(
    ("block", "found"),
    [
        (encode_long(0), (0, 0, 1)),
        (encode_long(3) + bytes(3), (3, 0, 1)),
        (encode_long(63) + bytes(70), (63, 0, 1)),
        (encode_long(64) + bytes(64), (64, 0, 2)),
        (encode_long(-2) + encode_long(5) + bytes(5), (2, 7, 2)),
        (encode_long(-1) + encode_long(0) + bytes(1), (1, 2, 2)),
    ],
)
def test_a_block_of_a_list_begins_with_its_items_and_perhaps_its_size(
    block: bytes, found: tuple[int, int, int]
) -> None:
    assert counts(block, 0) == found
    count, end, start = found
    assert counts(b"?" + block, 1) == (count, end and end + 1, start + 1)


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (encode_long(3) + bytes(2), "more items than bytes"),
        (encode_long(64) + bytes(63), "more items than bytes"),
        (encode_long(-2) + encode_long(5) + bytes(1), "more items than bytes"),
        (encode_long(-1) + encode_long(-1) + bytes(1), "a block of a negative size"),
    ],
)
def test_a_block_of_a_list_that_cannot_be_is_malformed(block: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        counts(block, 0)


def test_every_branch_of_a_wide_union_is_skipped_up_to_its_end() -> None:
    """The places from 64 on have two bytes."""
    union = [{"type": "fixed", "name": f"f{size}", "size": size} for size in range(130)]
    skip = skipper(union).skip
    for place in range(130):
        data = encode_long(place) + b"x" * place
        assert skip(data + b"x", 0) == len(data)
    with pytest.raises(Malformed):
        skip(encode_long(130) + b"x" * 130, 0)


THREE = {"type": "fixed", "name": "three", "size": 3}
NONE = {"type": "fixed", "name": "none", "size": 0}
PAIR = {"type": "record", "name": "pair", "fields": [{"name": "a", "type": "bytes"}, {"name": "b", "type": "boolean"}]}
SINGLE: list[Any] = ["null", "boolean", "int", "float", "bytes", "string", NONE, THREE, [], ["null", "long"]]
SINGLE += [["string", THREE, "null"], {"type": "map", "values": "int"}, PAIR, [PAIR, NONE]]
LISTS = [{"type": "array", "items": one} for one in SINGLE]


def end_of(read: Callable[[bytes, int], int], data: bytes) -> int | None:
    """Where the value ends that begins with the data; None if there is none. Who calls sees what is cut."""
    try:
        end = read(data, 0)
    except (Malformed, IndexError):
        return None
    return end if end <= len(data) else None


@pytest.mark.parametrize("schema", [*SINGLE, *LISTS, *({"type": "array", "items": one} for one in LISTS)], ids=str)
def test_any_bytes_are_skipped_up_to_where_they_are_read(schema: Any) -> None:
    skip, read, chance = skipper(schema).skip, reader(schema), random.Random(str(schema))
    for _ in range(300):
        data = bytes(chance.choices(b"\0\1\2\3\4\5\6\x08\x7f\x80\x81\xffa", k=chance.randrange(14)))
        assert end_of(skip, data) == end_of(lambda *given: read(*given)[1], data)


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
    ("schema", "whole", "why"),
    [
        ("float", bytes(4), "a number is cut"),
        ("double", bytes(8), "a number is cut"),
        ({"type": "fixed", "name": "f", "size": 3}, bytes(3), "a fixed is cut"),
        ("bytes", encode_bytes(b"ab"), "an impossible size"),
        ("string", encode_bytes(b"ab"), "an impossible size"),
    ],
)
def test_a_value_is_read_up_to_its_last_byte_and_cut_without_it(schema: Any, whole: bytes, why: str) -> None:
    read = reader(schema)
    assert read(b"?" + whole + b"?", 1)[1] == 1 + len(whole)
    assert read(b"?" + whole, 1)[1] == 1 + len(whole)
    with pytest.raises(Malformed, match=why):
        read(b"?" + whole[:-1], 1)


@pytest.mark.parametrize(
    ("schema", "data", "why"),
    [
        ("boolean", b"\x02", "neither true nor false"),
        ("bytes", encode_long(-1), "an impossible size"),
        ("string", encode_bytes(b"\xff"), "not UTF-8"),
    ],
)
def test_a_value_that_its_type_lacks_is_malformed(schema: str, data: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        reader(schema)(data, 0)


@pytest.mark.parametrize(
    ("count", "block", "why"),
    [
        (3, b"\x01\x01", "more values than bytes"),
        (-1, b"\x01\x01", "more values than bytes"),
        (1, b"\x01\x01", "longer or shorter than its values"),
        (0, b"\x01", "longer or shorter than its values"),
    ],
)
def test_a_block_has_as_many_values_as_it_states(count: int, block: bytes, why: str) -> None:
    data = container_of_blocks({"avro.schema": b'"boolean"'}, "null", [encode_long(count) + encode_bytes(block)])
    with pytest.raises(Malformed, match=why):
        list(values(data, read_header(data)))


def test_no_block_is_packed_by_a_codec_that_is_not_known() -> None:
    with pytest.raises(Malformed, match="an unknown codec"):
        packed_block("brotli", [b"a"])


@pytest.mark.parametrize("blocks", [1, 2])
def test_as_many_bytes_as_allowed_are_read_and_no_byte_more(monkeypatch: pytest.MonkeyPatch, blocks: int) -> None:
    plain = encode_long(5) * 600
    packed = bytes(pa.Codec("snappy").compress(plain, asbytes=True)) + zlib.crc32(plain).to_bytes(4, "big")
    block = encode_long(600) + encode_bytes(packed)
    data = container_of_blocks({"avro.schema": b'"long"'}, "snappy", [block] * blocks)
    monkeypatch.setattr(avro, "MAX_BYTES", 600 * blocks)
    assert list(values(data, read_header(data))) == [5] * 600 * blocks
    monkeypatch.setattr(avro, "MAX_BYTES", 600 * blocks - 2)
    with pytest.raises(Malformed, match="too large"):
        list(values(data, read_header(data)))


@pytest.mark.parametrize(
    "schema", ['"unknown"', '{"type": "record"}', "[]", "7", '{"type": "fixed", "size": -1, "name": "x"}']
)
def test_a_schema_that_is_not_known_is_malformed_or_holds_no_value(schema: str) -> None:
    data = container({"avro.schema": schema.encode()}, "null", [[b"\x00"]])
    with pytest.raises(Malformed):
        list(values(data, read_header(data)))
