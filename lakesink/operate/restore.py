"""Restores the ledger entry of a sink, by the table's name; see `lakesink_catalog.commit.restore`."""

from collections.abc import Callable

from lakesink.operate.forget import sink_key
from lakesink_catalog.commit.restore import Restored, Restoring
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table


def restore_sink(
    table: str, catalog: str | None, *, sink: str, branch: str, txn: bool, confirm: Callable[[str], None]
) -> Restored:
    """Restore a lost ledger entry; arguments as in `forget_sink`."""
    opened = connect(catalog, create=False)
    restoring = Restoring(lambda: load_table(opened, table), sink_key(sink, branch, txn=txn))
    last = restoring.find().batch_id
    confirm(f"Is the stream stopped, and shall the ledger of {sink} end with batch {last}, the newest in {table}?")
    return restoring.run()
