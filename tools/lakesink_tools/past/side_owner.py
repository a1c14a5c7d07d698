"""Which table's batches stand behind those of a changelog or of dead letters: their application's name has a digest."""

from collections.abc import Iterator
from itertools import islice

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakesink.rows.letters import letters_key
from lakesink.task.changelog import changelog_key
from lakesink_catalog.read.history import keys_of_ledger
from lakesink_catalog.read.view import view_table
from lakesink_catalog.tables.listing import tables_in
from lakesink_catalog.tables.tables import load_to_read
from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.identity import SinkKey, SinkKind
from lakesink_protocol.ledger import mark_of

MOST_TABLES = 1_000


def owner_of(catalog: Catalog, application: SinkKey) -> tuple[str, SinkKey, str] | None:
    """The table, the sink and the query whose rows an application writes; None if none is found.

    Looks at the first 1,000 tables of the catalog.
    """
    for name, trouble in islice(tables_in(catalog), MOST_TABLES):
        try:
            table = load_to_read(catalog, name) if trouble is None else None
        except LakesinkError:
            continue
        for key, query_id in _queries(table) if table is not None else ():
            uuid = str(table.metadata.table_uuid) if table is not None else ""
            if application.name in (changelog_key(key, query_id, uuid).name, letters_key(key, query_id, uuid).name):
                return name, key, query_id
    return None


def _queries(table: Table) -> Iterator[tuple[SinkKey, str]]:
    """Every stream with its queries, as far as the table shows them."""
    marks = (mark_of(snapshot.summary) for snapshot in table.metadata.snapshots)
    found = {(mark.key, mark.query_id) for mark in marks if mark is not None}
    for key in keys_of_ledger(table):
        entry = view_table(table, key).entry
        found |= {(key, entry.query_id)} if entry is not None else set()
    return (one for one in found if one[0].kind is SinkKind.STREAM)
