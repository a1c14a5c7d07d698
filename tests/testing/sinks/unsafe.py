"""Unsafe sinks: sound as long as no other driver comes between two of their steps."""

import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from sqlite_sink import Open, Staged

from lakesink import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.identity import Batch
from tests.testing.sinks.markers import MarkerSink
from tests.testing.sinks.staged import Entry, StagedSink, has
from tests.testing.sinks.transactions import SqlSink


class AsksThenPublishes(StagedSink):
    """Looks whether the batch is there, and then appends it in one write."""

    def told(self) -> list[tuple[Entry, list[str]]]:
        path = self.folder / "published"
        found = map(json.loads, path.read_bytes().splitlines()) if path.exists() else ()
        return [(Entry(*entry), files) for entry, files in found]

    def entries(self) -> Sequence[Entry]:
        return [entry for entry, _ in self.told()]

    def rows(self) -> list[tuple[int, int]]:
        return [row for _, files in self.told() for row in self.staged_rows(files)]

    def commit(self, transaction: Open, prepared: Staged) -> Outcome:
        if has(self.entries(), transaction.batch):
            return AlreadyCommitted(None)
        return self.publish(transaction.batch, prepared)

    def publish(self, batch: Batch, prepared: Staged) -> Outcome:
        line = json.dumps([Entry.of(batch), prepared.files]).encode() + b"\n"
        file = os.open(self.folder / "published", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, line)
        os.close(file)
        return Committed(batch.batch_id, len(self.staged_rows(prepared.files)), recovered=prepared.recovered)


class ReplacesTheMarker(MarkerSink):
    """Looks for a marker, and puts its own by a rename that replaces."""

    def put(self, temporary: Path, batch_id: int) -> bool:
        if self.marker(batch_id).exists():
            return False
        os.replace(temporary, self.marker(batch_id))  # noqa: PTH105 - the bug, as it is written in the field
        return True


class LooksBeforeTheLock(SqlSink):
    """The example, with its look before the transaction and a ledger without a primary key."""

    def commit(self, transaction: Open, prepared: Staged) -> Outcome:
        with closing(self._connect()) as database, database:
            if self._has(database, transaction.batch):
                return AlreadyCommitted(None)
            database.execute("BEGIN IMMEDIATE")
            self.insert(database, prepared)
            values = (self.name, *Entry.of(transaction.batch))
            database.execute("INSERT INTO ledger VALUES (?, ?, ?, ?)", values)
        return self.done(transaction.batch, prepared)

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.database, timeout=60, isolation_level=None)
        database.execute("CREATE TABLE IF NOT EXISTS ledger (sink_id, batch_id, query_id, fingerprint)")
        database.executescript(self.schema)
        return database


class AsksInTheSameLine(AsksThenPublishes):
    """The same in one line, which no look from line to line can divide."""

    def commit(self, transaction: Open, prepared: Staged) -> Outcome:
        line = json.dumps([Entry.of(transaction.batch), prepared.files]).encode() + b"\n"
        file = os.open(self.folder / "published", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        wrote = not has(self.entries(), transaction.batch) and os.write(file, line)
        os.close(file)
        rows = len(self.staged_rows(prepared.files))
        return (
            Committed(transaction.batch.batch_id, rows, recovered=prepared.recovered)
            if wrote
            else AlreadyCommitted(None)
        )


class WipesAtTheFirstBegin(AsksThenPublishes):
    """Makes its file where there is none, and so takes away what came between its look and its making."""

    def begin(self, batch: Batch) -> Open | AlreadyCommitted:
        path = self.folder / "published"
        if not path.exists():
            path.write_bytes(b"")
        return super().begin(batch)


UNSAFE = (AsksThenPublishes, ReplacesTheMarker, LooksBeforeTheLock)
