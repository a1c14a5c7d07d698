"""Sound sinks on a SQL database: rows and ledger in one transaction, fenced in five ways."""

import sqlite3
import uuid
from collections.abc import Sequence
from contextlib import closing

from sqlite_sink import Open, Staged

from lakesink import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.identity import Batch
from tests.testing.sinks.staged import Entry, StagedSink, has

SELECT = "SELECT batch_id, query_id, fingerprint FROM ledger WHERE sink_id = 'events'"
INSERT = "INSERT INTO ledger VALUES ('events', ?, ?, ?)"


class SqlSink(StagedSink):
    """What the sinks of this file share."""

    schema = "CREATE TABLE IF NOT EXISTS events (batch INTEGER, position INTEGER)"

    def entries(self) -> Sequence[Entry]:
        with closing(self._connect()) as database:
            return self.known(database)

    def known(self, database: sqlite3.Connection) -> list[Entry]:
        return [Entry(*row) for row in database.execute(SELECT)]

    def rows(self) -> list[tuple[int, int]]:
        with closing(self._connect()) as database:
            return database.execute("SELECT batch, position FROM events").fetchall()

    def insert(self, database: sqlite3.Connection, prepared: Staged) -> int:
        return database.executemany("INSERT INTO events VALUES (?, ?)", self.staged_rows(prepared.files)).rowcount

    def done(self, batch: Batch, prepared: Staged) -> Committed:
        return Committed(batch.batch_id, len(self.staged_rows(prepared.files)), recovered=prepared.recovered)

    def found(self, batch: Batch) -> AlreadyCommitted:
        assert has(self.entries(), batch), "it was there a moment ago"
        return AlreadyCommitted(None)

    def _connect(self) -> sqlite3.Connection:
        database = super()._connect()
        database.executescript(self.schema)
        return database


class PrimaryKeySink(SqlSink):
    """As in PostgreSQL: whoever inserts the ledger's row first wins, and the other's transaction fails."""

    def commit(self, transaction: Open, prepared: Staged) -> Outcome:
        try:
            with closing(self._connect()) as database, database:
                database.execute("BEGIN")
                database.execute(INSERT, Entry.of(transaction.batch))
                self.insert(database, prepared)
        except sqlite3.IntegrityError:
            return self.found(transaction.batch)
        return self.done(transaction.batch, prepared)


class UpsertSink(SqlSink):
    """A unique constraint, and an insert that says whether it has inserted."""

    def commit(self, transaction: Open, prepared: Staged) -> Outcome:
        with closing(self._connect()) as database, database:
            database.execute("BEGIN")
            if database.execute(f"{INSERT} ON CONFLICT DO NOTHING", Entry.of(transaction.batch)).rowcount == 0:
                return self.found(transaction.batch)
            self.insert(database, prepared)
        return self.done(transaction.batch, prepared)


class CompareAndSwapSink(SqlSink):
    """One row holds the newest batch; it is exchanged only for the one that follows."""

    schema = """CREATE TABLE IF NOT EXISTS events (batch INTEGER, position INTEGER);
        CREATE TABLE IF NOT EXISTS newest (one INTEGER PRIMARY KEY, batch_id, query_id, fingerprint);"""

    def known(self, database: sqlite3.Connection) -> list[Entry]:
        newest = [Entry(*row) for row in database.execute("SELECT batch_id, query_id, fingerprint FROM newest")]
        return [
            one._replace(batch_id=older, fingerprint="?") for one in newest for older in range(one.batch_id)
        ] + newest

    def commit(self, transaction: Open, prepared: Staged) -> Outcome:
        batch, swap = (
            transaction.batch,
            "UPDATE newest SET batch_id = ?, query_id = ?, fingerprint = ? WHERE batch_id = ?",
        )
        with closing(self._connect()) as database, database:
            database.execute("BEGIN")
            database.execute("INSERT OR IGNORE INTO newest VALUES (1, -1, '', '')")
            if database.execute(swap, [*Entry.of(batch), batch.batch_id - 1]).rowcount == 0:
                return self.found(batch)
            self.insert(database, prepared)
        return self.done(batch, prepared)


class JoinedSink(SqlSink):
    """Rows go in early under an attempt's name; one row of the ledger says which attempt readers see."""

    schema = """CREATE TABLE IF NOT EXISTS hidden (attempt, batch INTEGER, position INTEGER);
        CREATE TABLE IF NOT EXISTS shown (batch_id PRIMARY KEY, query_id, fingerprint, attempt);"""

    def known(self, database: sqlite3.Connection) -> list[Entry]:
        return [Entry(*row) for row in database.execute("SELECT batch_id, query_id, fingerprint FROM shown")]

    def rows(self) -> list[tuple[int, int]]:
        with closing(self._connect()) as database:
            return database.execute("SELECT batch, position FROM hidden JOIN shown USING (attempt)").fetchall()

    def commit(self, transaction: Open, prepared: Staged) -> Outcome:
        attempt, rows = str(uuid.uuid4()), self.staged_rows(prepared.files)
        with closing(self._connect()) as database:
            with database:
                database.execute("BEGIN")
                database.executemany("INSERT INTO hidden VALUES (?, ?, ?)", [(attempt, *row) for row in rows])
            try:
                database.execute("INSERT INTO shown VALUES (?, ?, ?, ?)", [*Entry.of(transaction.batch), attempt])
            except sqlite3.IntegrityError:
                return self.found(transaction.batch)
        return self.done(transaction.batch, prepared)
