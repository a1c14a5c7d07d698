"""Retiring a sink of a table by its name, see `lakesink_catalog.commit.forget`."""

from collections.abc import Callable

from lakesink_catalog.commit.forget import Forgetting, Forgotten
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.identity import NAME_PATTERN, SinkKey, SinkKind


def forget_sink(
    table: str, catalog: str | None, *, sink: str, branch: str, txn: bool, tags: bool, confirm: Callable[[str], None]
) -> Forgotten:
    """Forget a sink.

    Args:
        table: Table identifier, ``namespace.table``.
        catalog: Name of the catalog, None for the default.
        sink: Sink id or application id.
        branch: Branch that it wrote.
        txn: True for an application id of `lakesink.append`.
        tags: True to remove its audit tags too.
        confirm: Asked once the sink is found; raises if the answer is no.

    Raises:
        SettingsError: There is no such sink, or it was not confirmed.
        CommitUnresolved: The catalog was not seen to take the commit.
    """
    key = sink_key(sink, branch, txn=txn)
    opened = connect(catalog, create=False)
    forgetting = Forgetting(lambda: load_table(opened, table), key, with_audit_tags=tags)
    forgetting.find()
    confirm(f"Will {sink} never write to branch {branch} of {table} again?")
    return forgetting.run()


def sink_key(sink: str, branch: str, *, txn: bool) -> SinkKey:
    """The sink that a command names.

    Raises:
        SettingsError: That is no sink id.
    """
    if NAME_PATTERN.fullmatch(sink):
        return SinkKey(sink, branch, SinkKind.TXN if txn else SinkKind.STREAM)
    raise SettingsError(
        "SINK_UNKNOWN",
        f"{sink[:60]!r} is no sink id.",
        data="Nothing was changed.",
        action="lakesink status shows every sink of the table.",
    )
