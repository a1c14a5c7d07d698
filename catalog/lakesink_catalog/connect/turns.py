"""Turns at a table: writers that share a catalog queue for the time from loading the table to the swap.

Without a queue, overlapping commits fail, wait and fail again, and a writer that waits long may never commit. A turn is
an advisory lock that only turns take. Nothing depends on it: the swap decides as always, other writers take no turns,
and a turn that cannot be had is passed over. The lock of a process that dies is released by PostgreSQL or the kernel.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from sqlalchemy import Connection, Engine, create_engine

from lakesink_catalog.connect import sql_waits
from lakesink_protocol.redact import describe

if TYPE_CHECKING:
    from lakesink_protocol.events import Listener

REST_SECONDS = 600.0
"""How long a table is written without turns after one could not be had: a stopped holder must not delay each commit."""
_GiveBack = Callable[[], None]


class TakesTurns:
    """A catalog whose writers take turns. Its `CommitFailedException` proves that nothing was changed."""

    turns: "Turns"


def turn_at(table: Table, emit: "Listener") -> AbstractContextManager[None]:
    """The turn of one attempt to commit to this table; of no effect for a catalog without turns."""
    return table.catalog.turns.at(table, emit) if isinstance(table.catalog, TakesTurns) else nullcontext()


@dataclass(slots=True)
class Turns:
    """Turns at the tables of one SQL catalog, whose engine has other connections than the turns."""

    engine: Engine
    _connections: Engine | None = field(default=None, init=False)
    _of_process: int = field(default=0, init=False)
    _passed_over: dict[Identifier, float] = field(default_factory=dict, init=False)

    @contextmanager
    def at(self, table: Table, emit: "Listener") -> Iterator[None]:
        """Wait for the turn, at most `LOCK_SECONDS`, and end it afterwards. Only what runs in it raises errors."""
        end = self._taken(table, emit)
        try:
            yield
        finally:
            with suppress(Exception):  # a lost connection has ended the turn
                end()

    def close(self) -> None:
        """Close the connections that are kept."""
        if self._connections is not None:
            self._connections.dispose()

    def _taken(self, table: Table, emit: "Listener") -> _GiveBack:
        name = table.name()
        passed_over = self._passed_over.get(name)
        if passed_over is not None and time.monotonic() - passed_over < REST_SECONDS:
            return _nothing
        try:
            end = self._take(table)
        except Exception as error:  # noqa: BLE001 - the commit does not depend on the turn
            self._passed_over[name] = time.monotonic()
            if passed_over is None:
                from lakesink_protocol.events import TurnPassedOver  # noqa: PLC0415 - commands that only read need no events

                emit(TurnPassedOver(".".join(name), describe(error, table.catalog.properties)))
            return _nothing
        self._passed_over.pop(name, None)
        return end

    def _take(self, table: Table) -> _GiveBack:
        if self.engine.dialect.name == "postgresql":
            return lock_key(self._connected(), key_of(table))
        folder = local_folder(table.metadata_location)
        return _nothing if folder is None else lock_folder(folder)

    def _connected(self) -> Connection:
        """A connection that no commit uses: commits that wait for their turns must not take those of the holder."""
        if self._connections is None or self._of_process != os.getpid():
            if self._connections is not None:  # they are the parent's, which goes on using them
                self._connections.dispose(close=False)
            self._connections, self._of_process = create_engine(self.engine.url, max_overflow=-1), os.getpid()
            sql_waits.bound_waits(self._connections)
        return self._connections.connect()


def key_of(table: Table) -> int:
    """The key of PostgreSQL's advisory lock for a table: 64 bits, signed. Another use of the key costs only time."""
    text = "\0".join(("lakesink", table.catalog.name, *table.name()))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), signed=True)


def lock_key(connection: Connection, key: int) -> _GiveBack:
    """Take an advisory lock until the end of a transaction; PostgreSQL serves in the order of arrival."""
    with _disconnected_by_errors(connection):
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({key})")
    return _disconnected_by_errors(connection)(connection.close)


@contextmanager
def _disconnected_by_errors(connection: Connection) -> Iterator[None]:
    """After an error, close the whole session, which ends its locks in every state of the connection."""
    try:
        yield
    except BaseException:
        for close in (connection.invalidate, connection.close):
            with suppress(Exception):
                close()
        raise


def local_folder(metadata_location: str) -> str | None:
    """The folder of a metadata file on a local disk; None elsewhere."""
    folder = metadata_location.rpartition("/")[0]
    if folder.startswith("/"):
        return folder
    place = urlsplit(folder)
    return place.path if place.scheme == "file" and place.netloc == "" and place.path.startswith("/") else None


def lock_folder(folder: str) -> _GiveBack:
    """Lock a folder itself, so that no file is made; Linux serves in the order of arrival."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _wait(place)
    except BaseException:
        os.close(place)
        raise
    return partial(_unlock, place)


def _wait(place: int) -> None:
    """Wait in a thread, because flock has no time limit. After the limit, the thread unlocks what it still gets."""
    had: Future[None] = Future()
    waiter = threading.Thread(target=_block, args=(place, had), daemon=True)
    try:
        waiter.start()
        had.result(sql_waits.LOCK_SECONDS)
    except BaseException as error:
        if waiter.ident is None:  # it could not be started
            os.close(place)
        elif not had.cancel() and had.exception() is None:
            _unlock(place)
        if isinstance(error, TimeoutError):
            raise TimeoutError(f"the turn was not free within {sql_waits.LOCK_SECONDS} s") from None
        raise


def _block(place: int, had: Future[Any]) -> None:
    try:
        fcntl.flock(place, fcntl.LOCK_EX)
    except OSError as error:
        os.close(place)
        if had.set_running_or_notify_cancel():
            had.set_exception(error)
        return
    if had.set_running_or_notify_cancel():
        had.set_result(None)
    else:
        _unlock(place)


def _unlock(place: int) -> None:
    """A process forked meanwhile has the same lock: closing alone would leave it locked until that process ends."""
    try:
        fcntl.flock(place, fcntl.LOCK_UN)
    finally:
        os.close(place)


def _nothing() -> None:
    """Ends no turn."""
