"""Finding and opening the catalog: PyIceberg's own configuration, else the embedded one. No secret is ever printed.

The embedded catalog needs no server: a SQLite file and a warehouse folder under ``LAKESINK_HOME``, or ``./lakehouse``.
Its name is `EMBEDDED_NAME`; other engines must use that name, for SQL catalogs keep it in their rows.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.utils.config import Config, merge_config
from sqlalchemy import URL

from lakesink_catalog.catalog_errors import NOTHING_CHANGED, translated
from lakesink_catalog.catalog_kinds import CODE_PROPERTY, kind_of, open_catalog, settled, sqlite_file
from lakesink_catalog.errors import CatalogError, SettingsError
from lakesink_catalog.nearest import did_you_mean
from lakesink_catalog.redact import redact

EMBEDDED_NAME = "lakehouse"
HOME_VARIABLE = "LAKESINK_HOME"
MAX_NAME_LENGTH = 255
_FORBIDDEN_IN_NAMES = frozenset("*?'\"`/\\#;:%<>|")


@dataclass(frozen=True, slots=True, repr=False)
class CatalogConfig:
    """A catalog that has been found, not yet opened. Its `repr` shows no secret; its properties may hold some.

    Attributes:
        name: Name of the catalog; SQL catalogs keep it in their rows.
        properties: PyIceberg's properties, with local paths absolute.
        home: Folder of the embedded catalog; None for any other.
    """

    name: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    home: Path | None = None

    @classmethod
    def resolve(cls, name: str | None = None, properties: Mapping[str, str] | None = None) -> "CatalogConfig":
        """Find the catalog without opening it; reads environment and working folder now, once.

        Args:
            name: A catalog of PyIceberg's configuration, or `EMBEDDED_NAME`; None takes the configured default, else
                the embedded catalog.
            properties: Added to the configured ones, and above them.

        Raises:
            CatalogError: Not configured, or of a kind that lakesink does not open.
        """
        given = dict(properties or {})
        config = translated("PyIceberg's configuration", given, Config)
        chosen = name or config.get_default_catalog_name()
        configured = translated("PyIceberg's configuration", given, lambda: config.get_catalog_config(chosen))
        merged: dict[str, Any] = dict(merge_config(configured or {}, given))  # type: ignore[arg-type] # invariant dict
        if configured is None and not merged.keys() & {"uri", "type", CODE_PROPERTY}:
            if name != EMBEDDED_NAME and (name or "default-catalog" in config.config):
                raise _unknown(chosen, config.get_known_catalogs())
            return cls._embedded(merged)
        return cls._configured(chosen, merged, given)

    @classmethod
    def _configured(cls, name: str, properties: dict[str, Any], given: Mapping[str, str]) -> "CatalogConfig":
        if CODE_PROPERTY in given:
            return cls(name, dict(given))
        if CODE_PROPERTY in properties:
            raise _names_code(name)
        settle = partial(_settled, name, properties)
        return cls(name, translated(f"The catalog {name!r}", properties, settle))

    @classmethod
    def _embedded(cls, properties: Mapping[str, Any]) -> "CatalogConfig":
        home = _embedded_home()
        uri = URL.create("sqlite", database=str(home / "catalog.db")).render_as_string(hide_password=False)
        own = {"type": "sql", "uri": uri, "warehouse": f"file://{home / 'warehouse'}"}
        return cls(EMBEDDED_NAME, settled("sql", own | dict(properties)), home)

    @property
    def where(self) -> str:
        """The catalog in words, for messages."""
        if self.home is not None:
            return f"The embedded catalog in {self.home}"
        uri = redact(str(self.properties.get("uri") or "")).partition("?")[0]
        return f"The catalog {self.name!r}" + (f" at {uri}" if uri else "")

    def open(self, *, create: bool = True) -> Catalog:
        """Connect.

        Args:
            create: False to open only what is there: the embedded catalog and SQLite files are made otherwise.

        Raises:
            CatalogError: Unreachable, rejected, not installed, or not there.
        """
        file = sqlite_file(self.properties)
        if not create and file is not None and not Path(file).exists():
            raise _absent(self)
        if self.home is not None and create:
            warehouse = self.home / "warehouse"
            translated(self.where, self.properties, lambda: warehouse.mkdir(parents=True, exist_ok=True))
        return translated(self.where, self.properties, lambda: open_catalog(self.name, self.properties))

    def __repr__(self) -> str:
        return f"CatalogConfig(name={self.name!r}, properties={redact(self.properties)!r})"


def connect(name: str | None = None, properties: Mapping[str, str] | None = None, *, create: bool = True) -> Catalog:
    """Find and open a catalog: `CatalogConfig.resolve`, then `CatalogConfig.open`."""
    return CatalogConfig.resolve(name, properties).open(create=create)


def load_table(catalog: Catalog, identifier: str) -> Table:
    """Load a table afresh.

    Args:
        catalog: As `connect` returned it.
        identifier: ``namespace.table``; namespaces may nest.

    Raises:
        SettingsError: The identifier is malformed.
        CatalogError: ``TABLE_MISSING`` with the nearest name, or the catalog failed.
    """
    parts = parse_identifier(identifier)
    with suppress(NoSuchTableError, NoSuchNamespaceError):
        return translated(f"The catalog {catalog.name!r}", catalog.properties, lambda: catalog.load_table(parts))
    raise CatalogError(
        "TABLE_MISSING",
        f"There is no table {identifier} in the catalog {catalog.name!r}.",
        data=NOTHING_CHANGED,
        action=f"Correct the name or the option catalog, or let the stream create it: create_table=True."
        f"{_near(catalog, parts)}",
    )


def parse_identifier(text: str) -> tuple[str, ...]:
    """The parts of ``namespace.table``: at least two, none empty, no wildcards, quotes, slashes or control characters.

    Raises:
        SettingsError: Malformed.
    """
    parts = tuple(text.split("."))
    if len(parts) < 2:
        raise _malformed(text, "it needs a namespace")
    for part in parts:
        if not part or part != part.strip():
            raise _malformed(text, "a part is empty or padded with blanks")
        if len(part) > MAX_NAME_LENGTH:
            raise _malformed(text, f"a part is longer than {MAX_NAME_LENGTH} characters")
        bad = next((char for char in part if char in _FORBIDDEN_IN_NAMES or not char.isprintable()), None)
        if bad is not None:
            raise _malformed(text, f"it must not contain {bad!r}")
    return parts


def _settled(name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    return settled(kind_of(name, properties), properties)


def _embedded_home() -> Path:
    text = os.environ.get(HOME_VARIABLE) or EMBEDDED_NAME
    if "://" in text or any(char in "?#;" or not char.isprintable() for char in text):
        raise SettingsError(
            "SETTING_INVALID",
            f"{HOME_VARIABLE} is {redact(text)!r}, which is not the plain path of a local folder.",
            data=NOTHING_CHANGED,
            action="Name a local folder without ? # ; in its path, or configure a catalog for other storage.",
        )
    return Path(os.path.abspath(Path(text).expanduser()))  # noqa: PTH100 - Path.resolve would follow links


def _near(catalog: Catalog, parts: tuple[str, ...]) -> str:
    with suppress(Exception):  # a hint must not hide the error it decorates
        tables = [".".join(found) for found in catalog.list_tables(parts[:-1])]
        if tables:
            return f" {did_you_mean('.'.join(parts), tables)}"
    with suppress(Exception):
        namespaces = [".".join(found) for found in catalog.list_namespaces()]
        return f" Namespaces there: {', '.join(sorted(namespaces)[:20]) or 'none'}."
    return ""


def _unknown(name: str, known: list[str]) -> CatalogError:
    return CatalogError(
        "CATALOG_UNKNOWN",
        f"The catalog {name!r} is not in PyIceberg's configuration.",
        data=NOTHING_CHANGED,
        action=f"{did_you_mean(name, [*known, EMBEDDED_NAME])} Configure it in ~/.pyiceberg.yaml or by"
        f" PYICEBERG_CATALOG__{name.upper()}__URI; without a name, the embedded catalog is used.",
    )


def _names_code(name: str) -> CatalogError:
    return CatalogError(
        "CATALOG_UNSUPPORTED",
        f"The configuration of the catalog {name!r} names a Python class ({CODE_PROPERTY}).",
        data=NOTHING_CHANGED,
        action=f"Pass {CODE_PROPERTY} in catalog_properties from your own code if you trust that class.",
    )


def _absent(config: CatalogConfig) -> CatalogError:
    return CatalogError(
        "CATALOG_MISSING",
        f"{config.where} does not exist.",
        data=NOTHING_CHANGED,
        action=f"Run this in the folder where the stream was started, set {HOME_VARIABLE}, or name a catalog.",
    )


def _malformed(text: str, why: str) -> SettingsError:
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    return SettingsError(
        "TABLE_NAME_INVALID",
        f"{shown!r} is not a table name: {why}.",
        data=NOTHING_CHANGED,
        action="Write namespace.table, for example demo.events.",
    )
