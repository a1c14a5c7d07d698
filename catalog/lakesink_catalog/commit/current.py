"""Asks by a request whether a table is as it was loaded: a catalog may answer a load with an older state."""

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    TableRequirement,
)

from lakesink_catalog.connect.catalog_failures import translated


def is_current(table: Table, branch: str) -> bool:
    """True if table and head of the branch are those in the catalog. The request changes nothing.

    Raises:
        CatalogError: The catalog failed, so that nothing is known.
    """
    metadata = table.metadata
    head, schema_id = metadata.refs.get(branch), metadata.current_schema_id
    requirements: tuple[TableRequirement, ...] = (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertRefSnapshotId(ref=branch, snapshot_id=None if head is None else head.snapshot_id),
        AssertCurrentSchemaId(current_schema_id=schema_id),
    )

    def ask() -> bool:
        try:
            table.catalog.commit_table(table, requirements, (SetCurrentSchemaUpdate(schema_id=schema_id),))
        except (CommitFailedException, NoSuchTableError):
            return False
        return True

    return translated("The catalog", table.catalog.properties, ask)
