"""Batches of changes: after each commit, the table shows what a dictionary has, and its manifests state why."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.snapshots import Operation

from lakesink_protocol.change import Content
from lakesink_protocol.ledger import parse_entry
from lakesink_protocol.row_changes import ChangeCounts, counts_in
from tests.catalog.keyed import KEY, Keyed, keyed_lake, said
from tests.catalog.raw_avro import raw, raw_entries, raw_list

TOTALS = ("total-data-files", "total-records", "total-files-size", "total-delete-files", "total-position-deletes")


def checked(keyed: Keyed) -> dict[str, dict[str, Any]]:
    """The live entries of the head, checked against manifest list and summary."""
    lake, head = keyed.lake, keyed.lake.head()
    entries = raw_entries(lake.table(), head)
    listed = [one for one in raw_list(head) if one["added_files_count"] + one["existing_files_count"]]
    for one in raw_list(head):
        found = raw(one["manifest_path"])
        assert found.metadata["content"] == ("deletes" if one["content"] else "data")
        assert {entry["data_file"]["content"] for entry in found.records} == {one["content"]}
        counted = Counter(entry["status"] for entry in found.records)
        stated = [one[f"{name}_files_count"] for name in ("existing", "added", "deleted")]
        assert stated == [counted[status] for status in range(3)]
        rows = [
            sum(entry["data_file"]["record_count"] for entry in found.records if entry["status"] == status)
            for status in range(3)
        ]
        assert rows == [one[f"{name}_rows_count"] for name in ("existing", "added", "deleted")]
    for one in listed:
        live = [entry for entry in raw(one["manifest_path"]).records if entry["status"] != 2]
        numbers = [entry["sequence_number"] or one["sequence_number"] for entry in live]
        assert one["min_sequence_number"] == min(numbers)
    _check_totals(entries, head.summary)
    return entries


def _check_totals(entries: dict[str, dict[str, Any]], summary: Any) -> None:
    files = [entry["data_file"] for entry in entries.values()]
    data = [file for file in files if file["content"] == Content.DATA.value]
    deletes = [file for file in files if file["content"] == Content.POSITION_DELETES.value]
    rows, positions = (sum(file["record_count"] for file in group) for group in (data, deletes))
    size = sum(file["file_size_in_bytes"] for file in files)
    assert [int(summary[name]) for name in TOTALS] == [len(data), rows, size, len(deletes), positions]


def test_a_batch_replaces_and_deletes_rows_in_one_snapshot(tmp_path: Path) -> None:
    keyed = Keyed(keyed_lake(tmp_path))
    keyed.run({1: (0, 10), 2: (0, 20), 3: (0, 30)})
    assert said(keyed.lake).operation == Operation.APPEND
    outcome = keyed.run({2: (0, 21), 4: (0, 40)}, {3, 9})
    counts = ChangeCounts(upserts=2, deletes=2, inserted=1, updated=1, deleted=1, absent=1)
    assert outcome.changes == counts
    summary = said(keyed.lake)
    assert (summary.operation, counts_in(summary), summary["lakesink.mode"]) == (Operation.OVERWRITE, counts, "changes")
    assert {
        name: summary[f"added-{name}"] for name in ("delete-files", "position-delete-files", "position-deletes")
    } == {
        "delete-files": "1",
        "position-delete-files": "1",
        "position-deletes": "2",
    }
    assert summary["removed-delete-files"] is None
    [delete] = [one["data_file"] for one in checked(keyed).values() if one["data_file"]["content"]]
    assert delete["referenced_data_file"] in raw_entries(keyed.lake.table(), keyed.lake.head())
    entry = parse_entry(keyed.lake.table().properties[KEY.ledger_property])
    assert (entry.keys, entry.batch_id) == ((1,), 1)


def test_a_batch_of_deletes_alone_is_a_delete_and_one_without_effect_an_append(tmp_path: Path) -> None:
    keyed = Keyed(keyed_lake(tmp_path))
    keyed.run({1: (0, 10), 2: (0, 20)})
    keyed.run({}, {1})
    assert said(keyed.lake).operation == Operation.DELETE
    keyed.run({}, {1})
    summary = said(keyed.lake)
    assert (summary.operation, summary["lakesink.absent"]) == (Operation.APPEND, "1")
    checked(keyed)


def test_a_newer_delete_file_replaces_the_older_one_whose_entry_ends(tmp_path: Path) -> None:
    keyed = Keyed(keyed_lake(tmp_path))
    keyed.run({key: (0, key) for key in range(9)})
    keyed.run({}, {1})
    before = keyed.lake.head()
    [old] = [one for one in checked(keyed).values() if one["data_file"]["content"]]
    keyed.run({}, {2, 3})
    head = keyed.lake.head()
    [manifest] = [one for one in raw_list(head) if one["content"]]
    added, ended = raw(manifest["manifest_path"]).records
    assert (added["status"], added["data_file"]["record_count"]) == (1, 3)
    assert ended == old | {"status": 2, "snapshot_id": head.snapshot_id}
    assert old["sequence_number"] == before.sequence_number
    summary = said(keyed.lake)
    removed = [summary[f"removed-{name}"] for name in ("delete-files", "position-delete-files", "position-deletes")]
    assert removed == ["1", "1", "1"]
    assert summary["removed-files-size"] == str(old["data_file"]["file_size_in_bytes"])
    checked(keyed)


def test_a_delete_manifest_without_live_entries_is_left_out_by_the_next_snapshot(tmp_path: Path) -> None:
    keyed = Keyed(keyed_lake(tmp_path))
    keyed.run({1: (0, 1), 2: (0, 2)})
    keyed.run({}, {1})
    keyed.run({}, {2})
    keyed.run({5: (0, 5)})
    assert len([one for one in raw_list(keyed.lake.head()) if one["content"]]) == 1
    checked(keyed)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.dear
def test_many_random_batches_leave_few_delete_manifests(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    keyed = Keyed(keyed_lake(tmp_path, partitioned=bool(seed % 2)))
    for _ in range(14):
        keys = chance.sample(range(60), chance.randrange(1, 15))
        upserts = {key: (chance.choice([None, 0, 1, 2]), chance.randrange(1000)) for key in keys}
        keyed.run(upserts, set(chance.sample(range(60), chance.randrange(6))) - set(keys))
        checked(keyed)
    deletes = [one for one in raw_list(keyed.lake.head()) if one["content"]]
    assert len(deletes) <= 1
    names = Counter(
        entry["data_file"]["referenced_data_file"]
        for entry in raw_entries(keyed.lake.table(), keyed.lake.head()).values()
        if entry["data_file"]["content"]
    )
    assert set(names.values()) <= {1}
