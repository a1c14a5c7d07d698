"""Removes or restores the ledger entry of a sink, by the table's name."""

from collections.abc import Callable

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.identity import NAME_PATTERN, SinkKey, SinkKind
from lakesink_tools.operate.remove_sink import Forgetting, Forgotten, Restored, Restoring


def forget_sink(
    table: str, catalog: str | None, *, sink: str, branch: str, txn: bool, tags: bool, confirm: Callable[[str], None]
) -> Forgotten:
    """Remove a sink; `txn` is True for an application id of `lakesink.append`, `tags` also removes the audit tags.

    `confirm` is called after the sink was found, and raises if the operator declines.
    """
    key = _sink_key(sink, branch, txn=txn)
    opened = connect(catalog, create=False)
    forgetting = Forgetting(lambda: load_table(opened, table), key, with_audit_tags=tags)
    forgetting.find()
    confirm(f"Will {sink} never again write to branch {branch} of {table}?")
    return forgetting.run()


def restore_sink(
    table: str, catalog: str | None, *, sink: str, branch: str, txn: bool, confirm: Callable[[str], None]
) -> Restored:
    """Restore a lost ledger entry; arguments as in `forget_sink`."""
    opened = connect(catalog, create=False)
    restoring = Restoring(lambda: load_table(opened, table), _sink_key(sink, branch, txn=txn))
    last = restoring.find().batch_id
    confirm(f"Is the stream stopped, and shall the ledger of {sink} end with batch {last}, the newest in {table}?")
    return restoring.run()


def _sink_key(sink: str, branch: str, *, txn: bool) -> SinkKey:
    """The key of the sink that a command names."""
    if NAME_PATTERN.fullmatch(sink):
        return SinkKey(sink, branch, SinkKind.TXN if txn else SinkKind.STREAM)
    raise SettingsError(
        "SINK_UNKNOWN",
        f"{sink[:60]!r} is not a sink id.",
        action="lakesink status shows every sink of the table.",
    )
