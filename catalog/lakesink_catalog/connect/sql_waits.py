"""An end to every wait for a PostgreSQL that holds a catalog: for a lock, and for an answer."""

import os
import socket
import threading
from contextlib import suppress
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.exc import DisconnectionError

LOCK_SECONDS = 30
SILENT_SECONDS = 120.0
"""Longest that one connection is lent out. A transaction has a few statements, each ended by the server after 60 s."""
_WATCH = "lakesink.watch"


def bound_waits(engine: Engine) -> None:
    """Let no wait of this engine last for ever.

    Args:
        engine: On PostgreSQL, by psycopg or psycopg2.
    """
    _end_locks(engine)
    _end_silence(engine)


def _end_locks(engine: Engine) -> None:
    """A driver that is stopped in its transaction holds a lock, and its connection lives.

    Set in each transaction, for a pooler between may give the next one to somebody else; what the user set stays.
    """
    wanted = f"('lock_timeout', '{LOCK_SECONDS}s'), ('statement_timeout', '{2 * LOCK_SECONDS}s')"
    setting = (
        f"SELECT set_config(name, value, true) FROM (VALUES {wanted}) AS wanted (name, value)"  # noqa: S608 - constants
        " WHERE current_setting(name) = '0'"
    )
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(setting))


def _end_silence(engine: Engine) -> None:
    """A server that stops while its machine goes on acknowledges packets, so that no time-out of TCP ends the wait.

    The first thing that is asked of a lent connection is whether it is alive, as the pool's own ``pool_pre_ping`` does,
    but under the watch.
    """

    def lent(connection: Any, record: Any, _: Any) -> None:
        returned(connection, record)  # the pool lends once more after a connection that was dead
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
    """End a connection for the thread that waits for its answer; it may be closed by now."""
    with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)
