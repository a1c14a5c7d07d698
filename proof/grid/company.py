"""Others at work on the table of a cell: a foreign writer, and whoever expires snapshots."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.update import RemoveSnapshotsUpdate

from lakesink.rows.letters import LETTERS, SUFFIX
from lakesink_catalog.tables.tables import create_table, load_table
from proof.content import CHANGES, PLAIN, Content
from proof.grid.cells import Company
from proof.keyed_table import SCHEMA, SIZED, make_keyed_table
from proof.oracle import Rows
from testkit import maintenance
from testkit.builders import FaultyCatalog, Lake

FOREIGN_PARTITION = -1
FIRST_FOREIGN_KEY = 1_000
"""Others insert rows of keys that the stream does not have: the simulator has the rest."""
FEW_RETRIES = {
    "commit.retry.num-retries": "4",
    "commit.retry.min-wait-ms": "10",
    "commit.retry.max-wait-ms": "50",
}
"""A driver whose every attempt fails shall give up while one can wait for it."""


@dataclass(frozen=True, slots=True)
class OneTable(Lake):
    """The table of a cell, as the project's own maintenance wants it.

    Attributes:
        name: Of the table.
    """

    name: str = ""

    def table(self) -> Table:
        return self.catalog.load_table(self.name)


@dataclass(slots=True)
class Others:
    """Whoever else is there.

    Attributes:
        company: Who.
        catalog: Their own way to the catalog.
        database: The SQLite file under the catalog, opened as PyIceberg's SQL catalog.
        table: Table identifier.
        rows: What they have written.
        over_rest: True if the catalog is a Java server, which expires as Java does.
        content: The rows of the stream.
    """

    company: Company
    catalog: Catalog
    database: FaultyCatalog
    table: str
    over_rest: bool
    rows: Rows = field(default_factory=Counter)
    content: Content = PLAIN

    def make_table(self) -> None:
        """Before the first driver; nobody but the stream makes the table if it is alone in its first batch.

        Documents have a table of dead letters too.
        """
        if self.content.changing is not None:
            make_keyed_table(self.catalog, self.table, FEW_RETRIES, SIZED if self.content.has_features else SCHEMA)
        else:
            create_table(self.catalog, self.table, self.content.table, None, FEW_RETRIES)
        if self.content.aside_every:
            create_table(self.catalog, f"{self.table}{SUFFIX}", LETTERS, None, FEW_RETRIES)
        if self.company is not Company.ALONE:
            self._append()

    def act(self) -> None:
        """What they do at the moment of the fault."""
        if self.company is Company.ALONE:
            return
        self._append()
        if self.company is Company.JAVA_EXPIRY:
            self._expire_as_java()
        if self.company is Company.PYICEBERG_EXPIRY:
            maintenance.expire(self._lake())

    def _append(self) -> None:
        row = (FOREIGN_PARTITION, sum(self.rows.values()))
        table = load_table(self.catalog, self.table)
        values: tuple[int, ...] = row
        if self.content.changing is not None:
            values = (*row, FIRST_FOREIGN_KEY + row[1], 0, 0)
        found = dict(zip(CHANGES.names, values, strict=False))  # whose first columns plain rows have
        table.append(pa.Table.from_pylist([found], schema=table.schema().as_arrow()))
        self.rows[row] += 1

    def _expire_as_java(self) -> None:
        if not self.over_rest:
            maintenance.expire_like_java(self._lake())
            return
        ids = maintenance.expirable(self._lake())
        if ids:
            table = load_table(self.catalog, self.table)
            self.catalog.commit_table(table, (), (RemoveSnapshotsUpdate(snapshot_ids=ids),))

    def _lake(self) -> OneTable:
        return OneTable(Path(), self.database, self.table)
