"""Manifests: one a spec, many entries a block, merged without changing what any snapshot shows; and the totals."""

from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform, TruncateTransform

from lakesink.sinks.iceberg.transaction import IcebergTransaction
from lakesink_catalog.manifests.merging import MergePolicy
from lakesink_catalog.manifests.write import ENTRIES_PER_BLOCK, write_batch_manifests
from lakesink_protocol.change import ContentFile
from lakesink_protocol.outcome import Committed
from lakesink_protocol.receipt import decode
from testkit.answers import ERRORS, first, lands_but_says, refuses_with
from testkit.builders import Chance, Lake, Stream, counted, expected, lasting_contents
from testkit.commits import fence_of, land
from testkit.maintenance import append_foreign, edit_metadata, expire, rewrite, set_property

Added = tuple[int | None, int | None, int | None]
BY_BATCH = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "batch"))


def receipts(lake: Lake, batch_id: int = 0, tasks: int = 1) -> list[ContentFile]:
    """Real files of one batch, committed by nobody."""
    stream = Stream(lake)
    transaction = stream.sink().begin(stream.batch(batch_id))
    assert isinstance(transaction, IcebergTransaction)
    assert transaction.writer is not None
    votes = stream.write(stream.batch(batch_id), tasks=tasks)({"it": transaction.writer}).receipts("it")
    return [file for vote in votes for file in decode(vote).files]


def manifests(lake: Lake, snapshot: Snapshot | None = None) -> list[ManifestFile]:
    return (snapshot or lake.head()).manifests(lake.table().io)


def live(lake: Lake, snapshot: Snapshot | None = None) -> dict[str, Added]:
    """Of every data file of a snapshot: which snapshot added it, and its two sequence numbers. None is there twice."""
    found = [
        (entry.data_file.file_path, (entry.snapshot_id, entry.sequence_number, entry.file_sequence_number))
        for manifest in manifests(lake, snapshot)
        for entry in manifest.fetch_manifest_entry(lake.table().io)
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


def test_files_of_two_specs_make_two_manifests_each_under_its_own(lake: Lake) -> None:
    old = receipts(lake, tasks=2)
    with lake.table().update_spec() as update:
        update.add_field("batch", TruncateTransform(10))
    new = receipts(lake, tasks=3)
    fence = fence_of(lake.table, Stream(lake).key, Chance().effects())
    outcome = land(fence, Stream(lake).batch(0), [*new, *old])
    assert isinstance(outcome, Committed)
    assert (outcome.files, outcome.rows) == (5, 15)
    listed = {manifest.partition_spec_id: manifest.added_files_count for manifest in manifests(lake)}
    assert listed == {0: 2, 1: 3}
    specs = {task.file.file_path: task.file.spec_id for task in lake.table().scan().plan_files()}
    assert specs == {file.path: file.spec_id for file in [*old, *new]}
    assert lake.table().scan(row_filter="batch = 0").to_arrow().num_rows == 15
    assert lake.table().scan(row_filter="batch = 20").to_arrow().num_rows == 0


def test_what_a_receipt_says_of_a_file_stands_in_the_table(lake: Lake) -> None:
    Stream(lake).run(0, rows=7)
    [task] = lake.table().scan().plan_files()
    path = Path(urlsplit(task.file.file_path).path)
    assert (task.file.record_count, task.file.file_size_in_bytes) == (7, path.stat().st_size)
    assert task.file.value_counts == {1: 7, 2: 7, 3: 7}
    assert (task.file.lower_bounds[2], task.file.upper_bounds[2]) == (b"\x00" * 8, b"\x06" + b"\x00" * 7)
    [manifest] = manifests(lake)
    assert manifest.manifest_length == Path(urlsplit(manifest.manifest_path).path).stat().st_size
    assert (manifest.added_files_count, manifest.added_rows_count) == (1, 7)
    assert (manifest.existing_files_count, manifest.deleted_files_count) == (0, 0)


def test_bounds_of_partitions_let_a_reader_pass_over_manifests(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path, spec=BY_BATCH)
    for batch_id in range(3):
        Stream(lake).run(batch_id)
    bounds = {(part.lower_bound, part.upper_bound) for item in manifests(lake) for part in item.partitions or ()}
    assert bounds == {(number.to_bytes(8, "little"),) * 2 for number in range(3)}
    [task] = lake.table().scan(row_filter="batch = 1").plan_files()
    assert task.file.partition[0] == 1


def test_entries_are_written_many_to_a_block(lake: Lake) -> None:
    [file] = receipts(lake)
    many = [replace(file, path=f"{file.path}-{number}") for number in range(2 * ENTRIES_PER_BLOCK + 1)]
    table = lake.table()
    [record] = write_batch_manifests(table, many, schema=table.schema(), snapshot_id=2**40)
    assert _entries_by_block(table, record.path) == [ENTRIES_PER_BLOCK, ENTRIES_PER_BLOCK, 1]
    assert (record.files, record.length_bytes) == (len(many), Path(urlsplit(record.path).path).stat().st_size)


def _entries_by_block(table: Table, path: str) -> list[int]:
    with AvroFile[ManifestEntry](table.io.new_input(path)) as reader:
        blocks = [reader.block.block_decoder for _ in reader if reader.block is not None]
    return [len(list(same)) for _, same in groupby(blocks, key=id)]


@pytest.mark.parametrize("codec", ["gzip", "zstd", "snappy", "uncompressed", "nonsense"])
def test_the_tables_avro_codec_is_used_if_it_is_known(tmp_path: Path, codec: str) -> None:
    lake = Lake.make(tmp_path, properties={"write.avro.compression-codec": codec})
    Stream(lake).run(0)
    Stream(lake).run(1)
    assert counted(lake) == expected(0, 1)


def merging(min_count: int, **more: str) -> dict[str, str]:
    return {"commit.manifest.min-count-to-merge": str(min_count), **more}


@pytest.mark.dear
@pytest.mark.parametrize("spec", [PartitionSpec(), BY_BATCH], ids=["unpartitioned", "partitioned"])
@pytest.mark.parametrize("min_count", [3, 5])
def test_merging_changes_nothing_that_any_snapshot_shows(tmp_path: Path, min_count: int, spec: PartitionSpec) -> None:
    lake = Lake.make(tmp_path, spec=spec, properties=merging(min_count))
    stream = Stream(lake)
    added: dict[str, Added] = {}
    before = lasting_contents(lake)
    for batch_id in range(21):
        stream.run(batch_id, rows=2)
        head, found = lake.head(), live(lake)
        [new] = found.keys() - added.keys()
        added[new] = (head.snapshot_id, head.sequence_number, head.sequence_number)
        assert found == added
        assert len(manifests(lake)) < min_count * 4
        if batch_id % 5 == 0:
            assert before.items() <= (before := lasting_contents(lake)).items()
    for batch_id, snapshot in enumerate(lake.table().metadata.snapshots):
        assert len(live(lake, snapshot)) == batch_id + 1
        assert lake.table().scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows == 2 * (batch_id + 1)
    assert counted(lake) == expected(*range(21), rows=2)


@pytest.mark.dear
def test_the_list_of_manifests_stays_short_over_a_hundred_commits(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path, properties=merging(4, **{"write.metadata.previous-versions-max": "1"}))
    fence = fence_of(lake.table, Stream(lake).key, Chance().effects(), merge=MergePolicy(min_count=4))
    [file] = receipts(lake)
    longest = 0
    for number in range(100):
        assert land(fence, Stream(lake).batch(number), [replace(file, path=f"{file.path}-{number}")])
        longest = max(longest, len(manifests(lake)))
        if number % 20 == 0:
            expire(lake)
    assert longest <= 3 * 5  # three of a tier may wait, and 100 files make tiers up to 4^4
    assert len(live(lake)) == 100
    summary = lake.head().summary
    assert summary is not None
    assert (summary["total-data-files"], summary["total-records"]) == ("100", "300")


def test_merging_can_be_switched_off(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path, properties=merging(3, **{"commit.manifest-merge.enabled": "false"}))
    for batch_id in range(7):
        Stream(lake).run(batch_id)
    assert len(manifests(lake)) == 7


@pytest.mark.parametrize("fault", [refuses_with, lands_but_says], ids=["did not land", "landed"])
def test_a_merge_is_reused_by_the_next_attempt(tmp_path: Path, fault: object) -> None:
    lake = Lake.make(tmp_path, properties=merging(3))
    stream = Stream(lake).filled(3)
    lake.catalog.faults = [fault(ERRORS["503 unavailable"])] * 2  # type: ignore[operator] # one of the two above
    assert isinstance(stream.run(3), Committed)
    assert len(_merged(lake)) == 1
    assert counted(lake) == expected(0, 1, 2, 3)


def test_a_merge_whose_inputs_were_rewritten_meanwhile_is_dropped(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path, properties=merging(3))
    stream = Stream(lake).filled(3)
    lake.catalog.faults = [first(lambda: rewrite(lake))]
    assert isinstance(stream.run(3), Committed)
    assert counted(lake) == expected(0, 1, 2, 3)
    assert not {manifest.manifest_path for manifest in manifests(lake)} & {f"file://{path}" for path in _merged(lake)}


def test_a_merge_is_kept_while_others_only_append(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path, properties=merging(3))
    stream = Stream(lake).filled(3)
    lake.catalog.faults = [first(lambda: append_foreign(lake))] * 2
    assert isinstance(stream.run(3), Committed)
    assert len(_merged(lake)) == 1
    assert all(counted(lake)[row] == 1 for row in expected(0, 1, 2, 3))


def _merged(lake: Lake) -> list[Path]:
    return [path for path in lake.files() if path.name.endswith("-merged.avro")]


def test_only_manifests_of_one_spec_are_merged(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path, properties=merging(3))
    stream = Stream(lake)
    for batch_id in range(12):
        if batch_id == 5:
            with lake.table().update_spec() as update:
                update.add_field("batch", IdentityTransform())
        stream.run(batch_id)
        assert len({manifest.partition_spec_id for manifest in manifests(lake)}) == (1 if batch_id < 5 else 2)
    assert counted(lake) == expected(*range(12))
    for batch_id in (2, 7):
        assert lake.table().scan(row_filter=f"batch = {batch_id}").to_arrow().num_rows == 3


def test_manifests_of_a_dropped_partition_column_are_left_alone(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path, spec=PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "written")))
    stream = Stream(lake).filled(4)
    with lake.table().update_spec() as update:
        update.remove_field("written")
    for name, value in merging(3).items():
        set_property(lake, name, value)
    for batch_id in range(4, 10):
        stream.run(batch_id)
    assert counted(lake) == expected(*range(10))


def test_a_manifest_that_cannot_be_merged_costs_the_merge_and_not_the_batch(tmp_path: Path) -> None:
    """Another engine may have written it in a codec that this Python lacks; carried over it does no harm."""
    lake = Lake.make(tmp_path, properties=merging(3))
    stream = Stream(lake).filled(3)
    path = Path(urlsplit(manifests(lake)[0].manifest_path).path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"deflate", b"foreign"))
    assert isinstance(stream.run(3), Committed)
    path.write_bytes(whole)
    assert isinstance(stream.run(4), Committed)
    assert _merged(lake)
    assert counted(lake) == expected(*range(5))


def test_totals_add_up_over_every_kind_of_commit(lake: Lake) -> None:
    stream = Stream(lake)
    stream.run(0, rows=4)
    append_foreign(lake)
    stream.run(1, rows=0)
    stream.run(2, rows=5)
    rewrite(lake)
    stream.run(3, rows=1)
    for snapshot in lake.table().metadata.snapshots:
        scan = lake.table().scan(snapshot_id=snapshot.snapshot_id)
        files = [task.file for task in scan.plan_files()]
        assert snapshot.summary is not None
        assert snapshot.summary["total-records"] == str(scan.to_arrow().num_rows)
        assert snapshot.summary["total-data-files"] == str(len(files))
        assert snapshot.summary["total-files-size"] == str(sum(file.file_size_in_bytes for file in files))


@pytest.mark.parametrize("total", ["", "many", "-1", "9" * 5000, "1.5", "\u0664"])
def test_a_total_that_is_no_number_is_left_out_and_costs_nothing(lake: Lake, total: str) -> None:
    append_foreign(lake)

    def forge(metadata: dict[str, Any]) -> None:
        metadata["snapshots"][-1]["summary"]["total-records"] = total

    edit_metadata(lake, forge)
    assert isinstance(Stream(lake).run(0), Committed)
    summary = lake.head().summary
    assert summary is not None
    assert summary["total-records"] is None
    assert summary["total-data-files"] == "2"


def test_a_commit_says_what_it_added(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path, spec=BY_BATCH)
    outcome = Stream(lake).run(0, rows=4)
    assert isinstance(outcome, Committed)
    summary = lake.head().summary
    assert summary is not None
    assert (outcome.rows, outcome.files) == (4, 1)
    assert {name: summary[name] for name in ("added-records", "added-data-files", "changed-partition-count")} == {
        "added-records": "4",
        "added-data-files": "1",
        "changed-partition-count": "1",
    }
    assert summary["added-files-size"] == str(outcome.bytes)
    assert summary.operation.value == "append"


def test_entries_of_a_batch_are_added_by_its_own_snapshot(lake: Lake) -> None:
    Stream(lake).run(0)
    head = lake.head()
    [manifest] = manifests(lake)
    [entry] = manifest.fetch_manifest_entry(lake.table().io)
    assert (entry.status, entry.snapshot_id, manifest.added_snapshot_id) == (
        ManifestEntryStatus.ADDED,
        head.snapshot_id,
        head.snapshot_id,
    )
