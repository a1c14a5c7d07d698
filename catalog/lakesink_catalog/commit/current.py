"""Asks by a request whether a table is as it was loaded: a catalog may answer a load with an older state."""

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.update import SetCurrentSchemaUpdate

from lakesink_catalog.commit.request import as_loaded
from lakesink_catalog.connect.catalog_failures import translated


def is_current(table: Table, branch: str) -> bool:
    """True if table and head of the branch are those in the catalog. The request changes nothing.

    Raises:
        CatalogError: The catalog failed, so that nothing is known.
    """
    head, schema_id = table.metadata.refs.get(branch), table.metadata.current_schema_id
    requirements = tuple(as_loaded(table, branch, None if head is None else head.snapshot_id))

    def ask() -> bool:
        try:
            table.catalog.commit_table(table, requirements, (SetCurrentSchemaUpdate(schema_id=schema_id),))
        except (CommitFailedException, NoSuchTableError):
            return False
        return True

    return translated("The catalog", table.catalog.properties, ask)
