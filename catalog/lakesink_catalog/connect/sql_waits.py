"""Time limits for a PostgreSQL server that holds a catalog: for locks, and for answers."""

import os
import socket
import threading
from contextlib import suppress
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.exc import DisconnectionError

LOCK_SECONDS = 30
SILENT_SECONDS = 120.0
"""Longest use of one connection. A transaction has a few statements, and the server ends each of them after 60 s."""
_WATCH = "lakesink.observe"


def bound_waits(engine: Engine) -> None:
    """Limit every wait of this engine, which must use PostgreSQL by psycopg or psycopg2."""
    _end_locks(engine)
    _end_silence(engine)


def _end_locks(engine: Engine) -> None:
    """Limit the locks of a stopped driver, in each transaction: a pooler may use another server connection for it."""
    wanted = f"('lock_timeout', '{LOCK_SECONDS}s'), ('statement_timeout', '{2 * LOCK_SECONDS}s')"
    setting = (
        f"SELECT set_config(name, value, true) FROM (VALUES {wanted}) AS wanted (name, value)"  # noqa: S608 - constants
        " WHERE current_setting(name) = '0'"
    )
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(setting))


def _end_silence(engine: Engine) -> None:
    """``pool_pre_ping`` with a time limit: a stopped server that acknowledges packets triggers no TCP time-out."""

    def lent(connection: Any, record: Any, _: Any) -> None:
        returned(connection, record)  # after a dead connection, the pool calls this once more
        watch = record.record_info[_WATCH] = threading.Timer(SILENT_SECONDS, _cut, [connection])
        watch.daemon = True
        watch.start()
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise DisconnectionError(str(error)) from error

    def returned(_: Any, record: Any) -> None:
        watch = record.record_info.pop(_WATCH, None)
        if watch is not None:
            watch.cancel()

    event.listen(engine, "checkout", lent)
    event.listen(engine, "checkin", returned)


def _cut(connection: Any) -> None:
    """Close the socket under a thread that waits for an answer; the connection may already be closed."""
    with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)
