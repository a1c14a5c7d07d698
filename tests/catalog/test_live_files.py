"""The live files of a snapshot, beside a library that decodes every field of its manifests."""

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import ManifestFile

from lakesink_catalog.manifests.avro import container
from lakesink_catalog.manifests.avro_values import Malformed
from lakesink_catalog.manifests.entries import partition_kinds, single_values
from lakesink_catalog.manifests.live import FILE_PATH_COLUMN, LiveFile
from lakesink_catalog.manifests.live_entries import Origin, live_entries
from lakesink_catalog.manifests.live_reading import LiveMemory, live_files
from lakesink_protocol.change import Content
from lakesink_protocol.errors import CatalogError
from testkit.builders import Lake, Stream
from tests.audit.deletes import delete_by_equality, delete_by_position
from tests.catalog.raw_avro import raw_entries
from tests.catalog.test_carried_entries import CODECS, Document, encoded, entry_of, shuffled, spoilt

ORIGIN = Origin("file:///m.avro", spec_id=3, sequence_number=9, deletes=False)
OF_DELETES = Origin("file:///d.avro", spec_id=3, sequence_number=9, deletes=True)
WANTED = frozenset({0, 1, 2**31 - 1, 77})


def any_entry(schema: Document, chance: random.Random, content: int = 0) -> Document:
    found = entry_of(schema, chance)
    found["data_file"] |= {"content": content, "file_format": chance.choice(["PARQUET", "parquet", "ORC"])}
    return found


def manifest(entries: Sequence[Document], schema: Document, metadata: Mapping[str, str], codec: str = "null") -> bytes:
    packed = [encoded(entry, schema) for entry in entries]
    header = {"avro.schema": json.dumps(schema), **metadata}
    parts = [packed[start : start + 3] for start in range(0, len(packed), 3)]
    return container({name: text.encode() for name, text in header.items()}, codec, parts)


def expected(entry: Document, schema: Document, origin: Origin) -> LiveFile:
    """The file of a live entry, of which another library knows every field."""
    file, number = entry["data_file"], entry["sequence_number"]
    bounds = {name: file.get(name) or [] for name in ("lower_bounds", "upper_bounds")}
    of_file = {FILE_PATH_COLUMN} if origin.deletes else WANTED
    return LiveFile(
        path=file["file_path"],
        content=Content(file["content"]),
        spec_id=origin.spec_id,
        partition=single_values(partition_kinds(schema), file["partition"]),
        record_count=file["record_count"],
        file_size_bytes=file["file_size_in_bytes"],
        sequence_number=origin.sequence_number if number is None else number,
        referenced_data_file=file.get("referenced_data_file") or "",
        manifest_path=origin.path,
        file_format=file["file_format"].upper(),
        added_by=entry["snapshot_id"],
        **{name: _wanted(found, of_file) for name, found in bounds.items()},
    )


def _wanted(found: Iterable[Mapping[str, Any]], of_file: Iterable[int]) -> dict[int, bytes]:
    """The first of a key that comes more than once would be as right as the last one."""
    return {pair["key"]: pair["value"] for pair in found if pair["key"] in of_file}


def unique_bounds(entry: Document) -> Document:
    """A map has each key once."""
    for name in ("lower_bounds", "upper_bounds"):
        found = entry["data_file"].get(name)
        if found is not None:
            entry["data_file"][name] = list({pair["key"]: pair for pair in found}.values())
    return entry


@pytest.mark.parametrize("seed", range(60))
def test_live_files_are_those_of_another_library_field_by_field(layout: Document, seed: int) -> None:
    chance = random.Random(seed)
    schema = shuffled(layout, chance)
    entries = [unique_bounds(any_entry(schema, chance)) for _ in range(chance.choice([1, 5, 20]))]
    metadata = chance.choice([{"format-version": "2", "content": "data"}, {"format-version": "2"}, {}])
    data = manifest(entries, schema, metadata, CODECS[seed % 3])
    wanted = [expected(entry, schema, ORIGIN) for entry in entries if entry["status"] != 2]
    assert list(live_entries(data, ORIGIN, WANTED).files) == wanted


@pytest.mark.parametrize("seed", range(40))
def test_spoilt_manifests_are_malformed_or_read_and_nothing_else_is_raised(
    layout: Document,
    seed: int,
) -> None:
    chance = random.Random(seed)
    schema, count = shuffled(layout, chance), 3
    block = b"".join(encoded(any_entry(schema, chance), schema) for _ in range(count))
    header = {"avro.schema": json.dumps(schema).encode()}
    for _ in range(30):
        data = container(header, "null", [[spoilt(block, chance), *[b""] * (count - 1)]])
        try:
            assert len(live_entries(data, ORIGIN, WANTED).files) <= count
        except Malformed:
            continue


def test_a_manifest_of_version_1_has_data_files_of_sequence_number_0(layout: Document) -> None:
    schema = json.loads(json.dumps(layout))
    schema["fields"] = [field for field in schema["fields"] if field["field-id"] not in {3, 4}]
    [file] = [field["type"] for field in schema["fields"] if field["field-id"] == 2]
    file["fields"] = [field for field in file["fields"] if field["field-id"] != 134]
    entry = any_entry(layout, random.Random(1)) | {"status": 0}
    data = manifest([entry], schema, {"format-version": "1"})
    [found] = live_entries(data, Origin("m", 0, 0, deletes=False), frozenset()).files
    assert (found.sequence_number, found.content) == (0, Content.DATA)


@pytest.mark.parametrize("missing", [100, 102, 103])
def test_a_manifest_without_a_field_that_every_file_has_is_malformed(layout: Document, missing: int) -> None:
    schema = json.loads(json.dumps(layout))
    [file] = [field["type"] for field in schema["fields"] if field["field-id"] == 2]
    file["fields"] = [field for field in file["fields"] if field["field-id"] != missing]
    with pytest.raises(Malformed, match="not the schema of a manifest"):
        live_entries(manifest([], schema, {"format-version": "2"}), ORIGIN, WANTED)


@pytest.mark.parametrize("metadata", [{"format-version": "3"}, {"format-version": "2", "content": "deletes"}])
def test_a_manifest_of_another_version_or_content_is_malformed(
    layout: Document,
    metadata: Mapping[str, str],
) -> None:
    with pytest.raises(Malformed):
        live_entries(manifest([], layout, metadata), ORIGIN, WANTED)


def deletes(layout: Document, **facts: Any) -> Document:
    """An entry of a file of position deletes."""
    entry = any_entry(layout, random.Random(1), content=1) | {"status": 1, "sequence_number": None}
    entry["data_file"] |= {"file_path": "deletes", "lower_bounds": None, "upper_bounds": None, **facts}
    return entry


def names(layout: Document, **facts: Any) -> tuple[str, bool]:
    """The data file that such an entry names, and whether only its bounds do so."""
    data = manifest([deletes(layout, **facts)], layout, {"format-version": "2", "content": "deletes"})
    found = live_entries(data, OF_DELETES, WANTED)
    return found.files[0].referenced_data_file, bool(found.derived)


def bound(path: bytes) -> list[Document]:
    return [{"key": 5, "value": b"?"}, {"key": FILE_PATH_COLUMN, "value": path}]


def test_a_delete_file_names_its_data_file_by_equal_bounds(layout: Document) -> None:
    same = bound("ä\x00.parquet".encode())
    assert names(layout, lower_bounds=same, upper_bounds=same) == ("ä\x00.parquet", True)
    assert names(layout, lower_bounds=same, upper_bounds=bound(b"b.parquet")) == ("", False)
    assert names(layout, lower_bounds=same) == ("", False)
    assert names(layout, lower_bounds=bound(b"\xff"), upper_bounds=bound(b"\xff")) == ("", False)


def test_a_delete_file_names_its_data_file_by_its_field(layout: Document) -> None:
    schema = json.loads(json.dumps(layout))
    [file] = [field["type"] for field in schema["fields"] if field["field-id"] == 2]
    file["fields"] = [field for field in file["fields"] if field["field-id"] != 143]
    file["fields"].append({"name": "referenced_data_file", "type": ["null", "string"], "field-id": 143})
    assert names(schema, referenced_data_file="a.parquet") == ("a.parquet", False)
    assert names(schema, referenced_data_file=None) == ("", False)


def test_an_equality_delete_is_told_apart(layout: Document) -> None:
    entry = deletes(layout, content=2)
    data = manifest([entry], layout, {"format-version": "2", "content": "deletes"})
    found = live_entries(data, OF_DELETES, WANTED)
    assert not found.files
    assert [file.content for file in found.equality] == [Content.EQUALITY_DELETES]
    gone = manifest([entry | {"status": 2}], layout, {"format-version": "2", "content": "deletes"})
    assert live_entries(gone, OF_DELETES, WANTED) == live_entries(manifest([], layout, {}), ORIGIN, WANTED)
    with pytest.raises(Malformed):
        live_entries(manifest([entry | {"data_file": entry["data_file"] | {"content": 1}}], layout, {}), ORIGIN, WANTED)


class Counted:
    """Reads manifests, and knows which."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def __call__(self, function: Callable[[Any], Any], things: Sequence[ManifestFile]) -> Iterator[Any]:
        self.read += [manifest.manifest_path for manifest in things]
        return map(function, things)


def test_each_manifest_of_a_stream_is_decoded_once(tmp_path: Path) -> None:
    lake, memory = Lake.make(tmp_path), LiveMemory()
    stream, found = Stream(lake), []
    for batch_id in range(4):
        stream.run(batch_id)
        counted = Counted()
        found = list(live_files(lake.table(), lake.head().snapshot_id, memory, bounds_of=[1], at_once=counted).data)
        assert len(counted.read) == 1
    entries = raw_entries(lake.table(), lake.head())
    assert {file.path: file.sequence_number for file in found} == {
        path: entry["sequence_number"] for path, entry in entries.items()
    }
    assert all(file.lower_bounds == file.upper_bounds != {} for file in found)


def test_other_bounds_are_read_again(tmp_path: Path) -> None:
    lake, memory = Lake.make(tmp_path), LiveMemory()
    Stream(lake).run(0)
    head = lake.head().snapshot_id
    assert not live_files(lake.table(), head, memory).data[0].lower_bounds
    assert live_files(lake.table(), head, memory, bounds_of=[2]).data[0].lower_bounds.keys() == {2}


def test_the_memory_forgets_what_is_too_much_and_answers_as_before(tmp_path: Path) -> None:
    lake, memory = Lake.make(tmp_path), LiveMemory(most_files=2)
    for batch_id in range(4):
        Stream(lake).run(batch_id)
    head, first, second = lake.head().snapshot_id, Counted(), Counted()
    before = live_files(lake.table(), head, memory, at_once=first)
    assert live_files(lake.table(), head, memory, at_once=second) == before
    assert (len(first.read), second.read) == (4, first.read[:2])


def test_an_empty_branch_has_no_files(tmp_path: Path) -> None:
    found = live_files(Lake.make(tmp_path).table(), None, LiveMemory())
    assert (found.data, found.deletes) == ((), ())


def test_position_deletes_are_listed_and_equality_deletes_are_refused(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    Stream(lake).run(0)
    [file] = live_files(lake.table(), lake.head().snapshot_id, LiveMemory()).data
    delete_by_position(lake, file.path, [0])
    found = live_files(lake.table(), lake.head().snapshot_id, LiveMemory())
    assert [one.path for one in found.data] == [file.path]
    assert [(one.record_count, one.sequence_number, one.referenced_data_file) for one in found.deletes] == [(1, 2, "")]
    delete_by_equality(lake, 0)
    with pytest.raises(CatalogError) as refused:
        live_files(lake.table(), lake.head().snapshot_id, LiveMemory())
    assert refused.value.code == "LAKESINK_EQUALITY_DELETES"


def test_a_manifest_that_was_changed_is_named(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    Stream(lake).run(0)
    [manifest_file] = lake.head().manifests(lake.table().io)
    place = Path(manifest_file.manifest_path.removeprefix("file://"))
    place.write_bytes(place.read_bytes()[:-1])
    with pytest.raises(CatalogError) as refused:
        live_files(lake.table(), lake.head().snapshot_id, LiveMemory())
    assert refused.value.code == "LAKESINK_MANIFEST_UNREADABLE"
    assert str(place) in refused.value.action


def test_a_file_that_is_not_parquet_is_refused_by_name(layout: Document) -> None:
    entry = any_entry(layout, random.Random(1)) | {"status": 1}
    entry["data_file"]["file_format"] = "ORC"
    [file] = live_entries(manifest([entry], layout, {}), ORIGIN, WANTED).files
    with pytest.raises(CatalogError) as refused:
        file.check_parquet()
    assert refused.value.code == "LAKESINK_FILES_NOT_PARQUET"
