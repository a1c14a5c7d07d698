"""Refuses the first snapshot of a branch on a catalog that does not protect it."""

import shlex

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType

from lakesink_catalog.connect.first_snapshot import protects_first_snapshots
from lakesink_protocol.errors import CatalogError


def has_head(table: Table, branch: str) -> bool:
    """True if the branch has a snapshot."""
    head = table.metadata.refs.get(branch)
    return head is not None and head.snapshot_ref_type is SnapshotRefType.BRANCH


def check_has_head(table: Table, branch: str) -> None:
    """Refuse a branch without a snapshot, if the catalog would not protect its first one."""
    *namespace, _ = table.name()
    if has_head(table, branch) or protects_first_snapshots(table.catalog, tuple(namespace)):
        return
    name, catalog = ".".join(table.name()), table.catalog.name
    what = f"The branch {branch} of {name}" if table.metadata.snapshots else name
    arguments = shlex.join([name, "--catalog", catalog])
    raise CatalogError.of("FIRST_SNAPSHOT_UNPROTECTED", what=what, catalog=catalog, table=name, arguments=arguments)
