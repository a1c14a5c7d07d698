"""Avro container files and their values, bit for bit, as the schema in the file's own header defines them.

PyIceberg keeps only the fields that it knows, and its compiled decoder reads a double as a float. This module skips a
value, cuts out its bytes, or decodes its Avro type: it does not interpret logical types.
"""

import bz2
import itertools
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakesink_catalog.manifests.avro_values import (
    Malformed,
    Read,
    encode_bytes,
    encode_long,
    read_bytes,
    read_long,
    reader,
)

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
MAX_BYTES = 512 * 1024 * 1024
"""Limit for all decompressed values of a file, far above the usual target size of a manifest."""
CHECKSUM_BYTES = 4
DEFLATE_LEVEL = 1
"""Half the time of the usual level, for 3 % more bytes: entries are mostly numbers, which hardly shrink."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a container file; the first block begins at `ends_at`."""

    metadata: Mapping[str, bytes]
    sync: bytes
    ends_at: int

    @property
    def schema(self) -> Any:
        """The writer's schema, see `parsed_schema`."""
        return parsed_schema(self.avro_schema)

    @property
    def avro_schema(self) -> bytes:
        """The writer's schema as it is written."""
        return self.metadata["avro.schema"]


def parsed_schema(avro_schema: bytes) -> Any:
    """A writer's schema, with every fixed type defined in place under its own name."""
    try:
        return with_inline_types(json.loads(avro_schema))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Malformed("the schema is not JSON") from error


_METADATA = reader({"type": "map", "values": "bytes"})


def read_header(data: bytes) -> Header:
    """The header of a container file; raises `Malformed` if it is cut or missing."""
    try:
        if data[: len(MAGIC)] != MAGIC:
            raise Malformed("not an Avro file")
        metadata, at = _METADATA(data, len(MAGIC))
        sync = data[at : at + SYNC_BYTES]
    except IndexError:
        raise Malformed("its header is cut") from None
    if len(sync) < SYNC_BYTES or "avro.schema" not in metadata:
        raise Malformed("its header is cut or has no schema")
    return Header(metadata, sync, at + SYNC_BYTES)


def blocks(data: bytes, header: Header) -> Iterator[tuple[int, bytes]]:
    """Number of values and decompressed bytes of every block."""
    codec = header.metadata.get("avro.codec", b"null").decode(errors="replace")
    at, left = header.ends_at, MAX_BYTES
    while at < len(data):
        try:
            count, at = read_long(data, at)
            packed, at = read_bytes(data, at)
        except IndexError:
            raise Malformed("a block is cut") from None
        if data[at : at + SYNC_BYTES] != header.sync:
            raise Malformed("a block has a wrong end mark")
        at += SYNC_BYTES
        # Bytes after the compressed data are ignored: PyIceberg leaves the rest of a checksum there.
        values = _decompressed_up_to(codec, packed, left + 1)
        if len(values) > left:
            raise Malformed("a block is too large")
        left -= len(values)
        if not 0 <= count <= len(values):
            raise Malformed("a block has more values than bytes")
        yield count, values


def values(data: bytes, header: Header) -> Iterator[Any]:
    """Every value of a container file, decoded; a record is a dictionary by field id, or by name without an id."""
    return each_value(data, header, reader(header.schema))


def each_value(data: bytes, header: Header, read: Read, word: str = "a value") -> Iterator[Any]:
    """What `read` makes of every value of a container file; `word` names a value in errors."""
    for count, block in blocks(data, header):
        at = 0
        for _ in range(count):
            try:
                value, at = read(block, at)
            except IndexError:
                raise Malformed(f"{word} is cut") from None
            yield value
        if at != len(block):
            raise Malformed("a block is longer or shorter than its values")


def container(metadata: Mapping[str, bytes], codec: str, parts: Iterable[Sequence[bytes]]) -> bytes:
    """A container file; each of `parts` is the encoded values of one block. The codec is added to the metadata."""
    return container_of_blocks(metadata, codec, (packed_block(codec, part) for part in parts))


def packed_block(codec: str, encoded: Sequence[bytes]) -> bytes:
    """A block of encoded values, compressed, without the mark at its end."""
    return encode_long(len(encoded)) + encode_bytes(_compressed(codec, b"".join(encoded)))


def container_of_blocks(metadata: Mapping[str, bytes], codec: str, blocks: Iterable[bytes]) -> bytes:
    """The same as `container`, of blocks that were packed with this codec."""
    sync = os.urandom(SYNC_BYTES)
    known = {**metadata, "avro.codec": codec.encode()}
    found = [MAGIC, encode_long(len(known))]
    for key, value in known.items():
        found += (encode_bytes(key.encode()), encode_bytes(value))
    found += (b"\x00", sync)
    for block in blocks:
        found += (block, sync)
    return b"".join(found)


def _compressed(codec: str, data: bytes) -> bytes:
    match codec:
        case "null":
            return data
        case "deflate":
            packer = zlib.compressobj(DEFLATE_LEVEL, wbits=-zlib.MAX_WBITS, memLevel=zlib.DEF_MEM_LEVEL + 1)
            return packer.compress(data) + packer.flush()
        case "zstandard":
            return bytes(pa.Codec("zstd").compress(data, asbytes=True))
    raise Malformed("an unknown codec")


def _decompressed_up_to(codec: str, data: bytes, most: int) -> bytes:
    try:
        match codec:
            case "null":
                return data
            case "deflate" | "bzip2":
                unpacker = zlib.decompressobj(-zlib.MAX_WBITS) if codec == "deflate" else bz2.BZ2Decompressor()
                found = unpacker.decompress(data, most)
                if not unpacker.eof and len(found) < most:
                    raise Malformed("a block is cut")
                return found
            case "zstandard":
                return bytes(pa.CompressedInputStream(pa.BufferReader(data), "zstd").read(most))
            case "snappy":
                return _unsnapped(data, most)
    except (zlib.error, OSError, EOFError, pa.ArrowException) as error:
        raise Malformed("a block cannot be decompressed") from error
    raise Malformed(f"an unknown codec: {codec[:20]}")


def _unsnapped(data: bytes, most: int) -> bytes:
    """Snappy data begins with the decompressed size; Avro adds a checksum at the end."""
    packed, checksum = data[:-CHECKSUM_BYTES], data[-CHECKSUM_BYTES:]
    size = shift = 0
    for byte in packed[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    if size > most:
        raise Malformed("a block is too large")
    found = pa.Codec("snappy").decompress(packed, size, asbytes=True)
    if zlib.crc32(found) != int.from_bytes(checksum, "big"):
        raise Malformed("a block has a wrong checksum")
    return bytes(found)


def with_inline_types(schema: Any) -> Any:
    """The schema with every fixed and enum type defined where it is used; the first use of a name keeps the name.

    Avro allows one definition of a name, and references to it later. PyIceberg defines the name at every use, which
    fastavro, DuckDB and Avro for Java refuse, and PyIceberg cannot read references. Iceberg for Java writes references.
    A definition at each use under its own name needs no reference and repeats no name.

    Raises:
        KeyError, TypeError, RecursionError: It is not a schema.
    """
    return _with_inline_types(schema, {}, set())


def _with_inline_types(schema: Any, known: dict[str, Any], taken: set[str]) -> Any:
    def inner(part: Any) -> Any:
        return _with_inline_types(part, known, taken)

    match schema:
        case str() if schema in known:
            found = inner(known[schema])
        case list():
            found = [inner(branch) for branch in schema]
        case {"type": "fixed" | "enum", "name": str(name)}:
            known[name] = schema
            names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
            free = next(each for each in names if each not in taken)
            taken.add(free)
            found = {**schema, "name": free}
        case {"type": "record", "fields": fields}:
            found = {**schema, "fields": [{**field, "type": inner(field["type"])} for field in fields]}
        case {"type": "array", "items": items}:
            found = {**schema, "items": inner(items)}
        case {"type": "map", "values": values}:
            found = {**schema, "values": inner(values)}
        case {"type": wrapped}:
            meant = inner(wrapped)
            found = {**schema, **(meant if isinstance(meant, dict) else {"type": meant})}
        case _:
            found = schema
    return found
