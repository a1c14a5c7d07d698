"""The command ``first-snapshot``: gives a table without a snapshot its first one, without rows."""

from lakesink.cli.output import Report, confirmed
from lakesink.words import as_arguments
from lakesink_catalog.commit.first_snapshot import has_head
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.connect.errors import translated
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.identity import MAIN_BRANCH


def first_snapshot(table: str, catalog: str | None, *, yes: bool) -> Report:
    """Exit code 2: the catalog did not take the commit; the table is unchanged, or the commit may still arrive."""
    connected = connect(catalog, create=False)
    found = load_table(connected, table)
    had_one = has_head(found, MAIN_BRANCH)
    if not had_one:
        confirmed(f"Does nothing else write to {table}, and is no request of another writer under way?", yes=yes)
        rows = found.schema().as_arrow().empty_table()
        translated(f"The catalog {connected.name!r}", connected.properties, lambda: found.append(rows))
        found = load_table(connected, table)
    head = found.metadata.refs[MAIN_BRANCH].snapshot_id
    return Report(
        document={"table": table, "snapshot_id": head, "created": not had_one},
        title=f"{table} has the snapshot {head} already." if had_one else f"{table} has its first snapshot, {head}.",
        hints=[f"Next: start the stream, then lakesink status {as_arguments(table, catalog)}"],
    )
