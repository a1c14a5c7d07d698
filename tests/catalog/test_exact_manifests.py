"""Manifests before and after a merge or a recovery, field by field, as another library reads the raw Avro."""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import PartitionFieldSummary
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import LongType, NestedField

from lakesink_catalog.commit.batch_commit import FencedCommit
from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_catalog.commit.recovered import matches_manifests, parse_prepared
from lakesink_catalog.manifests.merging import MergePolicy
from lakesink_protocol.change import ContentFile
from lakesink_protocol.outcome import Committed
from testkit.builders import Chance, Lake, Stream
from testkit.commits import fence_of
from tests.catalog.partition_cases import CASES, Case, bounds
from tests.catalog.raw_avro import raw, raw_entries, raw_list

BATCHES = 3
SUMMARY = ("contains_null", "contains_nan", "lower_bound", "upper_bound")


@dataclass
class Writer:
    """Commits batches of files that nobody reads, with these partition values."""

    lake: Lake
    min_count: int = BATCHES

    @property
    def fence(self) -> FencedCommit:
        return fence_of(
            self.lake.table, Stream(self.lake).key, Chance().effects(), merge=MergePolicy(min_count=self.min_count)
        )

    def prepare(self, batch_id: int, partitions: list[tuple[bytes | None, ...]]) -> PreparedBatch:
        decision = self.fence.decide(Stream(self.lake).batch(batch_id))
        files = [_file(self.lake, f"{batch_id}-{number}", each) for number, each in enumerate(partitions)]
        return self.fence.prepare(decision, files, schema=decision.table.schema())

    def commit(self, batch_id: int, prepared: PreparedBatch) -> Snapshot:
        assert isinstance(self.fence.commit(Stream(self.lake).batch(batch_id), prepared), Committed)
        return self.lake.head()

    def run(self, batch_id: int, partitions: list[tuple[bytes | None, ...]]) -> Snapshot:
        return self.commit(batch_id, self.prepare(batch_id, partitions))


def _file(lake: Lake, name: str, partition: tuple[bytes | None, ...]) -> ContentFile:
    number = abs(hash(name)) % 1000 + 1
    return ContentFile(
        path=f"{lake.table().location()}/data/{name}-ä.parquet",
        spec_id=lake.table().spec().spec_id,
        partition=partition,
        record_count=number,
        file_size_bytes=2**40 + number,
        column_sizes={1: number, 2: 2**62},
        value_counts={1: number},
        null_value_counts={1: 0, 2: number},
        nan_value_counts={2: 3},
        lower_bounds={1: b"\x00\xff", 2: b""},
        upper_bounds={1: b"\x7f" * 30},
        split_offsets=(4, 2**35),
    )


def _lake(folder: Path, case: Case, **properties: str) -> Lake:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "value", case.source))
    spec = PartitionSpec(PartitionField(2, 1000, case.transform, "part"))
    return Lake.make(folder, schema=schema, spec=spec, properties=properties)


def _values(case: Case) -> list[Any]:
    nan = [math.nan] if case.values and isinstance(case.values[0], float) else []
    return [None, *nan, *case.values]


def _dealt(values: list[Any]) -> list[list[Any]]:
    """One batch of all, one of every second, one of the first; each of as many files, for they make one tier."""
    every_second = (values[1::2] or values) * len(values)
    return [values, every_second[: len(values)], values[:1] * len(values)]


def _same(one: Any, other: Any) -> bool:
    """Equal, also where a NaN is; of one type, and zeros of one sign."""
    return repr(one) == repr(other)


def _summaries(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return [{name: part[name] for name in SUMMARY} for part in manifest["partitions"]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_merge_changes_no_field_of_any_entry_and_no_bound(tmp_path: Path, case: Case) -> None:
    lake = _lake(tmp_path, case)
    writer, dealt = Writer(lake), _dealt(_values(case))
    for batch_id, values in enumerate(dealt):
        head = writer.run(batch_id, [(None if value is None else case.encode(value),) for value in values])
        [own] = [one for one in raw_list(head) if one["added_snapshot_id"] == head.snapshot_id]
        assert _summaries(own) == [bounds(case, values)]
    before = raw_entries(lake.table(), head)
    headers = [raw(one["manifest_path"]).metadata for one in raw_list(head)]
    after = writer.run(BATCHES, [(None,)])
    listed = {one["existing_files_count"] > 0: one for one in raw_list(after)}
    assert sorted(listed) == [False, True]
    found = raw_entries(lake.table(), after)
    assert len(found) == len(before) + 1
    for path, entry in before.items():
        assert _same(found[path], entry | {"status": 0})
    merged = listed[True]
    assert _summaries(merged) == [bounds(case, [value for values in dealt for value in values])]
    assert merged["existing_rows_count"] == sum(entry["data_file"]["record_count"] for entry in before.values())
    assert merged["min_sequence_number"] == min(entry["sequence_number"] for entry in before.values())
    header = raw(merged["manifest_path"]).metadata
    assert header in headers
    [value_type] = {json.dumps(json.loads(one["avro.schema"]), sort_keys=True) for one in headers}
    assert "part" in value_type


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_recovery_changes_no_field_of_any_entry_and_no_bound(tmp_path: Path, case: Case) -> None:
    lake = _lake(tmp_path, case)
    writer, values = Writer(lake), _values(case)
    prepared = writer.prepare(0, [(None if value is None else case.encode(value),) for value in values])
    [manifest] = prepared.manifests
    written = [entry["data_file"] for entry in raw(manifest.path).records]
    recovered = parse_prepared(json.loads(json.dumps(prepared.payload)))
    assert recovered is not None
    assert matches_manifests(recovered, lake.table().io)
    head = writer.commit(0, recovered)
    [listed] = raw_list(head)
    assert _summaries(listed) == [bounds(case, values)]
    entries = raw_entries(lake.table(), head)
    assert all(_same(entries[file["file_path"]]["data_file"], file) for file in written)
    assert len(entries) == len(written) == len(values)


@pytest.mark.parametrize("case", CASES[::10], ids=lambda case: case.name)
def test_a_record_with_another_bound_than_its_manifest_is_not_believed(tmp_path: Path, case: Case) -> None:
    lake = _lake(tmp_path, case)
    prepared = Writer(lake).prepare(0, [(None,)])
    [manifest] = prepared.manifests
    [summary] = manifest.partitions
    for place, value in ((0, False), (2, b"\x01"), (3, b"")):
        other = PartitionFieldSummary(*(value if at == place else summary[at] for at in range(4)))
        lie = replace(prepared, manifests=(replace(manifest, partitions=(other,)),))
        assert not matches_manifests(lie, lake.table().io)
