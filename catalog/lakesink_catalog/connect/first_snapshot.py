"""Asks a catalog whether it protects the first snapshot of a table.

The request for it asserts that the branch has no head. That is its only fence, see decision 8. A catalog that does not
check this, as Nessie 0.99.0, takes the request also where there is a head, and replaces it with the rows below it.
"""

import uuid
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetPropertiesUpdate
from pyiceberg.types import LongType, NestedField

from lakesink_catalog.connect.catalog_failures import asking, http_status
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol.events import FirstSnapshotUnproven
from lakesink_protocol.identity import MAIN_BRANCH
from lakesink_protocol.redact import describe

PROBE = "lakesink_probe_"
_NESSIE = "nessie."
_COMES_TO_AN_END = (401, 408, 429)
_COLUMNS = Schema(NestedField(1, "id", LongType()))
_ANSWERS: WeakKeyDictionary[Catalog, bool] = WeakKeyDictionary()


def protects_first_snapshots(catalog: Catalog, namespace: tuple[str, ...]) -> bool:
    """True unless a scratch table in this namespace shows that the catalog does not; each connection is asked once.

    Only a service of REST is asked: in front of every other catalog PyIceberg itself compares what a request asserts.
    If the service refuses to make or to change the scratch table, nothing is known: that is logged, and only one that
    says that it is Nessie counts as unprotected.

    Raises:
        CatalogError: The service does not answer.
    """
    if not isinstance(catalog, RestCatalog):
        return True
    if catalog not in _ANSWERS:
        scratch = (*namespace, PROBE + uuid.uuid4().hex[:12])
        _ANSWERS[catalog] = asking(catalog, lambda: _asked(catalog, scratch))
    return _ANSWERS[catalog]


def _asked(catalog: Catalog, scratch: tuple[str, ...]) -> bool:
    try:
        return _refuses_no_head(catalog, catalog.create_table(scratch, _COLUMNS))
    except Exception as error:
        if not refused_by_service(error):
            raise
        _tell(catalog, scratch, error)
        return not says_it_is_nessie(catalog.properties)
    finally:
        _drop(catalog, scratch)


def says_it_is_nessie(properties: Mapping[str, Any]) -> bool:
    """True for the configuration of a service that says that it is Nessie."""
    return any(name.startswith(_NESSIE) for name in properties)


def _refuses_no_head(catalog: Catalog, table: Table) -> bool:
    table.append(_COLUMNS.as_arrow().empty_table())
    head = catalog.load_table(table.name()).metadata.refs[MAIN_BRANCH].snapshot_id
    _set_a_property(catalog, table, head)  # else a refusal of the next one proves nothing
    try:
        _set_a_property(catalog, table, None)
    except Exception as error:
        if not refused_by_service(error):
            raise
        return True
    return False


def _set_a_property(catalog: Catalog, table: Table, head: int | None) -> None:
    asserted = AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=head)
    properties = SetPropertiesUpdate(updates={"probe": str(head)})
    catalog.commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid), asserted), (properties,))


def refused_by_service(error: Exception) -> bool:
    """True if the service answered that it will not do this; False for an outage, and for credentials that expired."""
    status = http_status(error)
    of_client = status is not None and 400 <= status < 500 and status not in _COMES_TO_AN_END
    return isinstance(error, CommitFailedException) or of_client


def _drop(catalog: Catalog, scratch: tuple[str, ...]) -> None:
    for drop in (catalog.purge_table, catalog.drop_table):  # some services do not purge
        try:
            drop(scratch)
        except NoSuchTableError:
            return
        except Exception as error:  # noqa: BLE001 - services answer with errors of any class
            failure = error
        else:
            return
    _tell(catalog, scratch, failure)


def _tell(catalog: Catalog, scratch: tuple[str, ...], error: Exception) -> None:
    LISTENERS(FirstSnapshotUnproven(catalog.name, ".".join(scratch), describe(error, catalog.properties)))
