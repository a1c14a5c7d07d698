"""Deletes old metadata files after a commit. Table properties are untrusted input: only files of the table may go."""

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.tables.locations import is_under
from lakesink_protocol.events import Listener, MetadataKept
from lakesink_protocol.redact import describe, redact


def delete_old_metadata(before: Table, after: TableMetadata, emit: Listener = LISTENERS) -> None:
    """Delete metadata files that dropped out of the log, if the table asks for it; never fails.

    Call this after a commit has landed: PyIceberg does it only in its own transactions. REST services do it themselves.
    """
    asked = after.properties.get("write.metadata.delete-after-commit.enabled", "false").lower() == "true"
    if not asked or not isinstance(before.catalog, MetastoreCatalog):
        return
    kept = {entry.metadata_file for entry in after.metadata_log}
    for path in sorted({entry.metadata_file for entry in before.metadata.metadata_log} - kept):
        try:
            if path.endswith(".metadata.json") and is_under(path, before.location()):
                before.io.delete(path)
        except Exception as error:  # noqa: BLE001 - the commit has landed; an old file does no harm
            emit(MetadataKept(redact(path), describe(error)))
