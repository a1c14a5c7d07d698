"""What must not be is found, by its code, and nothing else beside it. Real tables, damaged on the disk or forged."""

import json
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent, read_manifest_list, write_manifest_list
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import SetSnapshotRefUpdate

from lakesink_tools.audit.audit import Proof, audit
from lakesink_tools.audit.data_files import faults
from lakesink_tools.audit.finding import Code
from lakesink_tools.audit.inventory import Entry
from testkit.builders import Lake, Stream
from testkit.maintenance import branch_off, change, edit_metadata, remove_ref, roll_back, set_property, upgrade
from testkit.upserts import local

Damage = Callable[[Lake, Stream], object]


def codes(proof: Proof) -> list[str]:
    return sorted({finding.code.name for finding in proof.findings})


def data_file(lake: Lake, batch_id: int) -> Path:
    [path] = [path for path in lake.files() if re.fullmatch(rf"events-{batch_id}-.*\.parquet", path.name)]
    return path


def manifests(lake: Lake) -> list[Path]:
    """Of the head, newest first."""
    table, head = lake.table(), lake.head()
    return [local(found.manifest_path) for found in read_manifest_list(table.io.new_input(head.manifest_list))]


# Files


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def scramble(path: Path) -> None:
    path.write_bytes(b"x" * path.stat().st_size)


def scramble_footer(path: Path) -> None:
    """Its length and the magic behind it stay."""
    content = path.read_bytes()
    footer = struct.unpack("<I", content[-8:-4])[0] + 8
    path.write_bytes(content[:-footer] + b"\xff" * (footer - 8) + content[-8:])


def exchange(path: Path) -> None:
    """Another Parquet file of the very same size: its footer is moved to the end, over a gap that nobody reads."""
    size, other = path.stat().st_size, path.with_name("other")
    pq.write_table(pa.table({"batch": pa.array([1], pa.int64())}), other)
    content = other.read_bytes()
    other.unlink()
    footer = struct.unpack("<I", content[-8:-4])[0] + 8
    path.write_bytes(content[:-footer] + bytes(size - len(content)) + content[-footer:])


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (Path.unlink, Code.FILE_MISSING),
        (cut, Code.FILE_SIZE),
        (scramble, Code.FILE_DAMAGED),
        (scramble_footer, Code.FILE_DAMAGED),
        (exchange, Code.FILE_ROWS),
    ],
)
def test_a_damaged_data_file_is_found(lake: Lake, stream: Stream, damage: Callable[[Path], object], code: Code) -> None:
    assert codes(audit(lake.table())) == []
    path = data_file(lake, 2)
    damage(path)
    [found] = audit(lake.table()).findings
    assert found.code is code
    assert [local(item) for item in found.items] == [path]
    assert stream.writes == 4


def test_a_footer_longer_than_the_first_read_is_read_whole(lake: Lake) -> None:
    path = lake.folder / "wide.parquet"
    wide = pa.table({f"column_{number:05}": [1, 2] for number in range(2000)})
    pq.write_table(wide, path)
    assert struct.unpack("<I", path.read_bytes()[-8:-4])[0] > 2 * 64 * 1024
    entry = Entry(
        f"file://{path}", path.stat().st_size, 2, 1, content=DataFileContent.DATA, is_parquet=True, is_new=True
    )
    assert faults(lake.table().io, [entry], footers=True) == []
    assert [fault.code for fault in faults(lake.table().io, [replace(entry, rows=3)], footers=True)] == [Code.FILE_ROWS]


def test_without_footers_only_what_the_size_tells_is_found(lake: Lake, stream: Stream) -> None:
    assert stream.writes == 4
    exchange(data_file(lake, 2))
    assert codes(audit(lake.table(), footers=False)) == []
    cut(data_file(lake, 1))
    assert codes(audit(lake.table(), footers=False)) == ["FILE_SIZE"]


def test_a_file_that_only_an_older_snapshot_needs_is_missed_too(lake: Lake, stream: Stream) -> None:
    assert stream.writes == 4
    lake.table().delete("batch == 2")
    data_file(lake, 2).unlink()
    assert codes(audit(lake.table())) == ["FILE_MISSING"]


def test_many_damaged_files_are_one_finding(lake: Lake, stream: Stream) -> None:
    assert stream.writes == 4
    for batch_id in range(4):
        data_file(lake, batch_id).unlink()
    [found] = audit(lake.table()).findings
    assert len(found.items) == 4
    assert found.found.startswith("4 files not there: file:")
    assert found.found.endswith("and 1 more.")


def test_a_file_that_cannot_be_looked_at_is_not_called_missing(lake: Lake, stream: Stream) -> None:
    assert stream.writes == 4
    path = data_file(lake, 2)
    path.unlink()
    path.mkdir()
    proof = audit(lake.table())
    assert (codes(proof), proof.unchecked) == ([], 1)
    assert "could not be checked" in next(note.found for note in proof.notes if note.name == "not checked")


# References


def add_again(lake: Lake, batch_id: int, **summary: str) -> None:
    """A file that is there already, referenced once more."""
    path = f"file://{data_file(lake, batch_id)}"
    lake.table().add_files([path], snapshot_properties=summary, check_duplicate_files=False)


def test_a_file_that_is_referenced_twice_is_found(lake: Lake, stream: Stream) -> None:
    assert stream.writes == 4
    add_again(lake, 2)
    [found] = audit(lake.table()).findings
    assert found.code is Code.FILE_TWICE
    assert [local(item) for item in found.items] == [data_file(lake, 2)]


def test_a_file_that_two_batches_brought_is_found(lake: Lake, stream: Stream) -> None:
    summary = {"lakesink.batch-id": "4", "lakesink.fingerprint": "forged"}
    add_again(lake, 2, **(stream.marks()[-1].to_summary() | summary))
    assert codes(audit(lake.table())) == ["FILE_ADDED_TWICE", "FILE_TWICE", "LEDGER_DAMAGED"]


# Metadata


@pytest.mark.parametrize("damage", [Path.unlink, cut, scramble])
@pytest.mark.parametrize("what", ["manifest", "manifest list"])
def test_damaged_metadata_is_found(lake: Lake, stream: Stream, what: str, damage: Callable[[Path], object]) -> None:
    assert stream.writes == 4
    path = manifests(lake)[1] if what == "manifest" else local(lake.head().manifest_list)
    damage(path)
    [found] = audit(lake.table()).findings
    assert found.code is Code.MANIFEST_UNREADABLE
    assert [local(item) for item in found.items] == [path]


def test_a_tag_that_cannot_be_read_is_found(lake: Lake, stream: Stream) -> None:
    tagged = stream.snapshot_of(1)
    lake.table().manage_snapshots().create_tag(tagged, "keep").commit()
    assert audit(lake.table()).findings == ()
    snapshot = lake.table().snapshot_by_id(tagged)
    assert snapshot is not None
    local(snapshot.manifest_list).unlink()
    [found] = audit(lake.table()).findings
    assert (found.code, found.items) == (Code.MANIFEST_UNREADABLE, (snapshot.manifest_list,))


def test_a_manifest_that_is_not_as_its_list_states_is_found(lake: Lake, stream: Stream) -> None:
    assert stream.writes == 4
    table, head = lake.table(), lake.head()
    entries = list(read_manifest_list(table.io.new_input(head.manifest_list)))
    entries[0]._data[10] = 999  # noqa: SLF001 - its added rows; PyIceberg has no setter
    output = table.io.new_output(head.manifest_list)
    local(head.manifest_list).unlink()
    with write_manifest_list(2, output, head.snapshot_id, None, head.sequence_number, "deflate") as writer:
        writer.add_manifests(entries)
    [found] = audit(lake.table()).findings
    assert found.code is Code.MANIFEST_DISAGREES
    assert "1 file, 3 rows, where the list states 1 file, 999 rows" in found.found


def forge(lake: Lake, place: int, **fields: str) -> None:
    """Other values in the summary of one snapshot."""

    def edit(metadata: dict[str, Any]) -> None:
        metadata["snapshots"][place]["summary"].update(
            {name.replace("_", "-").replace("lakesink-", "lakesink."): value for name, value in fields.items()}
        )

    edit_metadata(lake, edit)


@pytest.mark.parametrize(
    ("place", "fields", "expected"),
    [
        (1, {"added_records": "4"}, ["SUMMARY_DISAGREES"]),
        (1, {"added_data_files": "2"}, ["SUMMARY_DISAGREES"]),
        (1, {"added_files_size": "1"}, ["SUMMARY_DISAGREES"]),
        (1, {"total_records": "999"}, ["SUMMARY_DISAGREES"]),
        (3, {"total_records": "999"}, ["SUMMARY_DISAGREES", "TOTALS_DISAGREE"]),
        (3, {"total_files_size": "0"}, ["SUMMARY_DISAGREES", "TOTALS_DISAGREE"]),
        (3, {"total_records": "many"}, []),
    ],
)
def test_a_summary_that_lies_is_found(
    lake: Lake, stream: Stream, place: int, fields: dict[str, str], expected: list[str]
) -> None:
    assert stream.writes == 4
    forge(lake, place, **fields)
    assert codes(audit(lake.table())) == expected


def test_a_summary_that_lies_is_found_after_its_file_was_rewritten(lake: Lake, stream: Stream) -> None:
    assert stream.writes == 4
    forge(lake, 1, added_records="4")
    lake.table().delete("batch == 1")
    [first, *_] = audit(lake.table()).findings
    assert first.code is Code.SUMMARY_DISAGREES
    assert first.found.startswith("Batch 1: its manifests hold 1 file, 3 rows, ")
    assert "its summary states 1 file, 4 rows, " in first.found


# Batches


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({1: "0"}, ["BATCH_GAP", "BATCH_TWICE"]),
        ({2: "7"}, ["BATCH_GAP", "BATCH_ORDER"]),
        ({0: "1", 1: "2"}, ["BATCH_GAP", "BATCH_TWICE"]),
    ],
)
def test_batches_out_of_order_are_found(
    lake: Lake, stream: Stream, numbers: dict[int, str], expected: list[str]
) -> None:
    assert stream.writes == 4
    for place, batch_id in numbers.items():
        forge(lake, place, lakesink_batch_id=batch_id)
    assert codes(audit(lake.table())) == expected


# Ledgers


def forge_ledger(lake: Lake, stream: Stream) -> None:
    name = stream.key.ledger_property
    entry = json.loads(lake.table().properties[name])
    set_property(lake, name, json.dumps(entry | {"batch_id": 999}))


def move_tag(lake: Lake, stream: Stream) -> None:
    update = SetSnapshotRefUpdate(
        ref_name=stream.key.ledger_tag,
        type=SnapshotRefType.TAG,
        snapshot_id=stream.snapshot_of(1),
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    change(lake, update)


def move_audit_tag(lake: Lake, stream: Stream) -> None:
    stream.run(4, tag_every=2)
    assert audit(lake.table()).findings == ()
    lake.table().manage_snapshots().remove_tag(stream.key.audit_tag(4)).commit()
    lake.table().manage_snapshots().create_tag(stream.snapshot_of(3), stream.key.audit_tag(4)).commit()


def drop_branch(lake: Lake, _: Stream) -> None:
    branch_off(lake, "checks")
    Stream(lake, sink_id="other", branch="checks").run(0)
    remove_ref(lake, "checks")


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (forge_ledger, ["LEDGER_DAMAGED"]),
        (lambda lake, stream: set_property(lake, stream.key.ledger_property, None), ["LEDGER_LOST"]),
        (lambda lake, stream: set_property(lake, stream.key.ledger_property, "{"), ["LEDGER_DAMAGED"]),
        (lambda lake, stream: roll_back(lake, stream.snapshot_of(1)), ["ROLLED_BACK"]),
        (lambda lake, _: edit_metadata(lake, lambda found: found.update({"table-uuid": "0" * 32})), ["TABLE_REPLACED"]),
        (lambda lake, _: upgrade(lake), ["UNSUPPORTED"]),
        (drop_branch, ["BRANCH_MISSING"]),
        (move_tag, ["TAG_ELSEWHERE"]),
        (move_audit_tag, ["TAG_ELSEWHERE"]),
    ],
)
def test_a_ledger_that_is_not_the_newest_own_batch_is_found(
    lake: Lake, stream: Stream, damage: Damage, expected: list[str]
) -> None:
    damage(lake, stream)
    assert codes(audit(lake.table())) == expected


def test_a_stream_without_a_tag_is_only_told(lake: Lake) -> None:
    Stream(lake).run(0, ledger_tag=False)
    proof = audit(lake.table())
    assert codes(proof) == []
    assert [note.name for note in proof.notes] == ["no tag"]


def test_every_code_says_what_it_means_and_what_to_do() -> None:
    for code in Code:
        assert code.means.endswith("."), code
        assert code.action.endswith("."), code
