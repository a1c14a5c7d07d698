"""Partition fields that share a decimal, a UUID or a fixed: Avro knows them by name, and lets it be defined once."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import fastavro
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, Transform, TruncateTransform, VoidTransform
from pyiceberg.types import DecimalType, FixedType, IcebergType, LongType, NestedField, UUIDType

from lakesink_catalog.commit.recovered import matches_manifests
from lakesink_catalog.manifests.avro import SYNC_BYTES, container, read_header, values, with_inline_types
from lakesink_catalog.manifests.entries import DATA_FILE, FILE_PATH, PARTITION
from lakesink_catalog.manifests.lists import manifests_under
from testkit.builders import Lake
from tests.catalog.partition_cases import unscaled
from tests.catalog.raw_avro import raw_entries
from tests.catalog.test_exact_manifests import Writer
from tests.catalog.test_foreign_manifests import Foreign

Rename = Callable[[dict[str, Any], dict[str, Any]], Any]
"""Another type of a partition field, from that of the first field and its own."""


@dataclass(frozen=True)
class Shared:
    """Two columns of one type, partitioned by both."""

    name: str
    kind: IcebergType
    pair: tuple[Any, Any]
    encode: Callable[[Any], bytes]
    second: Transform[Any, Any]

    def make(self, folder: Path) -> Lake:
        fields = [NestedField(1, "id", LongType()), NestedField(2, "a", self.kind), NestedField(3, "b", self.kind)]
        first = PartitionField(2, 1000, IdentityTransform(), "part_a")
        spec = PartitionSpec(first, PartitionField(3, 1001, self.second, "part_b"))
        return Lake.make(folder, schema=Schema(*fields), spec=spec)

    def partition(self, one: int, other: int) -> tuple[bytes | None, bytes | None]:
        is_void = isinstance(self.second, VoidTransform)
        return self.encode(self.pair[one]), None if is_void else self.encode(self.pair[other])


DECIMALS = (Decimal("1.20"), Decimal("-7654321.00")), unscaled
FIXED = (b"\x00\x01\x02\x03", b"\xff\xfe\xfd\xfc"), bytes
UUIDS = (UUID(int=1), UUID(int=2**128 - 1)), lambda value: bytes(value.bytes)
SAME: Transform[Any, Any] = IdentityTransform()
CASES = [
    Shared("decimals", DecimalType(9, 2), *DECIMALS, SAME),
    Shared("long-decimals", DecimalType(38, 2), *DECIMALS, SAME),
    Shared("decimal-and-void", DecimalType(9, 2), *DECIMALS, VoidTransform()),
    Shared("decimal-and-truncated", DecimalType(9, 2), *DECIMALS, TruncateTransform(10)),
    Shared("uuids", UUIDType(), *UUIDS, SAME),
    Shared("uuid-and-void", UUIDType(), *UUIDS, VoidTransform()),
    Shared("fixed", FixedType(4), *FIXED, SAME),
    Shared("fixed-and-void", FixedType(4), *FIXED, VoidTransform()),
]
FORMS: dict[str, Rename] = {
    "defined-twice": lambda first, own: own | {"name": first["name"]},
    "referred-to": lambda first, _: first["name"],
    "own-names": lambda _, own: own,
}
of_every_kind = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def _data(location: str) -> bytes:
    return Path(urlsplit(location).path).read_bytes()


def _partition_fields(schema: dict[str, Any]) -> list[dict[str, Any]]:
    [file] = [field["type"] for field in schema["fields"] if field["field-id"] == DATA_FILE]
    [partition] = [field["type"] for field in file["fields"] if field["field-id"] == PARTITION]
    found: list[dict[str, Any]] = partition["fields"]
    return found


def _renamed(data: bytes, rename: Rename) -> bytes:
    """The same manifest, the second partition field of another type in the header."""
    header = read_header(data)
    schema = json.loads(header.metadata["avro.schema"])
    first, second = _partition_fields(schema)
    second["type"] = ["null", rename(first["type"][1], second["type"][1])]
    metadata = {**header.metadata, "avro.schema": json.dumps(schema).encode()}
    begun = container(metadata, header.metadata["avro.codec"].decode(), [])
    return begun[:-SYNC_BYTES] + header.sync + data[header.ends_at :]


def _check_readable(lake: Lake, case: Shared, files: int) -> None:
    """By fastavro, which is strict about names, by PyIceberg with a filter on each field, and by the own reader."""
    head, paths = lake.head(), set()
    for manifest in manifests_under(lake.table().io, head):
        path = urlsplit(manifest.manifest_path).path
        with Path(path).open("rb") as stream:
            listed = [entry["data_file"]["file_path"] for entry in fastavro.reader(stream) if isinstance(entry, dict)]
        data = _data(path)
        assert [entry[DATA_FILE][FILE_PATH] for entry in values(data, read_header(data))] == listed
        paths.update(listed)
    assert len(paths) == files
    assert len(list(lake.table().scan().plan_files())) == files
    # Of a table partitioned by a UUID, PyIceberg finds nothing by it: it compares its values with bytes.
    for column in ("a", "b") if case.kind != UUIDType() else ():
        scan = lake.table().scan(EqualTo(term=column, value=case.pair[0]))
        found = {task.file.file_path for task in scan.plan_files()}
        everything = column == "b" and isinstance(case.second, VoidTransform)
        assert len(found) == (files if everything else files // 2)


@of_every_kind
def test_every_library_reads_a_manifest_of_two_fields_of_one_type(tmp_path: Path, case: Shared) -> None:
    lake = case.make(tmp_path)
    Writer(lake).run(0, [case.partition(0, 1), case.partition(1, 0)])
    _check_readable(lake, case, files=2)


@of_every_kind
def test_a_merge_of_two_fields_of_one_type_changes_no_entry(tmp_path: Path, case: Shared) -> None:
    lake = case.make(tmp_path)
    writer = Writer(lake, min_count=2)
    for batch_id in range(2):
        head = writer.run(batch_id, [case.partition(0, 1), case.partition(1, 0)])
    before = raw_entries(lake.table(), head)
    after = raw_entries(lake.table(), writer.run(2, [case.partition(0, 1), case.partition(1, 0)]))
    assert all(after[path] == entry | {"status": 0} for path, entry in before.items())
    assert any(manifest.existing_files_count == 4 for manifest in manifests_under(lake.table().io, lake.head()))
    _check_readable(lake, case, files=6)


@of_every_kind
@pytest.mark.parametrize("form", FORMS)
def test_a_recovery_reads_a_manifest_however_its_types_are_named(tmp_path: Path, case: Shared, form: str) -> None:
    lake = case.make(tmp_path)
    prepared = Writer(lake).prepare(0, [case.partition(0, 1), case.partition(1, 0)])
    [manifest] = prepared.manifests
    Path(urlsplit(manifest.path).path).write_bytes(_renamed(_data(manifest.path), FORMS[form]))
    assert matches_manifests(prepared, lake.table().io)


@of_every_kind
@pytest.mark.parametrize("order", list(permutations(FORMS)), ids="-".join)
def test_manifests_merge_however_their_types_are_named_and_everyone_reads_the_outcome(
    tmp_path: Path, case: Shared, order: tuple[str, ...]
) -> None:
    lake = case.make(tmp_path)
    for batch_id in range(len(order)):
        head = Writer(lake, min_count=100).run(batch_id, [case.partition(0, 1), case.partition(1, 0)])
    before, read = raw_entries(lake.table(), head), _read_by_pyiceberg(lake, manifests_under(lake.table().io, head))
    foreign = Foreign(lake, manifests_under(lake.table().io, head))
    for place, form in enumerate(order):
        foreign.replace(place, _renamed(_data(foreign.manifests[place].manifest_path), FORMS[form]))
    merged = foreign.merge()
    assert len(merged) == 1
    assert foreign.entries(merged) == {path: entry | {"status": 0} for path, entry in before.items()}
    assert _read_by_pyiceberg(lake, merged) == read


def _read_by_pyiceberg(lake: Lake, manifests: list[ManifestFile]) -> dict[str, str]:
    return {
        entry.data_file.file_path: repr(entry.data_file.partition)
        for manifest in manifests
        for entry in manifest.fetch_manifest_entry(lake.table().io)
    }


def test_references_are_spelled_out_wherever_a_type_may_stand() -> None:
    four, enum = {"type": "fixed", "name": "four", "size": 4}, {"type": "enum", "name": "side", "symbols": ["L", "R"]}
    twice = {"type": "record", "name": "r2", "fields": [{"name": "x", "type": four}, {"name": "y", "type": "long"}]}
    uses = [four, "four", enum, "side", ["null", "four"], {"type": "array", "items": "four"}]
    uses += [{"type": "map", "values": "side"}, {"type": "four"}, {"type": "long", "logicalType": "four"}, twice]
    fields = [{"name": f"four{place}", "type": use, "doc": "four"} for place, use in enumerate(uses)]
    found = with_inline_types({"type": "record", "name": "r1", "fields": fields})
    assert [field["type"] for field in found["fields"]] == [
        four,
        four | {"name": "four_2"},
        enum,
        enum | {"name": "side_2"},
        ["null", four | {"name": "four_3"}],
        {"type": "array", "items": four | {"name": "four_4"}},
        {"type": "map", "values": enum | {"name": "side_3"}},
        four | {"name": "four_5"},
        {"type": "long", "logicalType": "four"},
        {**twice, "fields": [{"name": "x", "type": four | {"name": "four_6"}}, {"name": "y", "type": "long"}]},
    ]
    assert [(field["name"], field["doc"]) for field in found["fields"]] == [(f"four{n}", "four") for n in range(10)]
    assert with_inline_types(found) == found
    fastavro.parse_schema(found)
