"""The service that maintains a table by itself, if a property of its catalog or of the table says so. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_S3_TABLES = {
    "rest.signing-name": "s3tables",
    "warehouse": r"arn:[\w-]+:s3tables:.*|\d+:s3tablescatalog/.*",
    "uri": r"https?://s3tables\..*",
}
"""Properties of a catalog of table buckets, and what they match."""
_AMORO = "self-optimizing.enabled"


@dataclass(frozen=True, slots=True)
class Manager:
    """A service that compacts a table by itself, and the property that says so."""

    name: str
    said_by: str


def manager_of(catalog: Mapping[str, Any], table: Mapping[str, str]) -> Manager | None:
    """The service that maintains a table, by the properties of its catalog and of the table; None if none says so."""
    for name, pattern in _S3_TABLES.items():
        if re.fullmatch(pattern, str(catalog.get(name) or "")):
            return Manager("Amazon S3 Tables", f"the catalog's property {name}")
    if str(table.get(_AMORO)).lower() == "true":
        return Manager("Apache Amoro", f"the table's property {_AMORO}")
    return None
