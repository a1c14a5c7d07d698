"""The command ``first-snapshot``: gives a table without a snapshot its first one, without rows."""

from pyiceberg.table import Table

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.connect.catalog_failures import catalog_error
from lakesink_catalog.connect.first_snapshot import refused_by_service
from lakesink_catalog.snapshots import head_of
from lakesink_catalog.tables.tables import load_table
from lakesink_catalog.words import as_arguments
from lakesink_protocol.errors import CommitUnresolved
from lakesink_protocol.identity import MAIN_BRANCH
from lakesink_protocol.redact import describe, safe_cause
from lakesink_tools.cli.output import Report, confirmed


def first_snapshot(table: str, catalog: str | None, *, yes: bool) -> Report:
    """Exit code 2: the catalog did not take the commit; the table is unchanged, or the commit may still arrive."""
    connected = connect(catalog, create=False)
    found = load_table(connected, table)
    had_one = head_of(found, MAIN_BRANCH) is not None
    if not had_one:
        confirmed(f"Does nothing else write to {table}, and is no request of another writer under way?", yes=yes)
        _append_nothing(found, table)
        found = load_table(connected, table)
    head = found.metadata.refs[MAIN_BRANCH].snapshot_id
    return Report(
        document={"table": table, "snapshot_id": head, "created": not had_one},
        title=f"{table} has the snapshot {head} already." if had_one else f"{table} has its first snapshot, {head}.",
        hints=[f"Next: start the stream, then lakesink status {as_arguments(table, catalog)}"],
    )


def _append_nothing(found: Table, table: str) -> None:
    known = found.catalog.properties
    try:
        found.append(found.schema().as_arrow().empty_table())
    except Exception as error:  # noqa: BLE001 - services answer with errors of any class
        if refused_by_service(error):
            raise catalog_error(error, f"The catalog {found.catalog.name!r}", known) from safe_cause(error, known)
        raise CommitUnresolved.of(
            "COMMIT_UNRESOLVED.first_snapshot", table=table, error=describe(error, known)
        ) from safe_cause(error, known)
