"""Actions of others on a table: append, roll back, expire like two libraries, rewrite, replace."""

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)
from sqlalchemy import text

from lakesink_protocol.identity import MAIN_BRANCH
from testkit.builders import ROWS, Lake, parquet_files

FOREIGN_BATCH = -1


def change(lake: Lake, *updates: TableUpdate) -> None:
    """A commit without assertions, as an operator's command makes it."""
    lake.catalog.commit_table(lake.table(), (), updates)


def append_foreign(lake: Lake, branch: str = MAIN_BRANCH) -> "Counter[tuple[int, int]]":
    """Append a row of another writer."""
    table = lake.table()
    row = (FOREIGN_BATCH, len(table.metadata.snapshots))
    table.append(pa.Table.from_pylist([dict(zip(ROWS.names, (*row, 0), strict=True))], schema=ROWS), branch=branch)
    return Counter([row])


def rewrite(lake: Lake) -> None:
    """Write all rows into new files, like a compaction."""
    lake.table().overwrite(lake.table().scan().to_arrow())


def branch_off(lake: Lake, branch: str, snapshot_id: int | None = None) -> None:
    lake.table().manage_snapshots().create_branch(snapshot_id or lake.head().snapshot_id, branch).commit()


def roll_back(lake: Lake, snapshot_id: int, branch: str = MAIN_BRANCH) -> None:
    change(
        lake,
        SetSnapshotRefUpdate(
            ref_name=branch,
            type=SnapshotRefType.BRANCH,
            snapshot_id=snapshot_id,
            max_ref_age_ms=None,
            max_snapshot_age_ms=None,
            min_snapshots_to_keep=None,
        ),
    )


def remove_ref(lake: Lake, ref: str) -> None:
    change(lake, RemoveSnapshotRefUpdate(ref_name=ref))


def set_property(lake: Lake, name: str, value: str | None) -> None:
    if value is None:
        change(lake, RemovePropertiesUpdate(removals=[name]))
    else:
        change(lake, SetPropertiesUpdate(updates={name: value}))


def expirable(lake: Lake) -> list[int]:
    """Snapshots without a branch or a tag."""
    metadata = lake.table().metadata
    held = {ref.snapshot_id for ref in metadata.refs.values()}
    return [snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.snapshot_id not in held]


def expire(lake: Lake, snapshot_ids: Iterable[int] | None = None) -> None:
    """Expire like PyIceberg: children of expired snapshots lose their parent id."""
    ids = expirable(lake) if snapshot_ids is None else list(snapshot_ids)
    if ids:
        change(lake, RemoveSnapshotsUpdate(snapshot_ids=ids))


def expire_like_java(lake: Lake, snapshot_ids: Iterable[int] | None = None) -> None:
    """Expire like Iceberg's Java library: children keep the id of an expired parent."""
    gone = set(expirable(lake) if snapshot_ids is None else snapshot_ids)

    def without(metadata: dict[str, Any]) -> None:
        for name in ("snapshots", "snapshot-log"):
            metadata[name] = [part for part in metadata[name] if part["snapshot-id"] not in gone]

    edit_metadata(lake, without)


def upgrade(lake: Lake) -> None:
    """To format version 3, which PyIceberg reads and does not write."""
    edit_metadata(lake, lambda metadata: metadata.update({"format-version": 3, "next-row-id": 0}))


def edit_metadata(lake: Lake, edit: Callable[[dict[str, Any]], object]) -> None:
    """Changes that other engines can make, but not PyIceberg: writes new metadata and sets the catalog's reference."""
    table = lake.table()
    before = table.metadata_location
    metadata = json.loads(Path(urlsplit(before).path).read_text())
    kept = int(metadata["properties"].get("write.metadata.previous-versions-max", "100"))
    entry = {"metadata-file": before, "timestamp-ms": metadata["last-updated-ms"]}
    metadata["metadata-log"] = [*metadata.get("metadata-log", []), entry][-kept:]
    edit(metadata)
    folder, _, name = before.rpartition("/")
    after = f"{folder}/{name.partition('-')[0]}-{uuid.uuid4()}.metadata.json"
    Path(urlsplit(after).path).write_text(json.dumps(metadata))
    with lake.catalog.engine.begin() as connection:
        connection.execute(
            text("UPDATE iceberg_tables SET metadata_location = :new WHERE metadata_location = :old"),
            {"new": after, "old": before},
        )


def unreachable(lake: Lake) -> set[Path]:
    """Data files that no snapshot references."""
    table = lake.table()
    reachable = {
        Path(urlsplit(entry.data_file.file_path).path)
        for snapshot in table.metadata.snapshots
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    }
    return parquet_files(lake) - reachable


def sweep(lake: Lake) -> set[Path]:
    """Delete unreferenced files like an orphan cleanup; returns them."""
    orphans = unreachable(lake)
    for path in orphans:
        path.unlink()
    return orphans


def replace_table(lake: Lake, *keep_properties: str) -> None:
    """Drop the table, and recreate it under its name and at its location."""
    kept = {name: value for name, value in lake.table().properties.items() if name in keep_properties}
    lake.catalog.drop_table(lake.name)
    lake.create(properties=kept)
