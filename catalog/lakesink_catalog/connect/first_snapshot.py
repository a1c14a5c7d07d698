"""Asks a catalog whether it protects the first snapshot of a table.

The request for it asserts that the branch has no head. That is its only fence, see decision 8. A catalog that does not
check this, as Nessie 0.99.0, takes the request also where there is a head, and replaces it with the rows below it.
"""

import uuid
from contextlib import suppress
from weakref import WeakKeyDictionary

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import BadRequestError, CommitFailedException, NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetPropertiesUpdate
from pyiceberg.types import LongType, NestedField

from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol.events import FirstSnapshotUnproven
from lakesink_protocol.identity import MAIN_BRANCH
from lakesink_protocol.redact import describe

PROBE = "lakesink_probe_"
_COLUMNS = Schema(NestedField(1, "id", LongType()))
_ANSWERS: WeakKeyDictionary[Catalog, bool] = WeakKeyDictionary()


def protects_first_snapshots(catalog: Catalog, namespace: tuple[str, ...]) -> bool:
    """True unless a scratch table in this namespace shows that the catalog does not; each connection is asked once.

    Only a service of REST is asked: in front of every other catalog PyIceberg itself compares what a request asserts.
    Without the right to make a table nothing is known, which is logged.
    """
    if not isinstance(catalog, RestCatalog):
        return True
    if catalog not in _ANSWERS:
        _ANSWERS[catalog] = _asked(catalog, (*namespace, PROBE + uuid.uuid4().hex[:12]))
    return _ANSWERS[catalog]


def _asked(catalog: Catalog, scratch: tuple[str, ...]) -> bool:
    try:
        return _refuses_no_head(catalog, catalog.create_table(scratch, _COLUMNS))
    except Exception as error:  # noqa: BLE001 - services answer with errors of any class
        _tell(catalog, scratch, error)
        return True
    finally:
        _drop(catalog, scratch)


def _refuses_no_head(catalog: Catalog, table: Table) -> bool:
    table.append(_COLUMNS.as_arrow().empty_table())
    no_head = AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=None)
    asserted = (AssertTableUUID(uuid=table.metadata.table_uuid), no_head)
    with suppress(CommitFailedException, BadRequestError):  # some services refuse so
        catalog.commit_table(table, asserted, (SetPropertiesUpdate(updates={"probe": "no head"}),))
        return False
    return True


def _drop(catalog: Catalog, scratch: tuple[str, ...]) -> None:
    for drop in (catalog.purge_table, catalog.drop_table):  # some services do not purge
        try:
            drop(scratch)
        except NoSuchTableError:
            return
        except Exception as error:  # noqa: BLE001 - as above
            failure = error
        else:
            return
    _tell(catalog, scratch, failure)


def _tell(catalog: Catalog, scratch: tuple[str, ...], error: Exception) -> None:
    LISTENERS(FirstSnapshotUnproven(catalog.name, ".".join(scratch), describe(error, catalog.properties)))
