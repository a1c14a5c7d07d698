"""Manifest lists, compared entry by entry with those that PyIceberg writes and reads."""

import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestContent,
    ManifestFile,
    PartitionFieldSummary,
    read_manifest_list,
    write_manifest_list,
)

from lakesink_catalog.manifests import lists
from lakesink_catalog.manifests.lists import ListedManifest, read_list, write_list
from testkit.builders import Lake, Stream
from testkit.examples import examples

LONGS, INTS = st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1)
SUMMARIES = st.builds(
    PartitionFieldSummary,
    st.booleans(),
    st.none() | st.booleans(),
    st.none() | st.binary(max_size=300),
    st.none() | st.binary(max_size=300),
)
MANIFESTS = st.builds(
    ManifestFile,
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    LONGS,
    INTS,
    st.sampled_from(ManifestContent),
    LONGS,
    LONGS,
    LONGS,
    *[INTS] * 3,
    *[LONGS] * 3,
    st.none() | st.lists(SUMMARIES, max_size=70),
    st.none() | st.binary(max_size=20),
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake.make(tmp_path_factory.mktemp("lake"))
    Stream(lake).run(0)
    return lake


def records(location: str) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(Path(urlsplit(location).path).read_bytes())))


def by_pyiceberg(lake: Lake, manifests: list[ManifestFile]) -> str:
    location = f"file://{lake.folder}/list-by-pyiceberg.avro"
    output = lake.table().io.new_output(location)
    with write_manifest_list(2, output, 9, 8, 7, "deflate") as writer:
        writer.add_manifests(manifests)
    return location


@examples(14)
@given(manifests=st.lists(MANIFESTS, max_size=5))
def test_a_list_has_the_entries_of_pyicebergs_own_and_reads_like_it(lake: Lake, manifests: list[ManifestFile]) -> None:
    table, theirs = lake.table(), by_pyiceberg(lake, manifests)
    ours = write_list(table, manifests, snapshot_id=9, parent_id=8, sequence_number=7)
    assert records(ours) == records(theirs)
    for location in (ours, theirs):
        found = read_list(table.io, location)
        expected = list(read_manifest_list(table.io.new_input(location)))
        assert [list(map(one.__getitem__, range(15))) for one in found] == [
            list(map(one.__getitem__, range(15))) for one in expected
        ]
        again = write_list(table, found, snapshot_id=10, parent_id=9, sequence_number=8)
        assert records(again) == records(theirs)


def test_entries_that_are_carried_over_are_neither_decoded_nor_encoded_again(lake: Lake) -> None:
    table = lake.table()
    Stream(lake).run(1)
    first = read_list(table.io, lake.head().manifest_list)
    before = lists.decoded_entry.cache_info()
    written = write_list(table, first, snapshot_id=10, parent_id=9, sequence_number=8)
    again = read_list(table.io, written)
    assert all(isinstance(one, ListedManifest) for one in again)
    assert all(one is two for one, two in zip(first, again, strict=True))
    assert lists.decoded_entry.cache_info().misses == before.misses


def test_a_list_with_other_names_is_copied_and_one_with_other_fields_is_decoded(lake: Lake) -> None:
    table, schema = lake.table(), json.loads(json.dumps(lists.list_schema()))
    [record, *_] = records(lake.head().manifest_list)
    renamed = json.loads(json.dumps(schema).replace("deleted_files_count", "deleted_data_files_count"))
    renamed["name"] = "elsewhere"
    other = {**schema, "fields": [*schema["fields"], {"name": "x", "type": "long", "field-id": 9_999}]}
    fields = {"deleted_data_files_count": record["deleted_files_count"], "x": 5}
    for layout, is_copied in ((renamed, True), (other, False)):
        out, location = io.BytesIO(), f"{lake.head().manifest_list}.{is_copied}"
        fastavro.writer(out, fastavro.parse_schema(layout), [record | fields], metadata={"format-version": "2"})
        Path(urlsplit(location).path).write_bytes(out.getvalue())
        [found] = read_list(table.io, location)
        assert isinstance(found, ListedManifest) is is_copied
        written = write_list(table, [found], snapshot_id=10, parent_id=9, sequence_number=8)
        assert records(written) == [record]


def test_only_the_own_snapshots_manifests_get_its_sequence_number(lake: Lake) -> None:
    names = [field.name for field in MANIFEST_LIST_FILE_SCHEMAS[2].fields]
    [known, *_] = read_list(lake.table().io, lake.head().manifest_list)
    said = {name: getattr(known, name) for name in names}
    new = ManifestFile(*(said | {"sequence_number": -1, "min_sequence_number": -1, "added_snapshot_id": 9}).values())
    written = write_list(lake.table(), [new], snapshot_id=9, parent_id=8, sequence_number=7)
    [found] = records(written)
    assert (found["sequence_number"], found["min_sequence_number"]) == (7, 7)
    with pytest.raises(ValueError, match="no sequence number"):
        write_list(lake.table(), [new], snapshot_id=10, parent_id=8, sequence_number=7)


@pytest.mark.parametrize("at", [4, 40, -20, -1])
def test_a_cut_list_is_no_list(lake: Lake, at: int) -> None:
    location = f"{lake.head().manifest_list}.cut"
    data = Path(urlsplit(lake.head().manifest_list).path).read_bytes()
    Path(urlsplit(location).path).write_bytes(data[:at])
    with pytest.raises(ValueError, match=r"Avro|cut|end mark|impossible size"):
        read_list(lake.table().io, location)
