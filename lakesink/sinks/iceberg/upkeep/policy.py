"""What a maintenance of a table may do, and which other service maintains the table by itself. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

_S3_TABLES = {
    "rest.signing-name": "s3tables",
    "warehouse": r"arn:[\w-]+:s3tables:.*|\d+:s3tablescatalog/.*",
    "uri": r"https?://s3tables\..*",
}
"""Properties of a catalog of table buckets, and what they match."""
_AMORO = "self-optimizing.enabled"


class Verify(StrEnum):
    """How the rows of new files are compared with those that they replace."""

    DIGEST = "digest"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Policy:
    """What is due, and how much of it one run does.

    Attributes:
        target_file_size: Bytes; None for the table's ``write.target-file-size-bytes``.
        min_input_files: Fewer small files of one partition stay, unless they fill a file of the target size.
        where: Condition on partition columns in PyIceberg's syntax, with present names: ``day = '2026-01-01'``. Empty
            for all partitions.
        budget: Of one run. A group begins only if the groups before it say that it will end in time; None is no limit.
        gate: True if a stream waits for its maintenance before it goes on.
    """

    target_file_size: int | None = None
    min_input_files: int = 5
    where: str = ""
    budget: timedelta | None = None
    gate: bool = False
    verify: Verify = Verify.DIGEST


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
