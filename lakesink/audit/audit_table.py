"""The audit of a table by the table's name. Only reads."""

import time
from collections.abc import Mapping
from typing import Any

from pyiceberg.table import Table

from lakesink.audit.audit import Proof, audit
from lakesink.audit.checkpoint import Done, read_done
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.connect.errors import catalog_error
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.redact import safe_cause


def audit_table(
    table: str,
    *,
    catalog: str | None = None,
    catalog_properties: Mapping[str, Any] | None = None,
    checkpoint: str | None = None,
    sink: str | None = None,
    footers: bool = True,
) -> Proof:
    """Prove from a table alone that every batch is there once, whole and readable; ``lakesink audit`` as a function.

    Args:
        table: Table identifier, ``namespace.table``.
        catalog: Name of a PyIceberg catalog; None for the configured default, else the embedded one.
        catalog_properties: Added to the configured properties; they take precedence.
        checkpoint: Spark's checkpoint: is every batch that it records as completed in the table?
        sink: Only this sink's batches and ledger.
        footers: False to compare sizes only, and not row counts with Parquet footers.

    Returns:
        The result: `findings` is empty if nothing is wrong. A notebook shows it as a table.

    Raises:
        SettingsError: The identifier is malformed.
        CatalogError: The catalog or the storage is unusable, or there is no such table.
        QueryError: The checkpoint cannot be read.
    """
    done = None if checkpoint is None else read_done(checkpoint)
    loaded = load_table(connect(catalog, catalog_properties, create=False), table)
    return proved(loaded, done, sink, footers=footers)


def proved(table: Table, done: Done | None, sink: str | None, *, footers: bool) -> Proof:
    """The proof, or that the storage failed; the original leaves only if it shows no secret, so not as a context."""
    known = table.io.properties
    try:
        return audit(table, done=done, sink=sink, footers=footers, now_ms=time.time_ns() // 1_000_000)
    except OSError as error:
        failure = error
    raise catalog_error(failure, "The table", known) from safe_cause(failure, known)
