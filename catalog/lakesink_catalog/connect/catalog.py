"""Finds and opens the catalog: PyIceberg's own configuration, else the embedded one. No secret is ever printed.

The embedded catalog needs no server: it is a SQLite file and a warehouse folder under ``LAKESINK_HOME``, or
``./lakehouse``. Other engines must use its name, `EMBEDDED_NAME`, because SQL catalogs store the name in their rows.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.utils.config import Config, merge_config
from sqlalchemy import URL

from lakesink_catalog.connect.catalog_failures import translated
from lakesink_catalog.connect.kinds import CODE_PROPERTY, kind_of, normalized, open_catalog, sqlite_file
from lakesink_protocol.errors import CatalogError, SettingsError
from lakesink_protocol.redact import redact
from lakesink_protocol.suggest import did_you_mean

EMBEDDED_NAME = "lakehouse"
HOME_VARIABLE = "LAKESINK_HOME"


@dataclass(frozen=True, slots=True, repr=False)
class CatalogConfig:
    """A catalog as the user configured it. Its `repr` shows no secret; its properties may hold some.

    Attributes:
        name: A catalog of PyIceberg's configuration, or `EMBEDDED_NAME`; None means the configured default, else the
            embedded catalog.
        properties: Properties that are added to the configured ones and override them.
    """

    name: str | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)

    def find(self) -> "FoundCatalog":
        """Find the catalog without opening it. Environment and working folder are read once, by this call.

        Raises:
            CatalogError: The catalog is not configured, or lakesink does not support its kind.
        """
        given = dict(self.properties)
        config = translated("PyIceberg's configuration", given, Config)
        chosen = self.name or config.get_default_catalog_name()
        configured = translated("PyIceberg's configuration", given, lambda: config.get_catalog_config(chosen))
        merged: dict[str, Any] = dict(merge_config(configured or {}, given))
        if configured is None and not merged.keys() & {"uri", "type", CODE_PROPERTY}:
            if self.name != EMBEDDED_NAME and (self.name or "default-catalog" in config.config):
                near = did_you_mean(chosen, [*config.get_known_catalogs(), EMBEDDED_NAME])
                raise CatalogError.of("CATALOG_UNKNOWN", name=chosen, near=near, variable=chosen.upper())
            home = embedded_home()
            uri = URL.create("sqlite", database=str(home / "catalog.db")).render_as_string(hide_password=False)
            own = {"type": "sql", "uri": uri, "warehouse": f"file://{home / 'warehouse'}"}
            return FoundCatalog(EMBEDDED_NAME, normalized(EMBEDDED_NAME, "sql", own | merged), home)
        if CODE_PROPERTY in given:
            return FoundCatalog(chosen, given)
        if CODE_PROPERTY in merged:
            raise CatalogError.of("CATALOG_UNSUPPORTED.names_code", name=chosen)
        named = f"The catalog {chosen!r}"
        settled = translated(named, merged, lambda: normalized(chosen, kind_of(chosen, merged), merged))
        return FoundCatalog(chosen, settled)

    def open(self, *, create: bool = True) -> Catalog:
        """Find the catalog and connect, see `FoundCatalog.open`."""
        return self.find().open(create=create)

    def __repr__(self) -> str:
        return f"CatalogConfig(name={self.name!r}, properties={redact(self.properties)!r})"


@dataclass(frozen=True, slots=True, repr=False)
class FoundCatalog:
    """A catalog that was found and is not opened yet: the same catalog from any folder and thread.

    Attributes:
        name: Name of the catalog; SQL catalogs store it in their rows.
        properties: PyIceberg's properties, with absolute local paths.
        home: Folder of the embedded catalog; None for any other catalog.
    """

    name: str
    properties: Mapping[str, Any]
    home: Path | None = None

    @property
    def uri(self) -> str:
        """The catalog's address without secrets; empty if it has none."""
        return redact(str(self.properties.get("uri") or ""), self.properties)

    @property
    def where(self) -> str:
        """The catalog's place, for messages."""
        if self.home is not None:
            return f"The embedded catalog in {self.home}"
        uri = self.uri.partition("?")[0]
        return f"The catalog {self.name!r}" + (f" at {uri}" if uri else "")

    def open(self, *, create: bool = True) -> Catalog:
        """Connect.

        Args:
            create: False to open only an existing catalog; otherwise the embedded catalog or a SQLite file is created.

        Raises:
            CatalogError: The catalog is unreachable, rejects the credentials, lacks a package, or does not exist.
        """
        file = sqlite_file(self.properties)
        if not create and file is not None and not Path(file).exists():
            raise CatalogError.of("CATALOG_MISSING", where=self.where)
        if self.home is not None and create:
            warehouse = self.home / "warehouse"
            translated(self.where, self.properties, lambda: warehouse.mkdir(parents=True, exist_ok=True))
        return translated(self.where, self.properties, lambda: open_catalog(self.name, self.properties))

    def __repr__(self) -> str:
        return f"FoundCatalog(name={self.name!r}, properties={redact(self.properties)!r}, home={self.home!r})"


def connect(name: str | None = None, properties: Mapping[str, Any] | None = None, *, create: bool = True) -> Catalog:
    """Find and open a catalog, see `CatalogConfig`."""
    return CatalogConfig(name, properties or {}).open(create=create)


def embedded_home() -> Path:
    """The absolute folder of the embedded catalog, for the environment and working folder of this process.

    Raises:
        SettingsError: `HOME_VARIABLE` is not a local folder's path.
    """
    text = os.environ.get(HOME_VARIABLE) or EMBEDDED_NAME
    if "://" in text or any(char in "?#;" or not char.isprintable() for char in text):
        raise SettingsError.of("SETTING_INVALID.home", text=redact(text))
    return Path(os.path.abspath(Path(text).expanduser()))  # noqa: PTH100 - Path.resolve would follow links
