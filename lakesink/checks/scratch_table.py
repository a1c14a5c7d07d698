"""A table of our own in somebody's catalog: made to ask the catalog something, and removed by exact name."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from lakesink_catalog.tables.tables import create_table
from lakesink_protocol.redact import describe

_NAME = "scratch"


@dataclass(slots=True)
class ScratchTable:
    """A table of our own, in a namespace of our own: made, asked, and dropped by exact name.

    Attributes:
        catalog: Where.
        prefix: How the namespace begins: says who made it.
        namespace: A name that nobody else has.
        table: The table as it was made; None before that.
    """

    catalog: Catalog
    prefix: str
    namespace: str = field(init=False)
    table: Table | None = None

    def __post_init__(self) -> None:
        self.namespace = self.prefix + uuid.uuid4().hex

    @property
    def name(self) -> str:
        """Identifier of the table."""
        return f"{self.namespace}.{_NAME}"

    def create(self) -> Table:
        """Make namespace and table.

        Raises:
            CatalogError: One of them cannot be made.
        """
        self.table = create_table(self.catalog, self.name, pa.schema([("id", pa.int64())]))
        return self.table

    @property
    def folder(self) -> str | None:
        """The folder that is the namespace's alone, for the caller to delete; None if a service owns the files."""
        if self.table is None or not isinstance(self.catalog, MetastoreCatalog):
            return None
        before, found, after = self.table.location().rpartition(self.namespace)
        return before + found + after.partition("/")[0] if found else None

    def drop(self) -> list[str]:
        """Drop table and namespace; returns what could not be dropped, and why."""
        owned = isinstance(self.catalog, MetastoreCatalog)
        drop_table = self.catalog.drop_table if owned else self.catalog.purge_table
        left: list[str] = []
        if self.table is not None:
            self._try(f"table {self.name}", lambda: drop_table(self.name), left)
        self._try(f"namespace {self.namespace}", lambda: self.catalog.drop_namespace(self.namespace), left)
        return left

    def _try(self, what: str, call: Callable[[], Any], left: list[str]) -> None:
        try:
            call()
        except (NoSuchNamespaceError, NoSuchTableError):
            return
        except Exception as error:  # noqa: BLE001 - what stays behind is told, whatever kept it
            left.append(f"{what} ({describe(error, self.catalog.properties)})")
