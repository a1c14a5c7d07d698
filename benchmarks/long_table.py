"""A table with a long history, made fast: real data files, manifests and lists, and all of its snapshots in one go.

Committing ten thousand batches one by one would rewrite the growing metadata file ten thousand times. Here each batch
gets what a commit writes, by the code that commits, and the metadata file is written once at the end.
"""

import json
import random
import shutil
import struct
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from sqlalchemy import text

from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.batch_plan import task_plan
from lakesink_catalog.commit.premises import premises_of
from lakesink_catalog.commit.prepared import SNAPSHOT_IDS, PreparedBatch
from lakesink_catalog.commit.table_change import Change
from lakesink_catalog.manifests.lists import write_list
from lakesink_catalog.manifests.merging import ManifestMerger, MergeMemory, MergePolicy
from lakesink_catalog.manifests.write import UNASSIGNED_SEQUENCE, write_batch_manifests
from lakesink_catalog.tables.tables import create_table
from lakesink_protocol.change import ContentFile
from lakesink_protocol.identity import SinkKey, stream_batch
from lakesink_protocol.ledger import Mark, next_entry, stated_of
from testkit.tasks import write

KEY = SinkKey("bench")
TABLE = "bench.history"
START_MS = 1_700_000_000_000
STEP_MS = 10_000
ROWS = pa.RecordBatch.from_pydict(
    {
        "id": pa.array(range(100), pa.int64()),
        "name": pa.array([f"name {number}" for number in range(100)]),
        "at": pa.array([START_MS * 1000] * 100, pa.timestamp("us", "UTC")),
        "price": pa.array([number / 7 for number in range(100)], pa.float64()),
    }
)


def make_long_table(catalog: Catalog, batches: int) -> None:
    """Create `TABLE` with this many batches of one file each, as if a stream had committed them one after another."""
    make_long_tables(catalog, {batches: TABLE})


def make_long_tables(catalog: Catalog, names: Mapping[int, str]) -> None:
    """Create tables of one history, each with so many of its batches; they share files.

    Args:
        catalog: A SQLite one.
        names: Tables by their number of batches.
    """
    assert isinstance(catalog, SqlCatalog)
    tables = {batches: create_table(catalog, name, ROWS.schema) for batches, name in sorted(names.items())}
    longest = max(tables)
    pattern = _pattern(tables[longest])
    files = ([_copy(tables[longest], pattern, number) if number else pattern] for number in range(longest))
    snapshots = list(_snapshots(tables[longest], files, []))
    for batches, table in tables.items():
        _swap(catalog, table, snapshots[:batches])


@dataclass(frozen=True, slots=True)
class Merge:
    """One commit's part of a merge: how long it took, wall and processor, and the entries of a merge that it ended."""

    seconds: float
    cpu_seconds: float
    entries: int


def make_large_table(catalog: Catalog, schema: pa.Schema, batches: int, files: int) -> list[Merge]:
    """Create `TABLE` with this many batches of so many files, which are listed with statistics, but not there.

    Returns:
        All parts of merges.
    """
    assert isinstance(catalog, SqlCatalog)
    table, merges = create_table(catalog, TABLE, schema), list[Merge]()
    listed = (listed_files(table, batch, files) for batch in range(batches))
    _swap(catalog, table, list(_snapshots(table, listed, merges)))
    return merges


def _swap(catalog: SqlCatalog, table: Table, snapshots: list[dict[str, Any]]) -> None:
    metadata = json.loads(Path(_local(table.metadata_location)).read_text())
    _fill(metadata, snapshots)
    location = f"{table.metadata_location.rpartition('/')[0]}/00001-{uuid.uuid4()}.metadata.json"
    Path(_local(location)).write_text(json.dumps(metadata))
    swap = text("UPDATE iceberg_tables SET metadata_location = :new WHERE metadata_location = :old")
    with catalog.engine.begin() as connection:
        connection.execute(swap, {"new": location, "old": table.metadata_location})


def _snapshots(table: Table, batches: Iterable[list[ContentFile]], merges: list[Merge]) -> Iterator[dict[str, Any]]:
    carried: list[ManifestFile] = []
    parent: dict[str, Any] = {}
    memory = MergeMemory()
    for number, files in enumerate(batches):
        merged = _merged(table, number, len(files), carried, memory, merges)
        parent, carried = _snapshot(table, number, files, parent, merged)
        yield parent


def _pattern(table: Table) -> ContentFile:
    plan = task_plan(table, stream_batch(0, "query", start=None, end=[1]), KEY, Settings())
    [pattern] = write(plan, [ROWS]).files
    return pattern


def listed_files(table: Table, batch: int, files: int) -> list[ContentFile]:
    """Descriptions of files that do not exist, because nobody reads them. Each has other statistics."""
    chance = random.Random(batch)  # noqa: S311 - the same in every run
    return [_listed(table, chance, batch, number) for number in range(files)]


def _listed(table: Table, chance: random.Random, batch: int, number: int) -> ContentFile:
    rows = chance.randrange(1_000, 100_000)
    ids = [field.field_id for field in table.schema().fields]
    return ContentFile(
        path=f"{table.location()}/data/{KEY.name}-{batch}-{number:05}-{uuid.UUID(int=chance.getrandbits(128))}.parquet",
        spec_id=0,
        partition=(),
        record_count=rows,
        file_size_bytes=rows * 30 + chance.randrange(1_000),
        column_sizes={field_id: rows * 2 + chance.randrange(500) for field_id in ids},
        value_counts=dict.fromkeys(ids, rows),
        null_value_counts=dict.fromkeys(ids, 0),
        nan_value_counts={},
        lower_bounds={field_id: struct.pack("<q", chance.randrange(2**40)) for field_id in ids},
        upper_bounds={field_id: struct.pack("<q", chance.randrange(2**40, 2**41)) for field_id in ids},
        split_offsets=(4,),
    )


def _copy(table: Table, pattern: ContentFile, number: int) -> ContentFile:
    path = f"{table.location()}/data/{KEY.name}-{number}-00000-{uuid.uuid4()}.parquet"
    shutil.copyfile(_local(pattern.path), _local(path))
    return replace(pattern, path=path)


def _snapshot(
    table: Table,
    number: int,
    files: list[ContentFile],
    parent: dict[str, Any],
    merged: list[ManifestFile],
) -> tuple[dict[str, Any], list[ManifestFile]]:
    snapshot_id = _snapshot_id(number)
    prepared = _prepared(table, snapshot_id, files)
    batch = stream_batch(number, "query", start=[number] if number else None, end=[number + 1])
    manifests = [*(manifest.to_manifest_file() for manifest in prepared.manifests), *merged]
    for manifest in manifests:  # the next snapshot carries them over
        numbers = manifest.sequence_number, manifest.min_sequence_number
        manifest.sequence_number, manifest.min_sequence_number = (
            number + 1 if known == UNASSIGNED_SEQUENCE else known for known in numbers
        )
    parent_id = parent.get("snapshot-id")
    location = write_list(table, manifests, snapshot_id=snapshot_id, parent_id=parent_id, sequence_number=number + 1)
    mark = Mark(KEY, outcome="committed", accepted="", ledger_batch_id=number, **stated_of(batch))
    change = Change(KEY.branch, parent_id, snapshot_id, says={}, prepared=prepared)
    summary = change.counts(parent.get("summary")) | mark.to_summary()
    found = {
        "snapshot-id": snapshot_id,
        "sequence-number": number + 1,
        "timestamp-ms": START_MS + number * STEP_MS,
        "manifest-list": location,
        "summary": {"operation": "append", **summary},
        "schema-id": 0,
    }
    return found | ({"parent-snapshot-id": parent_id} if parent_id else {}), manifests


def _merged(
    table: Table, number: int, files: int, carried: list[ManifestFile], memory: MergeMemory, merges: list[Merge]
) -> list[ManifestFile]:
    """The manifests of the batches before, as the commit of this batch leaves them."""
    started, started_cpu = time.perf_counter(), time.process_time()
    merger = ManifestMerger(MergePolicy(), _snapshot_id(number), memory, adds=files)
    found = merger.merge(table, carried, _snapshot_id(number - 1))
    took = time.perf_counter() - started, time.process_time() - started_cpu
    if len(found) < len(carried) or memory.copy is not None:
        merges.append(Merge(*took, (found[0].existing_files_count or 0) if len(found) < len(carried) else 0))
    return found


def _snapshot_id(number: int) -> int:
    return SNAPSHOT_IDS.start + number * 7919


def _prepared(table: Table, snapshot_id: int, files: list[ContentFile]) -> PreparedBatch:
    premises = premises_of(table.metadata, 0, [0])
    assert premises is not None
    return PreparedBatch(
        table_uuid=str(table.metadata.table_uuid),
        branch="main",
        snapshot_id=snapshot_id,
        schema_id=0,
        follows=None,
        premises=premises,
        accepted="",
        manifests=write_batch_manifests(table, files, schema=table.schema(), snapshot_id=snapshot_id),
        files=tuple((file.path, file.file_size_bytes) for file in files),
        rows=sum(file.record_count for file in files),
        partitions=1,
        begun_ms=table.metadata.last_updated_ms,
        without_inputs=0,
    )


def _fill(metadata: dict[str, Any], snapshots: list[dict[str, Any]]) -> None:
    newest, count = snapshots[-1], len(snapshots)
    last = stream_batch(count - 1, "query", start=[count - 1] if count > 1 else None, end=[count])
    entry = next_entry(
        last, snapshot_id=newest["snapshot-id"], sequence_number=count, table_uuid=metadata["table-uuid"]
    )
    head = {"snapshot-id": newest["snapshot-id"]}
    metadata |= {
        "snapshots": snapshots,
        "snapshot-log": [{key: found[key] for key in ("snapshot-id", "timestamp-ms")} for found in snapshots],
        "current-snapshot-id": newest["snapshot-id"],
        "last-sequence-number": count,
        "last-updated-ms": newest["timestamp-ms"],
        "refs": {"main": head | {"type": "branch"}, KEY.ledger_tag: head | {"type": "tag"}},
        "properties": metadata["properties"] | {KEY.ledger_property: entry.to_json()},
    }


def _local(location: str) -> str:
    return location.removeprefix("file://")
