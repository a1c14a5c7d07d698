"""Finds that no prepared record of a local table waits, as between two batches, without PyArrow. Only reads."""

import os
import re
from collections.abc import Iterable
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
    batches = ((key_of(state).record_folder, state.batch_id) for state in states)
    passed = {f"{folder}/{place}": batch_id for place, batch_id in batches if batch_id is not None}
    top = f"{folder}/lakesink"
    try:
        os.lstat(top)
        found = os.walk(top, onerror=_refuse, followlinks=True)
        records = ((_RECORD.fullmatch(name), passed.get(place, -1)) for place, _, names in found for name in names)
        return all(record is not None and int(record[1]) <= last for record, last in records)
    except FileNotFoundError as error:
        return bool(error.filename == top)  # no batch was ever prepared
    except OSError:
        return False


def _refuse(error: OSError) -> NoReturn:
    raise error
