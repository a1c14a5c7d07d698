"""A SQLite table as an exactly-once sink: tasks stage their rows in files, and ONE transaction makes them rows.

That transaction also writes the batch into a ledger beside the table. So the database itself knows which batches it
has, whoever asks: the same driver, the next one after a crash, or one that was thought dead.
"""

import itertools
import json
import os
import re
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import pyarrow as pa

from lakesink import AlreadyCommitted, BatchRefused, Committed, Outcome, Reason, WriteError
from lakesink.sinks.record_folder import PreparedDirectory
from lakesink.two_phase import Durability, Payload, PreparedLog, TwoPhaseCommitSink
from lakesink_catalog.identity import Batch

LEDGER = "CREATE TABLE IF NOT EXISTS ledger (sink_id, batch_id, query_id, fingerprint, PRIMARY KEY (sink_id, batch_id))"


@dataclass(frozen=True)
class StagingWriter:
    """Runs in executors. Plain data: it is pickled. Its files have names that no other attempt gives."""

    folder: str
    batch: str

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        """Stage one task's rows; the receipt says in which file, and how many."""
        files, first = [], next(batches, None)
        if first is not None:
            files = [f"{self.batch}-{task}-{uuid.uuid4()}.arrow"]
            with (Path(self.folder) / files[0]).open("xb") as file:
                with pa.ipc.new_stream(file, first.schema) as staged:
                    for rows in itertools.chain([first], batches):
                        staged.write(rows)
                os.fsync(file.fileno())  # durable before it is voted for
        return json.dumps({"batch": self.batch, "task": task, "files": files}).encode()


@dataclass(frozen=True)
class Open:
    """A batch that may be written."""

    batch: Batch
    writer: StagingWriter
    prepared_log: PreparedLog


@dataclass(frozen=True)
class Staged:
    """A batch whose rows are all staged: what a restart needs to commit it."""

    files: list[str]
    recovered: bool = False

    @property
    def payload(self) -> Payload:
        """For the prepared record."""
        return {"files": self.files}


class SqliteSink(TwoPhaseCommitSink[Open, Staged]):
    """Inserts a stream's rows into one table of a SQLite database, which has columns of the same names.

    Args:
        database: File on the driver's machine.
        table: The table.
        sink_id: Names the stream for life.
        staging: Folder that driver and executors share.
    """

    durability = Durability.PREPARED_SURVIVES

    def __init__(self, database: Path, table: str, sink_id: str, staging: Path) -> None:
        self.database, self.table, self.name, self.staging = database, table, sink_id, staging
        # Records what is staged, so that a crash before the commit costs nothing: one small file a batch.
        self.log: PreparedLog = PreparedDirectory(f"{staging}/prepared")

    def begin(self, batch: Batch) -> Open | AlreadyCommitted:
        """Ask the ledger before a row is read."""
        self.staging.mkdir(parents=True, exist_ok=True)
        with closing(self._connect()) as database:
            there = self._has(database, batch)
        if there:
            return AlreadyCommitted(None)
        return Open(batch, StagingWriter(str(self.staging), self._stem(batch)), self.log)

    def pre_commit(self, transaction: Open, receipts: Sequence[bytes]) -> Staged:
        """One sound receipt of every task, or no batch."""
        try:
            votes = sorted(map(json.loads, receipts), key=lambda vote: vote["task"])
            cast = [(vote["batch"], vote["task"]) for vote in votes]
            files = [name for vote in votes for name in vote["files"]]
        except (ValueError, TypeError, KeyError):
            cast, files = None, []
        tasks = [(self._stem(transaction.batch), task) for task in range(len(receipts))]
        if cast != tasks or not self._are_staged(files, transaction.batch):
            raise WriteError(
                "RECEIPT_REJECTED", "A receipt was rejected.", data="Nothing is in.", action="Start again."
            )
        return Staged(files)

    def recover(self, transaction: Open, payload: Payload) -> Staged | None:
        """What an earlier run staged, if all of it is there; a record is data from storage, and checked."""
        files = payload.get("files")
        return Staged(files, recovered=True) if self._are_staged(files, transaction.batch) else None

    def commit(self, transaction: Open, prepared: Staged) -> Outcome:
        """Rows and ledger in one transaction, which first asks the ledger again: somebody may have been faster."""
        batch, rows = transaction.batch, 0
        with closing(self._connect()) as database, database:
            database.execute("BEGIN IMMEDIATE")
            if self._has(database, batch):
                return AlreadyCommitted(None)
            for name in prepared.files:
                rows += self._insert(database, self.staging / name)
            values = (self.name, batch.batch_id, batch.query_id, batch.fingerprint)
            database.execute("INSERT INTO ledger VALUES (?, ?, ?, ?)", values)
        for name in prepared.files:  # the rows are in the table, and whoever comes late asks the ledger first
            (self.staging / name).unlink(missing_ok=True)
        return Committed(batch.batch_id, rows, recovered=prepared.recovered)

    def abort(self, transaction: Open) -> None:
        """Nothing: what is staged may be what another driver has prepared."""

    def _has(self, database: sqlite3.Connection, batch: Batch) -> bool:
        """Whether the batch is in, or comes next; anything else is a story that a human must hear."""
        newest = "SELECT coalesce(max(batch_id), -1) FROM ledger WHERE sink_id = ?"
        [last] = database.execute(newest, [self.name]).fetchone()
        if batch.batch_id > last + 1:
            raise _refused(Reason.GAP, batch, f"does not follow batch {last}")
        told = "SELECT query_id, fingerprint FROM ledger WHERE sink_id = ? AND batch_id = ?"
        near = database.execute(told, [self.name, min(batch.batch_id, last)]).fetchone()
        if near is not None and near[0] != batch.query_id:
            raise _refused(Reason.NEW_CHECKPOINT, batch, "comes from another checkpoint")
        if batch.batch_id <= last and near[1] != batch.fingerprint:
            raise _refused(Reason.BATCH_CHANGED, batch, "came back with other data")
        return bool(batch.batch_id <= last)

    def _are_staged(self, files: Any, batch: Batch) -> TypeGuard[list[str]]:
        """Whether these are files of this batch, each named once, and there. Receipts and records may say anything."""
        name = re.compile(re.escape(self._stem(batch)) + r"-\d+-[0-9a-f-]{36}\.arrow")
        return (
            isinstance(files, list)
            and all(isinstance(file, str) and name.fullmatch(file) and (self.staging / file).exists() for file in files)
            and len(set(files)) == len(files)
        )

    def _insert(self, database: sqlite3.Connection, staged: Path) -> int:
        with pa.ipc.open_stream(staged.read_bytes()) as batches:
            columns = ", ".join(map(_quoted, batches.schema.names))
            marks = ", ".join("?" for _ in batches.schema.names)
            insert = f"INSERT INTO {_quoted(self.table)} ({columns}) VALUES ({marks})"  # noqa: S608 - quoted names
            rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
        database.executemany(insert, rows)
        return len(rows)

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.database, timeout=60, isolation_level=None)
        database.execute(LEDGER)
        return database

    def _stem(self, batch: Batch) -> str:
        return f"{self.name}-{batch.batch_id}-{batch.fingerprint}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _refused(reason: Reason, batch: Batch, why: str) -> BatchRefused:
    what = f"Batch {batch.batch_id} {why}."
    return BatchRefused(reason, what, data="Nothing of it is in the table.", action="Restore the checkpoint.")
