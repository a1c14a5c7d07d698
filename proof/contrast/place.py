"""Where one case of one sink happens: a folder with a source, a checkpoint and a table of its own."""

import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import RemoveSnapshotsUpdate
from pyiceberg.types import LongType, NestedField

from proof.contrast.cases import Case
from proof.contrast.sinks import Target
from proof.drivers import arrive, source_file
from proof.oracle import Rows

ROWS_PER_FILE = 100
PARTITIONS = 2
FOREIGN_PARTITION = 9
_SCHEMA = Schema(
    NestedField(1, "partition", LongType(), required=False), NestedField(2, "offset", LongType(), required=False)
)


def rows_of(files: Iterable[int]) -> Rows:
    """Rows of files of the source: half of each from either partition."""
    each = ROWS_PER_FILE // PARTITIONS
    return Counter(
        (partition, file * each + row) for file in files for partition in range(PARTITIONS) for row in range(each)
    )


@dataclass(slots=True)
class Place:
    """One case of one sink.

    Attributes:
        root: A folder of its own.
        case: The case.
        properties: Of the catalog as the sink reaches it.
        direct: Of the catalog as everybody else reaches it.
        catalog: Name of the catalog.
        table: Identifier.
        sent: Rows that arrived at the source so far.
        foreign: Rows that others have committed on the stream's branch.
    """

    root: Path
    case: Case
    properties: Mapping[str, str]
    direct: Mapping[str, str]
    catalog: str
    table: str
    sent: Rows = field(default_factory=Counter)
    foreign: Rows = field(default_factory=Counter)
    on_main: Rows = field(default_factory=Counter)

    @property
    def target(self) -> Target:
        """Where the stream goes."""
        checkpoint = str(self.checkpoint)
        return Target(self.catalog, self.properties, self.table, checkpoint, self.case.branch, self.case.branch_by)

    @property
    def checkpoint(self) -> Path:
        """Of the stream."""
        return self.root / "checkpoint"

    @property
    def source(self) -> Path:
        """Folder of the source."""
        return self.root / "source"

    def create(self) -> None:
        """The table, with the branch of the case off one row on main."""
        self.source.mkdir(parents=True)
        catalog = self._connect()
        catalog.create_namespace_if_not_exists(self.table.partition(".")[0])
        staged = self.case.wap_id or self.case.branch != "main"
        table = catalog.create_table(self.table, _SCHEMA, properties={"write.wap.enabled": "true"} if staged else {})
        if self.case.branch != "main":
            row = self._append(table, "main")
            head = self.load().current_snapshot()
            assert head is not None
            table.manage_snapshots().create_branch(head.snapshot_id, self.case.branch).commit()
            self.foreign += row
            self.on_main += row

    def load(self) -> Table:
        """The table as it is now."""
        return self._connect().load_table(self.table)

    def namesake(self) -> Table | None:
        """A table that is called like the branch in the table, if somebody has made it."""
        name = f"{self.table}.branch_{self.case.branch}"
        catalog = self._connect()
        return catalog.load_table(name) if catalog.table_exists(name) else None

    def arrive(self, files: Iterable[int]) -> None:
        """Files come whole, and with growing times, so that Spark takes them in this order."""
        for file in files:
            rows = rows_of([file])
            arrive(self.source, file, ({"partition": at, "offset": row} for at, row in sorted(rows)))
            self.sent += rows

    def tidy_up(self, files: Iterable[int]) -> None:
        """Files are removed; what was in them has been sent."""
        for file in files:
            source_file(self.source, file).unlink()

    def unlog(self) -> None:
        """Take the newest entry from Spark's commit log."""
        entries = [path for path in (self.checkpoint / "commits").iterdir() if path.name.isdecimal()]
        newest = max(entries, key=lambda path: int(path.name))
        newest.unlink()
        (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)

    def back_up(self) -> None:
        """Copy the checkpoint."""
        shutil.copytree(self.checkpoint, self.root / "backup")

    def restore(self) -> None:
        """Put the copy in the checkpoint's place."""
        self.lose_checkpoint()
        (self.root / "backup").rename(self.checkpoint)

    def lose_checkpoint(self) -> None:
        """Remove the checkpoint."""
        shutil.rmtree(self.checkpoint)

    def others_append(self) -> None:
        """A row on the stream's branch."""
        self.foreign += self._append(self.load(), self.case.branch)

    def main_moves(self) -> None:
        """A row on main."""
        self.on_main += self._append(self.load(), "main")

    def expire(self) -> None:
        """All snapshots that nothing holds."""
        metadata = self.load().metadata
        held = {ref.snapshot_id for ref in metadata.refs.values()}
        gone = [snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.snapshot_id not in held]
        if gone:
            self._connect().commit_table(self.load(), (), (RemoveSnapshotsUpdate(snapshot_ids=gone),))

    def _connect(self) -> Catalog:
        return load_catalog(self.catalog, **self.direct)

    def _append(self, table: Table, branch: str) -> Rows:
        row = {"partition": FOREIGN_PARTITION, "offset": len(table.metadata.snapshots)}
        table.append(pa.Table.from_pylist([row], schema=pa.schema([(name, pa.int64()) for name in row])), branch=branch)
        return Counter([(row["partition"], row["offset"])])
