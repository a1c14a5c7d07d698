"""Finds that no prepared record of a local table waits, as between two batches, without PyArrow. Only reads."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from pyiceberg.table import Table

from lakesink_catalog.connect.lean import local_path
from lakesink_catalog.read.history import SinkState
from lakesink_catalog.tables.locations import metadata_location
from lakesink_tools.past.records import key_of

_RECORD = re.compile(r"([0-9]{1,19})-[A-Za-z0-9]{1,64}\.json")


def has_no_records(table: Table, states: Iterable[SinkState]) -> bool:
    """True if every record is local, and by its name, by which a stream finds it, of a batch that its sink has passed.

    False if one may wait, or if that is not certain. Raises `CatalogError` if a property of the table names a folder
    that is not allowed.
    """
    folder = local_path(metadata_location(table), table.io.properties)
    if folder is None:
        return False
    passed = {f"{folder}/{key_of(state).record_folder}": state.batch_id for state in states}
    top = f"{folder}/lakesink"
    try:
        Path(top).lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        found = os.walk(top, onerror=_refuse, followlinks=True)
        return all(_is_passed(name, passed.get(place)) for place, _, names in found for name in names)
    except OSError:
        return False


def _is_passed(name: str, last: int | None) -> bool:
    found = _RECORD.fullmatch(name)
    return found is not None and last is not None and int(found[1]) <= last


def _refuse(error: OSError) -> NoReturn:
    raise error
