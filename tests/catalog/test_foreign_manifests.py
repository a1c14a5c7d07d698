"""Manifests that others wrote, or that are not what the list says: merged bit for bit, or carried over as they are."""

import copy
import io
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fastavro
import pytest
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField

from lakesink_catalog.manifests.lists import manifests_under, write_list
from lakesink_catalog.manifests.merging import ManifestMerger, MergeMemory, MergePolicy
from testkit.builders import Lake
from tests.catalog.raw_avro import raw
from tests.catalog.test_exact_manifests import Writer

Edit = Callable[[dict[str, Any]], object]
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "value", DoubleType()))
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
X = b"\x9a\x99\x99\x99\x99\x99\xb9\x3f"
"""A tenth, which no float can hold."""


@dataclass
class Foreign:
    """A table whose manifests another writer has replaced by its own."""

    lake: Lake
    manifests: list[ManifestFile] = field(default_factory=list)

    @classmethod
    def make(cls, folder: Path, count: int = 4) -> "Foreign":
        lake = Lake.make(folder, schema=SCHEMA, spec=SPEC)
        for number in range(count):
            head = Writer(lake, min_count=100).run(number, [(X,)])
        return cls(lake, manifests_under(lake.table().io, head))

    def rewrite(
        self,
        place: int,
        edit: Edit = lambda _: None,
        *,
        schema: Edit = lambda _: None,
        metadata: Mapping[str, str] | None = None,
        codec: str = "deflate",
    ) -> None:
        """Another library's manifest with these entries in the place of one."""
        manifest = self.manifests[place]
        found = raw(manifest.manifest_path)
        layout = json.loads(found.metadata["avro.schema"])
        schema(layout)
        entries = copy.deepcopy(found.records)
        for entry in entries:
            edit(entry)
        out = io.BytesIO()
        kept = {name: value for name, value in found.metadata.items() if not name.startswith("avro.")}
        fastavro.writer(out, fastavro.parse_schema(layout), entries, codec=codec, metadata=kept | dict(metadata or {}))
        self.replace(place, out.getvalue())

    def replace(self, place: int, data: bytes) -> None:
        """Other bytes in the place of a manifest."""
        manifest = self.manifests[place]
        path = f"{manifest.manifest_path.removesuffix('.avro')}-{uuid.uuid4()}.avro"
        Path(urlsplit(path).path).write_bytes(data)
        self.state(place, manifest_path=path, manifest_length=len(data))

    def state(self, place: int, **said: Any) -> None:
        """The manifest list says this of a manifest."""
        names = [field.name for field in MANIFEST_LIST_FILE_SCHEMAS[2].fields]
        known = {name: getattr(self.manifests[place], name) for name in names}
        self.manifests[place] = ManifestFile(*(known | said).values())

    def state_existing(self, *places: int) -> None:
        """The manifest list says that these hold one file that others have added."""
        for place in places:
            counts = {"added_files_count": 0, "existing_files_count": 1, "added_rows_count": 0}
            self.state(place, **counts, existing_rows_count=self.manifests[place].added_rows_count)

    def merge(self, layouts: dict[str, str | None] | None = None) -> list[ManifestFile]:
        policy = MergePolicy(min_count=len(self.manifests))
        memory = MergeMemory({} if layouts is None else layouts)
        return ManifestMerger(policy, 7, memory).merge(self.lake.table(), self.manifests)

    def entries(self, manifests: list[ManifestFile]) -> dict[str, dict[str, Any]]:
        return {
            entry["data_file"]["file_path"]: entry
            for manifest in manifests
            for entry in raw(manifest.manifest_path).records
            if entry["status"] != 2
        }


@pytest.fixture
def foreign(tmp_path: Path) -> Foreign:
    return Foreign.make(tmp_path)


def paths(manifests: list[ManifestFile]) -> set[str]:
    return {manifest.manifest_path for manifest in manifests}


def existing(sequence_number: int | None = 3, file_sequence_number: int | None = 9) -> Edit:
    """As a rewrite of data files leaves an entry that takes the place of older ones."""
    return lambda entry: entry.update(
        status=0, snapshot_id=55, sequence_number=sequence_number, file_sequence_number=file_sequence_number
    )


def test_every_entry_keeps_both_of_its_sequence_numbers(foreign: Foreign) -> None:
    """Deletes apply by the first of them; it is less than the second where files were rewritten."""
    for place in range(4):
        foreign.rewrite(place, existing(place + 1, 9 - place))
    foreign.state_existing(0, 1, 2, 3)
    before = foreign.entries(foreign.manifests)
    [merged] = foreign.merge()
    assert foreign.entries([merged]) == before
    assert merged.min_sequence_number == 1
    assert merged.existing_files_count == 4


def test_a_merged_manifest_states_the_least_sequence_number_of_its_entries(foreign: Foreign) -> None:
    """A greater one makes readers drop the deletes that are older than it."""
    for place, number in enumerate((7, 2, 5, 3)):
        foreign.rewrite(place, existing(number, 9))
    foreign.state_existing(0, 1, 2, 3)
    [merged] = foreign.merge()
    assert merged.min_sequence_number == 2


def test_the_manifests_of_a_merge_are_asked_for_at_once(foreign: Foreign) -> None:
    """A storage answers each of them after some time."""
    asked = []

    def at_once(function: Callable[[Any], Any], things: Sequence[Any]) -> list[Any]:
        asked.append(len(things))
        return list(map(function, things))

    merger = ManifestMerger(MergePolicy(min_count=4), 7, at_once=at_once)
    assert len(merger.merge(foreign.lake.table(), foreign.manifests)) == 1
    assert asked == [4, 4]


def test_a_manifest_that_cannot_be_read_now_does_not_make_the_others_be_read_again(foreign: Foreign) -> None:
    missing = Path(urlsplit(foreign.manifests[0].manifest_path).path)
    kept = missing.rename(missing.with_suffix(".away"))
    layouts: dict[str, str | None] = {}
    assert paths(foreign.merge(layouts)) == paths(foreign.manifests)
    assert layouts.keys() == paths(foreign.manifests[1:])
    kept.rename(missing)
    assert len(foreign.merge(layouts)) == 1


def test_what_an_entry_inherits_is_written_out_and_what_is_unknown_stays_unknown(foreign: Foreign) -> None:
    foreign.rewrite(0, lambda entry: entry.update(snapshot_id=None))
    foreign.rewrite(1, existing(1, None))
    added = [manifest.added_snapshot_id for manifest in foreign.manifests]
    numbers = [manifest.sequence_number for manifest in foreign.manifests]
    foreign.state_existing(1)
    order = {path: place for place in range(4) for path in foreign.entries([foreign.manifests[place]])}
    [merged] = foreign.merge()
    found = {order[path]: entry for path, entry in foreign.entries([merged]).items()}
    heads = {
        place: (entry["snapshot_id"], entry["sequence_number"], entry["file_sequence_number"])
        for place, entry in found.items()
    }
    assert heads == {
        0: (added[0], numbers[0], numbers[0]),
        1: (55, 1, None),
        2: (added[2], numbers[2], numbers[2]),
        3: (added[3], numbers[3], numbers[3]),
    }


def test_entries_that_were_deleted_are_left_out(foreign: Foreign) -> None:
    foreign.rewrite(2, lambda entry: entry.update(status=2, sequence_number=2, file_sequence_number=2))
    foreign.state(2, added_files_count=0, added_rows_count=0, deleted_files_count=1)
    before = foreign.entries(foreign.manifests)
    [merged] = foreign.merge()
    assert (foreign.entries([merged]).keys(), len(before)) == (before.keys(), 3)


def _with_row_id(schema: dict[str, Any]) -> None:
    [file] = [part["type"] for part in schema["fields"] if part["name"] == "data_file"]
    file["fields"].append({"name": "first_row_id", "type": ["null", "long"], "default": None, "field-id": 142})


def _other_order(schema: dict[str, Any]) -> None:
    schema["fields"].reverse()
    [file] = [part["type"] for part in schema["fields"] if part["name"] == "data_file"]
    file["fields"].reverse()


def _other_unions(schema: dict[str, Any]) -> None:
    for part in schema["fields"]:
        if isinstance(part["type"], list):
            part["type"] = part["type"][::-1]
            part.pop("default", None)


LAYOUTS: dict[str, Edit] = {
    "a field that lakesink does not know": _with_row_id,
    "another order of the fields": _other_order,
    "optional fields the other way round": _other_unions,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_manifests_of_another_layout_are_merged_with_their_like_without_losing_a_field(
    foreign: Foreign, layout: str
) -> None:
    def edit(entry: dict[str, Any]) -> None:
        existing()(entry)
        entry["data_file"] |= {"key_metadata": b"\x00k", "sort_order_id": 3}
        if layout.startswith("a field"):
            entry["data_file"]["first_row_id"] = 2**40

    for place in range(3):
        foreign.rewrite(place, edit, schema=LAYOUTS[layout])
    foreign.state_existing(0, 1, 2)
    before = foreign.entries(foreign.manifests)
    merged, kept = foreign.merge()
    assert kept.manifest_path == foreign.manifests[3].manifest_path
    found = foreign.entries([merged, kept])
    assert found == before
    assert all(entry["data_file"]["partition"] == {"part": 0.1} for entry in found.values())


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2"])
def test_manifests_in_any_codec_are_merged(foreign: Foreign, codec: str) -> None:
    foreign.rewrite(1, codec=codec)
    assert len(foreign.merge()) == 1


def _cut(data: bytes) -> bytes:
    return data[:-40]


def _other_codec(data: bytes) -> bytes:
    return data.replace(b"deflate", b"unknown")


def _no_avro(data: bytes) -> bytes:
    return b"Par1" + data[4:]


def _version_one(data: bytes) -> bytes:
    return data.replace(b"\x1cformat-version\x022", b"\x1cformat-version\x021")


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "cut": _cut,
    "in a codec that is not known": _other_codec,
    "no Avro file": _no_avro,
    "of version 1": _version_one,
    "empty": lambda _: b"",
}


@pytest.mark.parametrize("broken", BROKEN)
def test_what_cannot_be_read_exactly_is_carried_over_and_the_others_are_merged(foreign: Foreign, broken: str) -> None:
    data = Path(urlsplit(foreign.manifests[1].manifest_path).path).read_bytes()
    foreign.replace(1, BROKEN[broken](data))
    layouts: dict[str, str | None] = {}
    spoilt = foreign.manifests[1].manifest_path
    after = foreign.merge(layouts)
    if len(after) == 4:  # found only when it was read whole: this commit merges nothing, the next one does
        assert paths(after) == paths(foreign.manifests)
        assert layouts[spoilt] is None
        merger = ManifestMerger(MergePolicy(min_count=3), 8, MergeMemory(layouts))
        after = merger.merge(foreign.lake.table(), foreign.manifests)
    assert len(after) == 2
    assert spoilt in paths(after)


@pytest.mark.parametrize(
    "lie", [{"added_files_count": 2}, {"added_rows_count": 5_000}, {"manifest_length": 4}], ids=str
)
def test_a_manifest_that_holds_other_files_than_the_list_says_is_never_merged(
    foreign: Foreign, lie: dict[str, int]
) -> None:
    """A block that is missing at its end would be files that are lost."""
    foreign.state(2, **lie)
    assert paths(foreign.merge()) == paths(foreign.manifests)


def test_an_entry_that_only_an_added_one_may_be_is_never_merged(foreign: Foreign) -> None:
    foreign.rewrite(0, existing(None, None))
    foreign.state_existing(0, 1, 2, 3)
    assert paths(foreign.merge()) == paths(foreign.manifests)


def test_manifests_of_deletes_and_encrypted_ones_are_never_merged(foreign: Foreign) -> None:
    foreign.state(0, content=ManifestContent.DELETES)
    foreign.state(1, key_metadata=b"key")
    after = ManifestMerger(MergePolicy(min_count=2), 7).merge(foreign.lake.table(), foreign.manifests)
    assert (len(after), paths(after) >= paths(foreign.manifests[:2])) == (3, True)


def test_a_commit_carries_over_every_field_that_the_list_states_of_a_manifest(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path, schema=SCHEMA, spec=SPEC)
    head = Writer(lake).run(0, [(X,)])
    listed = raw(head.manifest_list)
    [known] = listed.records
    bounds = [
        {"contains_null": True, "contains_nan": None, "lower_bound": None, "upper_bound": b""},
        {"contains_null": False, "contains_nan": True, "lower_bound": X, "upper_bound": b"\xff" * 300},
    ]
    foreign = [
        known | {"manifest_path": "s3://elsewhere/ä.avro", "content": 1, "key_metadata": b"\x00key"},
        known | {"partition_spec_id": 2**31 - 1, "sequence_number": 2**62, "min_sequence_number": 0},
        known | {"partitions": bounds, "added_files_count": 0, "existing_files_count": 2**31 - 1},
        known
        | {"partitions": None, "deleted_files_count": 3, "deleted_rows_count": 2**62, "existing_rows_count": 2**40},
    ]
    location = f"{head.manifest_list}.foreign"
    out = io.BytesIO()
    schema = fastavro.parse_schema(json.loads(listed.metadata["avro.schema"]))
    fastavro.writer(out, schema, foreign, codec="deflate", metadata={"format-version": "2"})
    Path(urlsplit(location).path).write_bytes(out.getvalue())
    carried = manifests_under(lake.table().io, head.model_copy(update={"manifest_list": location}))
    written = write_list(lake.table(), carried, snapshot_id=9, parent_id=head.snapshot_id, sequence_number=2)
    assert raw(written).records == foreign
