"""A scratch table in a user's catalog, created for tests of the catalog, and removed by its exact name."""

import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from lakesink.writer.filesystem import open_filesystem, shareable_properties
from lakesink_catalog.tables.tables import create_table
from lakesink_protocol.redact import describe


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
        return f"{self.namespace}.scratch"

    def create(self) -> Table:
        """Create namespace and table."""
        self.table = create_table(self.catalog, self.name, pa.schema([("id", pa.int64())]))
        return self.table

    def remove(self) -> list[str]:
        """Remove table, namespace and folder; returns what is left, and why. May be called again."""
        owned = isinstance(self.catalog, MetastoreCatalog)  # else a service owns the files
        drop_table = self.catalog.drop_table if owned else self.catalog.purge_table
        left: list[str] = []
        if self.table is not None:
            self._try(f"table {self.name}", lambda: drop_table(self.name), left)
        self._try(f"namespace {self.namespace}", lambda: self.catalog.drop_namespace(self.namespace), left)
        if self.table is not None and owned:
            before, found, after = self.table.location().rpartition(self.namespace)
            folder = before + found + after.partition("/")[0]  # the folder of this namespace only
            if found:
                self._try(f"folder {folder}", lambda: self._delete(folder), left)
        return left

    def _delete(self, folder: str) -> None:
        assert self.table is not None
        properties = shareable_properties(self.table.io.properties)
        filesystem, path_of = open_filesystem(folder, properties, self.catalog.name)
        with suppress(FileNotFoundError):
            filesystem.delete_dir(path_of(folder))

    def _try(self, what: str, call: Callable[[], Any], left: list[str]) -> None:
        try:
            call()
        except (NoSuchNamespaceError, NoSuchTableError):
            return
        except Exception as error:  # noqa: BLE001 - what stays behind is told, whatever kept it
            left.append(f"{what} ({describe(error, self.catalog.properties)})")
