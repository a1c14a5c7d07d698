"""Refuses the first snapshot of a branch on a catalog that does not protect it. Pure.

The request for it asserts that the branch has no head. That is its only fence, see decision 8. A catalog that does not
check this assertion accepts the request also when there is a head, and replaces it, with the rows below it.
"""

from collections.abc import Mapping
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType

from lakesink_protocol.errors import CatalogError

UNPROTECTED = {"Nessie": "nessie."}
"""Catalogs that do not check "no head": how their own properties begin, in their configuration and in their tables."""


def unprotected_by(*properties: Mapping[str, Any]) -> str | None:
    """The catalog in `UNPROTECTED` that these properties of catalog or table are from; None if there is none."""
    names = [name for found in properties for name in found]
    return next((one for one, start in UNPROTECTED.items() if any(name.startswith(start) for name in names)), None)


def check_has_head(table: Table, branch: str) -> None:
    """Refuse a branch without a snapshot, if the catalog would not protect its first one."""
    head = table.metadata.refs.get(branch)
    if head is not None and head.snapshot_ref_type is SnapshotRefType.BRANCH:
        return
    product = unprotected_by(table.catalog.properties, table.metadata.properties)
    if product is None:
        return
    name = ".".join(table.name())
    what = f"The branch {branch} of {name}" if table.metadata.snapshots else name
    raise CatalogError(
        "FIRST_SNAPSHOT_UNPROTECTED",
        f"{what} has no snapshot, and {product} lets two first snapshots replace each other.",
        data="No snapshot was sent, so nothing was written to the table.",
        action=f"While nothing writes to {name}, give it a first snapshot without rows, once, by PyIceberg:"
        f" table = load_catalog({table.catalog.name!r}).load_table({name!r});"
        " table.append(table.schema().as_arrow().empty_table()). If that ended without an error, start again. If it did"
        " not, drop the table and create it again before you repeat it.",
    )
