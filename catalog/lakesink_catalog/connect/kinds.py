"""The kinds of catalog that lakesink opens, with bounded waits and without code that a table names."""

import importlib.util
import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from sqlalchemy import URL, create_engine, make_url
from sqlalchemy.pool import QueuePool

from lakesink_catalog.connect.catalog_failures import is_hive_4
from lakesink_catalog.connect.sql_waits import bound_waits
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.suggest import did_you_mean

CODE_PROPERTY = "py-catalog-impl"
_IO_PROPERTY = "py-io-impl"
_LOCATION_PROVIDER_PROPERTY = "write.py-location-provider.impl"
_BUSY_SECONDS = 30
_NO_TABLE = ("default", "lakesink_asks_for_no_table")
_MEMORY_URI = f"sqlite:///file:/lakesink-{{}}?vfs=memdb&uri=true&timeout={_BUSY_SECONDS}"
_LIBPQ_DRIVERS = ("psycopg2", "psycopg")


class Reading(Protocol):
    """How a caller that only reads the past of tables gets their metadata: `lakesink_tools.past.lean`."""

    def storage(self, properties: Properties, load: Callable[[], FileIO]) -> FileIO:
        """The storage in the place of the one that `load` returns."""

    def answer(self, response: Any) -> Any:
        """The answer in the place of this one of a REST service."""


READING: ContextVar[Reading | None] = ContextVar("lakesink_reading", default=None)
"""That of a caller, in its context; None for everybody who may commit."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of catalog; `module` is imported when first used, because its dependencies may be missing.

    `certified` is true if lakesink's tests prove the guarantee on it.
    """

    module: str
    class_name: str
    certified: bool = True


KINDS = {
    "sql": Kind("lakesink_catalog.connect.caching_sql", "CachingSqlCatalog"),
    "rest": Kind("lakesink_catalog.connect.rest", "BoundedRestCatalog"),
    "in-memory": Kind("pyiceberg.catalog.memory", "InMemoryCatalog"),
    "hive": Kind("pyiceberg.catalog.hive", "HiveCatalog", certified=False),
    "glue": Kind("pyiceberg.catalog.glue", "GlueCatalog", certified=False),
}
_CANNOT_COMMIT = ("dynamodb", "bigquery")
_SQL_BACKENDS = ("sqlite", "postgresql")
_KIND_BY_URI = (("http", "rest"), ("thrift", "hive"), ("sqlite", "sql"), ("postgresql", "sql"))


def kind_of(name: str, properties: Mapping[str, Any]) -> str:
    """The kind in the properties, by ``type`` or else by ``uri``; an unsupported kind raises `CatalogError`."""
    uri = str(properties.get("uri") or "")
    kind = str(properties.get("type") or "").lower()
    if not kind:
        kind = next((kind for start, kind in _KIND_BY_URI if uri.startswith(start)), urlsplit(uri).scheme)
    if kind not in KINDS:
        raise _unsupported(name, kind)
    if kind == "sql" and uri and make_url(uri).get_backend_name() not in _SQL_BACKENDS:
        raise _unsupported(name, make_url(uri).get_backend_name())
    return kind


def normalized(name: str, kind: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties with absolute local paths and with time-outs for databases, so that they work from any folder.

    In one process, all in-memory catalogs with the same name share their content, as long as one of them is open.
    """
    normalized = dict(properties)
    warehouse = str(normalized.get("warehouse") or "")
    if kind in ("sql", "in-memory") and warehouse and not urlsplit(warehouse).scheme:
        normalized["warehouse"] = os.path.abspath(warehouse)  # noqa: PTH100 - Path.resolve would follow links
    if kind == "in-memory":
        normalized.setdefault("uri", _MEMORY_URI.format(name.encode().hex()))
    elif kind == "sql" and normalized.get("uri"):
        normalized |= _normalized_database(make_url(str(normalized["uri"])))
    return normalized


def sqlite_file(properties: Mapping[str, Any]) -> str | None:
    """Path of the SQLite file in these properties; None if there is none."""
    uri = str(properties.get("uri") or "")
    if not uri.startswith("sqlite") or _in_memory(make_url(uri)) or "vfs=memdb" in uri:
        return None
    return make_url(uri).database


def is_of_one_process(properties: Mapping[str, Any]) -> bool:
    """True if the catalog lives in this process's memory, so that no other process sees it."""
    uri = str(properties.get("uri") or "")
    return uri.startswith("sqlite") and ("vfs=memdb" in uri or _in_memory(make_url(uri)))


def open_catalog(name: str, properties: Mapping[str, Any]) -> Catalog:
    """Open a catalog of a kind in `KINDS`, or of the class that the user's own code names."""
    if CODE_PROPERTY in properties:
        _warn_of(name, "class", str(properties[CODE_PROPERTY]))
        return load_catalog(name, **properties)
    word = kind_of(name, properties)
    kind = KINDS[word]
    if not kind.certified:
        _warn_of(name, "type", word)
    base = getattr(importlib.import_module(kind.module), kind.class_name)
    catalog: Catalog = type(kind.class_name, (_Guarded, base), {"__module__": __name__})(name, **properties)
    url = make_url(str(properties.get("uri") or "sqlite://")) if word in ("sql", "in-memory") else None
    if url is not None and url.get_backend_name() == "postgresql":
        bound_waits(catalog.engine)  # type: ignore[attr-defined] # an attribute of PyIceberg's SqlCatalog
    if url is not None and _in_memory(url):
        _share_between_threads(catalog)
    if word == "hive":
        try:  # refuse Hive 4 now, and not in a batch; another failure is left to the calls that matter
            catalog.table_exists(_NO_TABLE)
        except Exception as error:
            if is_hive_4(error):
                raise
    return catalog


def _warn_of(name: str, setting: str, value: str) -> None:
    """Report a catalog that no test certifies."""
    from lakesink_catalog.listeners import LISTENERS  # noqa: PLC0415 - commands that only read need no events
    from lakesink_protocol.events import CatalogNotCertified  # noqa: PLC0415 - as above

    LISTENERS(CatalogNotCertified(name, setting, value))


class _Guarded(Catalog):
    """Prevents table properties, which are untrusted input, from naming Python classes to import."""

    # PyIceberg merges table properties into those of the file system, and offers no public hook to filter them.
    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        allowed = {key: value for key, value in properties.items() if key != _IO_PROPERTY}
        load, reading = partial(super()._load_file_io, allowed, location), READING.get()
        return load() if reading is None else reading.storage({**self.properties, **allowed}, load)

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load the table; refuse a table whose properties name a class that a commit would import."""
        table: Table = super().load_table(identifier)  # type: ignore[safe-super] # a real class follows in the MRO
        if _LOCATION_PROVIDER_PROPERTY in table.metadata.properties:
            raise CatalogError.of("TABLE_NAMES_CODE", table=".".join(table.name()))
        return table


def _unsupported(name: str, kind: str) -> CatalogError:
    trouble = "to which PyIceberg cannot commit" if kind in _CANNOT_COMMIT else "which lakesink does not support"
    why = f"it is of type {kind!r}, {trouble}" if kind else "its configuration has neither uri nor type"
    return CatalogError.of("CATALOG_UNSUPPORTED", name=name, why=why, near=did_you_mean(kind, KINDS))


def _normalized_database(url: URL) -> dict[str, str]:
    if url.get_backend_name() == "postgresql":
        if url.drivername == "postgresql":  # SQLAlchemy's versions choose different drivers for this name
            driver = next((driver for driver in _LIBPQ_DRIVERS if importlib.util.find_spec(driver)), _LIBPQ_DRIVERS[0])
            url = url.set(drivername=f"postgresql+{driver}")
        if url.get_driver_name() in _LIBPQ_DRIVERS:
            url = _with_query(url, connect_timeout=10, tcp_user_timeout=60_000)
        return {"uri": url.render_as_string(hide_password=False)}
    if not _in_memory(url):
        if url.database and not url.database.startswith("file:"):
            url = url.set(database=os.path.abspath(url.database))  # noqa: PTH100 - as above
        url = _with_query(url, timeout=_BUSY_SECONDS)
    return {"uri": url.render_as_string(hide_password=False)}


def _with_query(url: URL, **defaults: int) -> URL:
    missing = {key: str(value) for key, value in defaults.items() if key not in url.query}
    return url.update_query_dict(missing)


def _in_memory(url: URL) -> bool:
    database = url.database or ""
    return url.get_backend_name() == "sqlite" and (
        database in ("", ":memory:") or "mode=memory" in str(url) or ":memory:" in database
    )


def _share_between_threads(catalog: Any) -> None:
    """One connection for all threads in turn: SQLAlchemy would give each thread its own empty database."""
    catalog.engine.dispose()
    catalog.engine = create_engine(
        catalog.engine.url,
        poolclass=QueuePool,
        pool_size=1,
        max_overflow=0,
        pool_timeout=_BUSY_SECONDS,
        connect_args={"check_same_thread": False},
    )
    catalog.create_tables()
