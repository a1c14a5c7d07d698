"""Finds that a local table has no prepared record, as between two batches, without PyArrow. Only reads."""

import os
from pathlib import Path
from typing import NoReturn

from pyiceberg.table import Table

from lakesink_catalog.connect.lean import local_path
from lakesink_catalog.tables.locations import metadata_location


def has_no_records(table: Table) -> bool:
    """True if the folder of the records is local and has no files; False if it has some, or if that is not certain.

    Raises `CatalogError` if a property of the table names a folder that is not allowed.
    """
    folder = local_path(f"{metadata_location(table)}/lakesink", table.io.properties)
    if folder is None:
        return False
    try:
        Path(folder).lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        return not any(files for _, _, files in os.walk(folder, onerror=_refuse, followlinks=True))
    except OSError:
        return False


def _refuse(error: OSError) -> NoReturn:
    raise error
