"""Tables in which other writers delete too: their delete files are respected, and their manifests changed exactly."""

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from lakesink_catalog.manifests.live import LiveFile
from lakesink_catalog.manifests.live_reading import LiveMemory, live_files
from lakesink_catalog.manifests.rewriting import OWN_DELETES
from lakesink_protocol import events
from testkit.maintenance import expire, expire_like_java
from tests.catalog.keyed import Keyed, delete_foreign, deletes_file, keyed_lake, said, shown
from tests.catalog.raw_avro import raw, raw_entries, raw_list
from tests.catalog.test_changing_commits import checked

UNKNOWN_OF_FILE = {"name": "new", "type": ["null", "bytes"], "default": None, "field-id": 900}


def data_files(keyed: Keyed) -> list[LiveFile]:
    lake = keyed.lake
    found = live_files(lake.table(), lake.head().snapshot_id, LiveMemory()).data
    return sorted(found, key=lambda file: file.sequence_number)


def begun(folder: Path, *, partitioned: bool = False) -> Keyed:
    """A table with two data files of three rows each."""
    keyed = Keyed(keyed_lake(folder, partitioned=partitioned))
    keyed.run({key: (0, key) for key in (0, 1, 2)})
    keyed.run({key: (0, key) for key in (3, 4, 5)})
    return keyed


def test_a_delete_file_of_several_data_files_stays_and_is_respected(tmp_path: Path) -> None:
    keyed = begun(tmp_path, partitioned=True)
    [first, second] = data_files(keyed)
    delete_foreign(
        keyed.lake, [deletes_file(keyed.lake.table(), {first.path: [0], second.path: [2]}, 0, first.partition)]
    )
    del keyed.rows[0], keyed.rows[5]
    assert shown(keyed.lake) == keyed.rows
    outcome = keyed.run({0: (0, 100), 1: (0, 101)}, {5})
    assert outcome.changes is not None
    assert (outcome.changes.inserted, outcome.changes.updated, outcome.changes.absent) == (1, 1, 1)
    entries = checked(keyed)
    assert len([one for one in entries.values() if one["data_file"]["content"]]) == 2


@pytest.mark.parametrize("in_file", [None, UNKNOWN_OF_FILE], ids=["known fields", "an unknown field"])
def test_a_foreign_manifest_is_written_again_in_its_own_layout(tmp_path: Path, in_file: Any) -> None:
    keyed = begun(tmp_path)
    [first, second] = data_files(keyed)
    table = keyed.lake.table()
    both = [deletes_file(table, {one.path: [0]}, 0, ()) for one in (first, second)]
    delete_foreign(keyed.lake, both, in_file=in_file)
    del keyed.rows[0], keyed.rows[3]
    [foreign] = [one for one in raw_list(keyed.lake.head()) if one["content"]]
    before = raw_entries(keyed.lake.table(), keyed.lake.head())
    keyed.run({1: (0, 100)})
    deletes = [one for one in raw_list(keyed.lake.head()) if one["content"]]
    [again] = [one for one in deletes if one["existing_files_count"]]
    assert len(deletes) == 2
    kept, ended = both[1].path, both[0].path
    found = {entry["data_file"]["file_path"]: entry for entry in raw(again["manifest_path"]).records}
    assert found[kept] == before[kept] | {"status": 0}
    assert found[ended] == before[ended] | {"status": 2, "snapshot_id": keyed.lake.head().snapshot_id}
    schemas = [raw(one["manifest_path"]).metadata["avro.schema"] for one in (foreign, again)]
    assert schemas[0] == schemas[1]
    assert again["min_sequence_number"] == before[kept]["sequence_number"]
    checked(keyed)


def test_a_manifest_that_cannot_be_written_exactly_stays_and_so_does_its_delete_file(tmp_path: Path) -> None:
    keyed, told = begun(tmp_path), list[events.Event]()
    keyed.emit = told.append
    [first, _] = data_files(keyed)
    unknown = {"name": "new", "type": ["null", "bytes"], "field-id": 900}
    delete_foreign(keyed.lake, [deletes_file(keyed.lake.table(), {first.path: [0]}, 0, ())], in_entry=unknown)
    del keyed.rows[0]
    for value in (100, 101):
        keyed.run({1: (0, value)}, {2} if value == 101 else ())
        assert said(keyed.lake)["removed-delete-files"] == (None if value == 100 else "1")
    aside = [event for event in told if isinstance(event, events.ManifestSetAside)]
    assert {event.reason for event in aside} == {"an entry has unknown fields"}
    deletes = [one["data_file"] for one in raw_entries(keyed.lake.table(), keyed.lake.head()).values()]
    assert sorted(one["record_count"] for one in deletes if one["content"]) == [1, 1, 3]


def test_a_delete_file_has_the_spec_and_the_partition_of_its_data_file(tmp_path: Path) -> None:
    """Of an old spec, with a column that was widened since, or dropped."""
    keyed = begun(tmp_path, partitioned=True)
    table = keyed.lake.table()
    with table.update_schema() as schema:
        schema.update_column("part", LongType())
    keyed.run({1: (0, 10), 7: (0, 70)})
    checked(keyed)
    with keyed.lake.table().update_spec() as spec:
        spec.remove_field("part")
    keyed.run({1: (0, 11), 2: (0, 20), 7: (0, 71)}, {5})
    entries = checked(keyed).values()
    deletes = [one["data_file"] for one in entries if one["data_file"]["content"]]
    listed = [one for one in raw_list(keyed.lake.head()) if one["content"]]
    assert {one["partition_spec_id"] for one in listed} == {0}
    assert {repr(one["partition"]) for one in deletes} == {"{'part': 0}"}
    data = {path: one["data_file"] for path, one in raw_entries(keyed.lake.table(), keyed.lake.head()).items()}
    assert all(data[one["referenced_data_file"]]["partition"] == one["partition"] for one in deletes)


def test_a_spec_whose_column_was_dropped_is_written_under_an_earlier_schema(tmp_path: Path) -> None:
    keyed = begun(tmp_path, partitioned=True)
    with keyed.lake.table().update_spec() as spec:
        spec.remove_field("part")
    with keyed.lake.table().update_schema() as schema:
        schema.delete_column("part")
    prepared, locator = keyed.prepare({}, {1})
    assert keyed.commit(prepared, locator) is not None
    [listed] = [one for one in raw_list(keyed.lake.head()) if one["content"]]
    [entry] = raw(listed["manifest_path"]).records
    assert (listed["partition_spec_id"], entry["data_file"]["partition"]) == (0, {"part": 0})


@pytest.mark.parametrize("how", [expire, expire_like_java])
def test_expired_snapshots_take_nothing_that_a_batch_of_changes_needs(tmp_path: Path, how: Any) -> None:
    keyed = begun(tmp_path)
    for number in range(3):
        keyed.run({number: (0, 100 + number)}, {5 - number})
        how(keyed.lake)
    checked(keyed)


def test_own_manifests_are_known_by_their_names(tmp_path: Path) -> None:
    keyed = begun(tmp_path)
    keyed.run({}, {0})
    [listed] = [one for one in raw_list(keyed.lake.head()) if one["content"]]
    assert listed["manifest_path"].endswith(OWN_DELETES)
