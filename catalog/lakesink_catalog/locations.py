"""Where a table keeps its files: locations from table properties, and nothing that a property names is imported."""

import logging

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

logger = logging.getLogger("lakesink")


def data_location(table: Table) -> str:
    """Folder of data files, without a trailing slash: ``write.data.path``, or ``data`` under the table."""
    return str(table.properties.get("write.data.path") or f"{table.location().rstrip('/')}/data").rstrip("/")


def metadata_location(table: Table) -> str:
    """Folder of metadata files, without a trailing slash: ``write.metadata.path``, or ``metadata`` under the table."""
    return str(table.properties.get("write.metadata.path") or f"{table.location().rstrip('/')}/metadata").rstrip("/")


def delete_old_metadata(table: Table, after: TableMetadata) -> None:
    """Honour ``write.metadata.delete-after-commit.enabled``: remove metadata files that a commit dropped from the log.

    Only files that the table's own log listed before the commit and no longer lists; best effort, since the commit
    has landed whatever happens here.

    Args:
        table: As loaded before the commit.
        after: The metadata that the commit made.
    """
    if after.properties.get("write.metadata.delete-after-commit.enabled", "false").lower() != "true":
        return
    kept = {entry.metadata_file for entry in after.metadata_log}
    for entry in table.metadata.metadata_log:
        if entry.metadata_file not in kept and entry.metadata_file != table.metadata_location:
            try:
                table.io.delete(entry.metadata_file)
            except OSError as error:
                logger.debug("lakesink.metadata.kept path=%s error=%s", entry.metadata_file, type(error).__name__)
