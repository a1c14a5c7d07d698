"""Which delete manifests a commit writes again, what it writes, and what stays as it was for batches that append."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import ManifestContent, ManifestFile, data_file_with_partition
from pyiceberg.manifest import manifest_entry_schema_with_data_file as entry_type
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from lakesink_catalog.commit.request import build_request
from lakesink_catalog.commit.table_change import Change
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.manifests import rewriting
from lakesink_catalog.manifests.encode import entry_encoder
from lakesink_catalog.manifests.entries import DELETES
from lakesink_catalog.manifests.partitions import Kind, promoted
from lakesink_catalog.manifests.rewriting import FEW_ENTRIES, MOST_ENTRIES, OWN_DELETES, FileChange, to_rewrite
from lakesink_catalog.manifests.write import avro_layout, header_metadata, write_batch_manifests
from lakesink_protocol.change import Content, ContentFile
from testkit.builders import Lake, Stream
from tests.catalog.raw_avro import raw
from tests.catalog.test_encoded_entries import any_file

SNAPSHOT_ID = 2**62


def manifest(
    name: str, entries: int, *, spec: int = 0, content: ManifestContent = ManifestContent.DELETES
) -> ManifestFile:
    return ManifestFile.from_args(
        manifest_path=name, partition_spec_id=spec, content=content, added_files_count=entries
    )


def own(number: int, entries: int, **facts: Any) -> ManifestFile:
    return manifest(f"{number}{OWN_DELETES}", entries, **facts)


def rewritten(manifests: list[ManifestFile], touched: set[str], adds: dict[int, int]) -> list[str]:
    return [one.manifest_path.removesuffix(OWN_DELETES) for one in to_rewrite(manifests, touched, adds)]


def test_touched_manifests_are_written_again_whoever_wrote_them() -> None:
    manifests = [manifest("foreign", 9), own(1, 20_000, spec=1), manifest("data", 1, content=ManifestContent.DATA)]
    assert rewritten(manifests, {"foreign", f"1{OWN_DELETES}"}, {}) == ["foreign", "1"]


def test_small_ones_of_the_same_spec_are_merged() -> None:
    manifests = [own(1, FEW_ENTRIES), own(2, 3), own(3, 3, spec=1), manifest("foreign", 1), own(4, FEW_ENTRIES + 5)]
    assert rewritten(manifests, set(), {0: 1}) == ["2", "1"]
    assert rewritten(manifests, {f"2{OWN_DELETES}"}, {0: 1}) == ["2", "1"]
    assert rewritten(manifests, {f"2{OWN_DELETES}"}, {0: 2}) == ["2", "1", "4"]
    assert rewritten(manifests, set(), {}) == []


def test_no_merge_exceeds_the_limit_of_a_manifest() -> None:
    assert rewritten([own(1, MOST_ENTRIES - 200)], set(), {0: 200}) == []
    assert rewritten([own(1, MOST_ENTRIES // 2)], set(), {0: MOST_ENTRIES // 2}) == ["1"]
    assert rewritten([own(1, MOST_ENTRIES // 2)], set(), {0: MOST_ENTRIES // 2 + 1}) == []


@pytest.mark.parametrize("per_batch", [1, 30, 150])
def test_batches_that_touch_nothing_leave_few_manifests_and_rewrite_each_entry_seldom(per_batch: int) -> None:
    sizes, moved, batches = dict[str, int](), 0, 400
    for number in range(batches):
        gone = to_rewrite([manifest(name, entries) for name, entries in sizes.items()], set(), {0: per_batch})
        merged = sum(sizes.pop(one.manifest_path) for one in gone)
        sizes[f"{number}{OWN_DELETES}"], moved = per_batch + merged, moved + merged
    total = per_batch * batches
    assert sum(sizes.values()) == total
    assert len(sizes) <= 12 + 2 * total // MOST_ENTRIES
    assert moved <= total * (12 + FEW_ENTRIES / per_batch)


def delete_of(number: int, **facts: Any) -> ContentFile:
    file = any_file(random.Random(number), ())
    known = {"path": f"deletes-{number}", "content": Content.POSITION_DELETES, "referenced_data_file": f"data-{number}"}
    return ContentFile(**{name: getattr(file, name) for name in file.__slots__} | known | {"record_count": 1} | facts)


def test_more_entries_than_a_manifest_may_have_become_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "MOST_ENTRIES", 50)
    lake = Lake.make(tmp_path)
    one = delete_of(0, column_sizes={})
    added = [replace(one, path=f"d{number}") for number in range(51)]
    written = FileChange(ManifestContent.DELETES, added, [], SNAPSHOT_ID).write(lake.table(), [], LISTENERS).written
    assert [one.added_files_count for one in written] == [50, 1]
    assert sum(len(raw(one.manifest_path).records) for one in written) == 51


@pytest.mark.parametrize("seed", range(10))
def test_an_entry_of_deletes_is_what_another_library_reads(tmp_path: Path, seed: int) -> None:
    lake, file = Lake.make(tmp_path), delete_of(seed)
    [written] = FileChange(ManifestContent.DELETES, [file], [], SNAPSHOT_ID).write(lake.table(), [], LISTENERS).written
    found = raw(written.manifest_path)
    [entry] = found.records
    stated = entry["data_file"]
    assert (entry["status"], entry["snapshot_id"], entry["sequence_number"]) == (1, SNAPSHOT_ID, None)
    assert (stated["content"], stated["file_path"], stated["referenced_data_file"]) == (1, file.path, f"data-{seed}")
    assert {pair["key"]: pair["value"] for pair in stated["lower_bounds"]} == file.lower_bounds
    assert (stated["equality_ids"], stated["sort_order_id"]) == (None, None)
    assert found.metadata["content"] == "deletes"


def test_a_change_that_only_adds_data_files_has_them_in_its_snapshot(tmp_path: Path) -> None:
    file = any_file(random.Random(0), ())
    request = build_request(Lake.make(tmp_path).table(), Change("main", None, SNAPSHOT_ID, {}, added=(file,)), 1)
    [manifest_file] = raw(request.manifest_list).records
    [entry] = raw(manifest_file["manifest_path"]).records
    assert (entry["data_file"]["file_path"], manifest_file["added_rows_count"]) == (file.path, file.record_count)


def test_a_file_that_deletes_from_several_data_files_names_none(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    change = FileChange(ManifestContent.DELETES, [delete_of(1, referenced_data_file="")], [], SNAPSHOT_ID)
    [written] = change.write(lake.table(), [], LISTENERS).written
    [entry] = raw(written.manifest_path).records
    assert entry["data_file"]["referenced_data_file"] is None


def test_a_manifest_of_data_files_is_the_same_as_before_there_were_deletes(tmp_path: Path) -> None:
    """The layout is PyIceberg's for version 2, the header has the same words in the same order."""
    schema = Schema(NestedField(1, "id", LongType()))
    spec = PartitionSpec()
    layout = entry_type(2, data_file_with_partition(spec.partition_type(schema), format_version=2))
    by_pyiceberg = AvroSchemaConversion().iceberg_to_avro(layout, "manifest_entry")
    assert json.dumps(avro_layout(spec, schema)) == json.dumps(by_pyiceberg)
    names = ["schema", "partition-spec", "partition-spec-id", "format-version", "content", "avro.schema"]
    header = header_metadata(spec, schema)
    assert (list(header), header["content"], header["avro.schema"]) == (
        names,
        b"data",
        json.dumps(by_pyiceberg).encode(),
    )
    file = any_file(random.Random(1), ())
    [written] = write_batch_manifests(Lake.make(tmp_path).table(), [file], schema=schema, snapshot_id=SNAPSHOT_ID)
    encoded = entry_encoder(avro_layout(spec, schema), SNAPSHOT_ID)(file)
    assert raw(written.path).metadata["content"] == "data"
    assert encoded != entry_encoder(avro_layout(spec, schema, DELETES), SNAPSHOT_ID)(file)


def test_the_summary_of_an_append_says_nothing_of_deletes(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    for number in range(2):
        Stream(lake).run(number)
    summary = lake.head().summary
    assert summary is not None
    found = [name for name in summary.additional_properties if not name.startswith("lakesink.")]
    assert found == [
        "total-data-files",
        "total-records",
        "total-files-size",
        "total-delete-files",
        "total-position-deletes",
        "total-equality-deletes",
        "added-data-files",
        "added-records",
        "added-files-size",
        "changed-partition-count",
    ]


def test_a_value_is_promoted_with_its_column() -> None:
    kinds = (Kind.LONG, Kind.DOUBLE, Kind.INT, Kind.LONG, Kind.STRING)
    values = (b"\xff\xff\xff\x7f", b"\x00\x00\x80\xbf", b"\x01\x00\x00\x00", None, b"text")
    wide = (b"\xff\xff\xff\x7f\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\x00\xf0\xbf", *values[2:])
    assert promoted(kinds, values) == wide
    assert promoted(kinds, wide) == wide
    assert promoted((Kind.LONG,), (b"\xff\xff\xff\xff",)) == (b"\xff" * 8,)
