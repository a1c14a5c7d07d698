"""Where one case of one sink happens: a folder with a source, a checkpoint and a target of its own."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from proof.contest.case import Case
from proof.contest.sinks import Sink
from proof.contest.target import Target, View, seen
from proof.drivers import arrive
from proof.oracle import Rows, TableFacts, facts_of
from proof.processes.evidence import read_rows, stored

COLUMNS = "device", "reading"
DEVICES = 2
FOREIGN_DEVICE = 9
_SCHEMA = Schema(*(NestedField(at, name, LongType(), required=False) for at, name in enumerate(COLUMNS, start=1)))


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
        on_main: Rows that others have committed on ``main``, while the stream writes a branch.
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
        return Target(str(self.root), self.catalog, self.properties, self.table, self.case.branch, self.case.branch_by)

    @property
    def checkpoint(self) -> Path:
        """Of the stream."""
        return Path(self.target.checkpoint)

    @property
    def source(self) -> Path:
        """Folder of the source."""
        return self.root / "source"

    def create(self, *, with_table: bool = True) -> None:
        """The source, and perhaps the table, with the branch of the case off one row on main."""
        self.source.mkdir(parents=True)
        if not with_table:
            return
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

    def view(self, sink: Sink) -> View:
        """What a reader sees of the target now."""
        if sink.view is not None:
            return sink.view(self.target)
        return seen(rows_in(facts_of(self.load(), sink.name, self.case.branch)).elements())

    def batch(self, file: int) -> Rows:
        """Rows of one file of the source: half of them from either device."""
        each = self.case.rows // DEVICES
        return Counter((device, file * each + row) for row in range(each) for device in range(DEVICES))

    def arrive(self, files: Iterable[int]) -> None:
        """Files come whole, and with growing times, so that Spark takes them in this order."""
        for file in files:
            rows = self.batch(file)
            arrive(self.source, file, (dict(zip(COLUMNS, row, strict=True)) for row in rows))
            self.sent += rows

    def unlog(self) -> None:
        """Take the newest entry from Spark's commit log."""
        entries = [path for path in (self.checkpoint / "commits").iterdir() if path.name.isdecimal()]
        newest = max(entries, key=lambda path: int(path.name))
        newest.unlink()
        (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)

    def others_append(self) -> None:
        """Another writer commits a row on the stream's branch."""
        self.foreign += self._append(self.load(), self.case.branch)

    def main_moves(self) -> None:
        """Another writer commits a row on main."""
        self.on_main += self._append(self.load(), "main")

    def _connect(self) -> Catalog:
        return load_catalog(self.catalog, **self.direct)

    def _append(self, table: Table, branch: str) -> Rows:
        row = FOREIGN_DEVICE, len(table.metadata.snapshots)
        columns = {name: pa.array([value], pa.int64()) for name, value in zip(COLUMNS, row, strict=True)}
        table.append(pa.table(columns), branch=branch)
        return Counter([row])


def rows_in(facts: TableFacts) -> Rows:
    """Rows of the files of a branch that are there."""
    return read_rows([file.path for file in facts.files if stored(file.path) is not None], COLUMNS)
