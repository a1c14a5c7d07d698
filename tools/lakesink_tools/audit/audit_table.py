"""The audit of a table by the table's name. Only reads."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.connect.catalog_failures import catalog_error
from lakesink_catalog.tables.tables import TABLE_MISSING, load_to_read
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.redact import safe_cause
from lakesink_tools.audit.audit import Proof, audit
from lakesink_tools.audit.checkpoint import Done, read_done
from lakesink_tools.audit.key_proof import KeyProof, KeyQuestion
from lakesink_tools.past.need_duckdb import check_duckdb


def audit_table(
    table: str,
    *,
    catalog: str | None = None,
    catalog_properties: Mapping[str, Any] | None = None,
    checkpoint: str | None = None,
    sink: str | None = None,
    footers: bool = True,
    keys: bool | Sequence[str] = False,
) -> Proof:
    """Prove from a table alone that every batch is there once, whole and readable; ``lakesink audit`` as a function.

    Args:
        table: Table identifier, ``namespace.table``.
        catalog: Name of a PyIceberg catalog; None for the configured default, else the embedded one.
        catalog_properties: Added to the configured properties; they take precedence.
        checkpoint: Spark's checkpoint: is every batch that it records as completed in the table?
        sink: Only this sink's batches and ledger.
        footers: False to compare sizes only, and not row counts with Parquet footers.
        keys: True to prove also that each key has one live row on main; or the columns of the key, if the table has no
            identifier fields. Needs DuckDB.

    Returns:
        The result: `findings` is empty if nothing is wrong. A notebook shows it as a table.

    Raises:
        SettingsError: The identifier is malformed.
        CatalogError: The catalog or the storage is unusable, or there is no such table.
        QueryError: The checkpoint cannot be read.
    """
    done = None if checkpoint is None else read_done(checkpoint)
    loaded = loaded_for(done, connect(catalog, catalog_properties, create=False), table)
    named = () if isinstance(keys, bool) else tuple(keys)
    return proved(loaded, done, sink, footers=footers, keys=KeyQuestion(named) if keys else None)


def loaded_for(done: Done | None, catalog: Catalog, table: str) -> Table:
    """The table to audit. If it is missing, the checkpoint shows whether it ever was there."""
    try:
        return load_to_read(catalog, table)
    except CatalogError as error:
        if error.code != TABLE_MISSING or done is None or not done.batches:
            raise
        raise _was_there(table, catalog, done.batches[-1], error) from None


def _was_there(table: str, catalog: Catalog, last: int, error: CatalogError) -> CatalogError:
    return CatalogError(
        "TABLE_MISSING",
        f"Table {table} is not in the catalog {catalog.name!r}, but the checkpoint has committed batches up to {last}.",
        data=f"The rows up to batch {last} were in a table that this catalog does not show. Nothing was changed.",
        action=(
            f"If another table or catalog is meant, name it (--catalog). {error.action}",
            "If the table was renamed, audit it under its new name, and give the stream that name.",
            "If the table was dropped, restore it before the stream starts again.",
            (
                "If it was dropped on purpose, start the stream with create_table=True and a new checkpoint: it reads"
                " the source from its beginning. Rows that the source no longer has are lost."
            ),
        ),
    )


def proved(
    table: Table, done: Done | None, sink: str | None, *, footers: bool, keys: KeyQuestion | None = None
) -> Proof:
    """The proof, or that the storage failed; the original leaves only if it shows no secret, so not as a context."""
    known = table.io.properties
    prover = None if keys is None else _prover(keys)
    try:
        return audit(
            table, done=done, sink=sink, footers=footers, now_ms=time.time_ns() // 1_000_000, prove_keys=prover
        )
    except OSError as error:
        failure = error
    raise catalog_error(failure, "The table", known) from safe_cause(failure, known)


def _prover(question: KeyQuestion) -> Callable[[Table], KeyProof]:
    check_duckdb("lakesink audit --keys")
    from lakesink_tools.audit.key_scan import prove_keys  # noqa: PLC0415 - DuckDB is an extra

    return partial(prove_keys, question=question)
