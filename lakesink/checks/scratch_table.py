"""A scratch table in a user's catalog, created for tests of the catalog, and removed by its exact name."""

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
    """A scratch table in a namespace of its own."""

    catalog: Catalog
    prefix: str  # first part of the namespace's name; it names the creator
    namespace: str = field(init=False)  # unique
    table: Table | None = None  # None before `create`

    def __post_init__(self) -> None:
        self.namespace = self.prefix + uuid.uuid4().hex

    @property
    def name(self) -> str:
        """Identifier of the table."""
        return f"{self.namespace}.{_NAME}"

    def create(self) -> Table:
        """Create namespace and table."""
        self.table = create_table(self.catalog, self.name, pa.schema([("id", pa.int64())]))
        return self.table

    @property
    def folder(self) -> str | None:
        """The folder of this namespace only, for the caller to delete; None if a service owns the files."""
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
