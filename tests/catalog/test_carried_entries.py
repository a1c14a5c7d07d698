"""Entries that a merge copies, beside a library that decodes and encodes every field: random ones, and spoilt ones."""

import copy
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest

from lakesink_catalog.manifests.avro import container, read_header, values
from lakesink_catalog.manifests.avro_skips import skipper
from lakesink_catalog.manifests.avro_values import Malformed, encode_long, reader
from lakesink_catalog.manifests.entries import (
    DATA_FILE,
    FILE_SEQUENCE_NUMBER,
    SEQUENCE_NUMBER,
    SNAPSHOT_ID,
    STATUS,
    Inherited,
    NewEntry,
    carry_over,
)
from tests.catalog.raw_avro import plain, raw

Document = dict[str, Any]
INHERITED = Inherited(snapshot_id=2**40, sequence_number=9)
CODECS = ("null", "deflate", "zstandard")
NUMBERS = (0, 1, -1, 63, 64, -65, 2**13, 2**31 - 1, -(2**31))
LARGE = (*NUMBERS, 2**35, 2**62, -(2**63), 2**63 - 1)
SIZES = (0, 0, 1, 1, 2, 13, 64, 255, 256, 300)


def shuffled(layout: Document, chance: random.Random) -> Document:
    """The same with fields in another order, unions the other way round, fields left out, and unknown ones."""
    found = copy.deepcopy(layout)
    [file] = [field["type"] for field in found["fields"] if field["field-id"] == DATA_FILE]
    if chance.random() < 0.7:
        unknown = ["null", "bytes"], {"type": "array", "items": "string"}, {"type": "map", "values": ["double", "null"]}
        added = [{"name": f"new{each}", "type": kind, "field-id": 900 + each} for each, kind in enumerate(unknown)]
        file["fields"] += chance.sample(added, chance.randrange(4))
        left_out = chance.sample([128, 131, 132, 135, 137, 140], 2)
        file["fields"] = [field for field in file["fields"] if field["field-id"] not in left_out]
    for record in (found, file) if chance.random() < 0.7 else ():
        chance.shuffle(record["fields"])
        for field in record["fields"]:
            if isinstance(field["type"], list) and chance.random() < 0.3:
                field["type"].reverse()
                field.pop("default", None)
    return found


def value_of(schema: Any, chance: random.Random) -> Any:
    """Any value of an Avro type."""
    found: Any
    match schema:
        case list():
            found = value_of(chance.choice(schema), chance)
        case {"type": "record", "fields": fields}:
            found = {field["name"]: value_of(field["type"], chance) for field in fields}
        case {"type": "array", "items": items}:
            found = [value_of(items, chance) for _ in range(chance.choice(SIZES))]
        case {"type": "map", "values": inner}:
            found = {f"key {number}": value_of(inner, chance) for number in range(chance.randrange(4))}
        case {"type": "fixed", "size": size}:
            found = chance.randbytes(size)
        case {"type": inner}:
            found = value_of(inner, chance)
        case _:
            found = PLAIN[schema](chance)
    return found


PLAIN: dict[str, Callable[[random.Random], Any]] = {
    "null": lambda _: None,
    "boolean": lambda chance: chance.random() < 0.5,
    "int": lambda chance: chance.choice(NUMBERS),
    "long": lambda chance: chance.choice(LARGE),
    "float": lambda chance: chance.choice([0.0, -0.0, 1.5]),
    "double": lambda chance: chance.choice([0.1, -0.0, 1.7e308]),
    "bytes": lambda chance: chance.randbytes(chance.choice(SIZES)),
    "string": lambda chance: chance.choice("aä") * chance.choice(SIZES),
}


def entry_of(layout: Document, chance: random.Random) -> Document:
    """Any entry that a manifest of data files may have."""
    found: Document = value_of(plain(layout), chance)
    found["status"] = chance.choice([0, 1, 1, 1, 2])
    found["snapshot_id"] = chance.choice([None, 5, 2**62])
    found["sequence_number"] = chance.choice([3, 5] if found["status"] == 0 else [None, None, 3])
    found["file_sequence_number"] = chance.choice([None, 7, 2**40])
    found["data_file"]["record_count"] = chance.randrange(2**40)
    return found


def expected(entry: Document) -> Document:
    """The entry in another manifest, as Iceberg's specification has it."""
    added = entry["status"] == 1
    inherited = {"snapshot_id": INHERITED.snapshot_id}
    if added:
        inherited |= dict.fromkeys(("sequence_number", "file_sequence_number"), INHERITED.sequence_number)
    return entry | {name: value for name, value in inherited.items() if entry[name] is None} | {"status": 0}


def encoded(entry: Document, layout: Document) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain(layout)), entry)
    return out.getvalue()


def manifest_of(entries: list[bytes], layout: Document, codec: str, block: int) -> bytes:
    parts = [entries[start : start + block] for start in range(0, len(entries), block)]
    return container({"avro.schema": json.dumps(layout).encode()}, codec, parts)


def carried(data: bytes) -> list[NewEntry | None]:
    """All entries of a manifest."""
    return list(carry_over(data, read_header(data), INHERITED))


def live(found: list[NewEntry | None]) -> list[NewEntry]:
    return [entry for entry in found if entry is not None]


@pytest.mark.parametrize("seed", range(60))
def test_copied_entries_are_those_of_another_library_field_by_field(
    tmp_path: Path, layout: Document, seed: int
) -> None:
    chance = random.Random(seed)
    writer = shuffled(layout, chance)
    entries = [entry_of(writer, chance) for _ in range(chance.choice([1, 5, 20]))]
    packed = [encoded(entry, writer) for entry in entries]
    read = carried(manifest_of(packed, writer, CODECS[seed % 3], chance.choice([1, 3, 1000])))
    found = live(read)
    wanted = [expected(entry) for entry in entries if entry["status"] != 2]
    assert [entry.encoded for entry in found] == [encoded(entry, writer) for entry in wanted]
    place = tmp_path / "carried.avro"
    place.write_bytes(manifest_of([entry.encoded for entry in found], writer, "deflate", 2))
    assert repr(raw(str(place)).records) == repr(wanted)
    assert [entry is None for entry in read] == [entry["status"] == 2 for entry in entries]
    assert [entry.rows for entry in found] == [entry["data_file"]["record_count"] for entry in wanted]
    assert [entry.sequence_number for entry in found] == [entry["sequence_number"] for entry in wanted]
    of_partitions = {repr(entry["data_file"]["partition"]) for entry in wanted}
    assert len({entry.partition for entry in found}) <= len(of_partitions)


def decoded(data: bytes) -> list[dict[int | str, Any]]:
    """By lakesink's own reader, which decodes every field."""
    return list(values(data, read_header(data)))


def _expected_by_id(entry: dict[int | str, Any]) -> dict[int | str, Any]:
    names = {STATUS: "status", SNAPSHOT_ID: "snapshot_id", SEQUENCE_NUMBER: "sequence_number"}
    names |= {FILE_SEQUENCE_NUMBER: "file_sequence_number"}
    head = expected({name: entry[field] for field, name in names.items()})
    return entry | {field: head[name] for field, name in names.items()}


def _carried(data: bytes) -> list[NewEntry] | None:
    try:
        return live(carried(data))
    except Malformed:
        return None


def spoilt(block: bytes, chance: random.Random) -> bytes:
    """The block with some other bytes, perhaps cut."""
    found = bytearray(block)
    for _ in range(chance.randrange(1, 4)):
        found[chance.randrange(len(found))] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)])
    return bytes(found[: chance.choice([len(found), len(found), chance.randrange(len(found))])])


@pytest.mark.dear
@pytest.mark.parametrize("seed", range(40))
def test_spoilt_entries_are_malformed_or_copied_as_they_are_decoded(layout: Document, seed: int) -> None:
    """What skips a value ends where a decoder ends; nothing but `Malformed` is raised."""
    chance = random.Random(seed)
    writer, count = shuffled(layout, chance), 3
    block = b"".join(encoded(entry_of(writer, chance), writer) for _ in range(count))
    for _ in range(30):
        data = manifest_of([spoilt(block, chance), *[b""] * (count - 1)], writer, "null", count)
        found = _carried(data)
        try:
            wanted = [_expected_by_id(entry) for entry in decoded(data) if entry[STATUS] != 2]
        except Malformed:
            assert found is None
            continue
        if found is not None:
            assert repr(decoded(manifest_of([entry.encoded for entry in found], writer, "null", 9))) == repr(wanted)


ARRAY = {"type": "array", "items": {"type": "record", "name": "r", "fields": [{"name": "x", "type": "long"}]}}


def _array(stated_bytes: int) -> bytes:
    """Three items of two bytes each, behind a size."""
    return encode_long(-3) + encode_long(stated_bytes) + encode_long(2**10) * 3 + encode_long(0)


def test_a_block_of_an_array_that_states_its_size_is_skipped() -> None:
    data = _array(6)
    assert skipper(ARRAY).skip(data, 0) == reader(ARRAY)(data, 0)[1] == len(data)


@pytest.mark.parametrize("stated", [5, 7, 1])
def test_a_block_of_an_array_that_states_another_size_than_its_items_is_malformed(stated: int) -> None:
    """Some decoders go by the size and others by the items, so that they would read different values."""
    for read in (skipper(ARRAY).skip, reader(ARRAY)):
        with pytest.raises(Malformed):
            read(_array(stated), 0)
