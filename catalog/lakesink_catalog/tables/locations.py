"""Locations of a table's files. Table properties are untrusted input: they may point only to allowed locations."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from pyiceberg.table import Table

from lakesink_protocol.errors import CatalogError
from lakesink_protocol.redact import redact

ALLOWED_LOCATIONS_PROPERTY = "lakesink.allowed-locations"
_REFUSED = ("?", "#", "\\", "/./", "/../")
_HOST = re.compile(r"//[^/]")


def data_location(table: Table) -> str:
    """Folder of data files, no trailing slash: ``write.data.path``, else ``data`` under the table.

    Raises `CatalogError` unless it is in the table's location, the warehouse, or `ALLOWED_LOCATIONS_PROPERTY`.
    """
    return _location(table, "write.data.path", "data")


def metadata_location(table: Table) -> str:
    """Folder of metadata files, like `data_location`: ``write.metadata.path``, else ``metadata`` under the table."""
    return _location(table, "write.metadata.path", "metadata")


def is_under(path: str, folder: str) -> bool:
    """True if the path is below the folder, without ``..``, control characters, or a URI's query or fragment."""
    return all_under([path], folder)


def all_under(paths: Iterable[str], folder: str) -> bool:
    """True if every path is below the folder, see `is_under`."""
    listed, begin = list(paths), f"{_comparable(folder)}/"
    return _are_plain(listed) and all(_comparable(path).startswith(begin) for path in listed)


def _location(table: Table, property_name: str, folder: str) -> str:
    own = table.location().rstrip("/")
    chosen = (table.metadata.properties.get(property_name) or f"{own}/{folder}").rstrip("/")
    configured = table.catalog.properties
    listed = str(configured.get(ALLOWED_LOCATIONS_PROPERTY) or "").split(",")
    roots = [root.strip().rstrip("/") for root in (str(configured.get("warehouse") or ""), *listed)]
    allowed = [own, *(root for root in roots if root.startswith("/") or urlsplit(root).scheme)]
    if _are_plain([own]) and any(_is_at_or_under(chosen, root) for root in allowed):
        return chosen
    raise CatalogError.of("LOCATION_REFUSED", property=property_name, location=redact(chosen)[:80])


def _is_at_or_under(location: str, root: str) -> bool:
    return is_under(location, root) or (_are_plain([location]) and _comparable(location) == _comparable(root))


def _are_plain(locations: Sequence[str]) -> bool:
    """Searches all as one text, joined by a folder of one space. Printable text has no controls (category C)."""
    text = f"/{'/ /'.join(locations)}/"
    controls = not text.isprintable() and any(unicodedata.category(char).startswith("C") for char in set(text))
    return not controls and not any(part in text for part in _REFUSED)


def _comparable(location: str) -> str:
    """Gives all spellings of a location the same form: ``file:///a``, ``file:/a`` and ``/a``; ``s3a`` and ``s3``."""
    scheme, separator, rest = location.partition(":")
    if separator and scheme == "file" and not _HOST.match(rest):
        return "/" + rest.lstrip("/").rstrip("/")
    if separator and scheme in ("s3a", "s3n"):
        return f"s3:{rest}".rstrip("/")
    return location.rstrip("/")
