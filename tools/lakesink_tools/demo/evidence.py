"""Evidence outside Spark: the table's metadata, the files on disk, and the record of a dead driver."""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.table import Table

from lakesink_catalog.connect.catalog import EMBEDDED_NAME, connect
from lakesink_catalog.tables.locations import data_location, metadata_location
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.identity import SinkKey
from lakesink_tools.demo.place import SINK_ID, TABLE
from lakesink_tools.past.records import Record, history


@dataclass(frozen=True, slots=True)
class PreparedRecord:
    """The files that a driver had prepared when it died."""

    snapshot_id: int  # the planned snapshot of the batch
    files: frozenset[str]  # its data files, local paths


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The table and its folder at one moment. File names are local paths."""

    batches: tuple[Record, ...]  # the stream's snapshots, oldest first
    files: Mapping[int, frozenset[str]]  # live data files by the snapshot that added them
    on_disk: frozenset[str]  # data files in the table's folder, referenced or not; the sink itself never lists them

    @property
    def orphans(self) -> frozenset[str]:
        """Data files that no snapshot references."""
        return self.on_disk.difference(*self.files.values())

    def snapshots_of(self, batch_id: int) -> tuple[int, ...]:
        """The snapshots of this batch; more than one breaks the promise."""
        return tuple(record.snapshot_id for record in self.batches if record.batch_id == batch_id)


def read_facts() -> TableFacts:
    """Read the demo's table in the embedded catalog of ``LAKESINK_HOME``."""
    table = _load()
    on_disk = Path(_local(data_location(table))).rglob("*.parquet")
    return TableFacts(tuple(history(table, sink=SINK_ID)), _live_files(table), frozenset(map(str, on_disk)))


def files_as_of(snapshot_id: int | None = None) -> list[str]:
    """Data files of a snapshot, or of the newest one; they have no deletes."""
    tasks = list(_load().scan(snapshot_id=snapshot_id).plan_files())
    assert not any(task.delete_files for task in tasks)
    return sorted(_local(task.file.file_path) for task in tasks)


def read_record(batch_id: int) -> PreparedRecord:
    """The prepared record of a batch: one line with its digest, one line of JSON."""
    folder = Path(_local(metadata_location(_load()))) / SinkKey(SINK_ID).record_folder
    (path,) = folder.glob(f"{batch_id}-*.json")
    (payload,) = json.loads(path.read_text().splitlines()[1])["participants"].values()
    return PreparedRecord(payload["snapshot_id"], frozenset(_local(name) for name, _ in payload["files"]))


def _load() -> Table:
    return load_table(connect(EMBEDDED_NAME, create=False), TABLE)


def _live_files(table: Table) -> dict[int, frozenset[str]]:
    found: defaultdict[int, set[str]] = defaultdict(set)
    head = table.current_snapshot()
    for manifest in head.manifests(table.io) if head else ():
        for entry in manifest.fetch_manifest_entry(table.io):
            assert entry.snapshot_id is not None
            found[entry.snapshot_id].add(_local(entry.data_file.file_path))
    return {snapshot_id: frozenset(files) for snapshot_id, files in found.items()}


def _local(location: str) -> str:
    return location.removeprefix("file://")
