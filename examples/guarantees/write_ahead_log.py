"""A write-ahead log: the batch is logged whole, then sent row by row, then confirmed. Two holes are left.

It has the same phases as two-phase commit, and the log even survives a source that cannot replay. What it lacks is the
one thing that counts: `commit` is not atomic. The store cannot take rows and confirmation in one step, so

1. who dies in the middle of sending has sent a part, and the whole log is sent again;
2. who dies between the last row and the confirmation has sent everything, and it is sent again.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from lakesink import AlreadyCommitted, Committed, Outcome
from lakesink.sinks.record_folder import PreparedDirectory
from lakesink.two_phase import Durability, Payload, TwoPhaseCommitSink
from lakesink_catalog.identity import Batch

from .store import Store


@dataclass(frozen=True)
class Collecting:
    """Runs in executors. Its receipt is all that the log needs: the rows themselves."""

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        """One task's rows."""
        rows = [list(row.values()) for batch in batches for row in batch.to_pylist()]
        return json.dumps({"task": task, "rows": rows}).encode()


@dataclass(frozen=True)
class Open:
    """A batch that is not confirmed."""

    batch: Batch
    writer: Collecting
    prepared_log: PreparedDirectory


@dataclass(frozen=True)
class Logged:
    """A batch that the log holds."""

    rows: list[list[int]]
    recovered: bool = False

    @property
    def payload(self) -> Payload:
        """What the log holds of it."""
        return {"rows": self.rows}


class WriteAheadLog(TwoPhaseCommitSink[Open, Logged]):
    """Logs every batch before it sends it to a store.

    Args:
        store: Where the rows go.
        folder: Of the log, and of the newest confirmation.
    """

    name = "write-ahead-log"
    durability = Durability.PREPARED_SURVIVES

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.confirmed = folder / "confirmed"
        # The write-ahead log: one file a batch, whole or absent, tidied when a later batch is confirmed.
        self.log = PreparedDirectory(f"{folder}/log")

    def begin(self, batch: Batch) -> Open | AlreadyCommitted:
        """Confirmed is done. What was sent and not confirmed, nobody knows."""
        newest = int(self.confirmed.read_text()) if self.confirmed.exists() else -1
        return AlreadyCommitted(None) if batch.batch_id <= newest else Open(batch, Collecting(), self.log)

    def pre_commit(self, transaction: Open, receipts: Sequence[bytes]) -> Logged:  # noqa: ARG002 - as the seam has it
        """Everything that is to be sent."""
        return Logged([row for receipt in receipts for row in json.loads(receipt)["rows"]])

    def recover(self, transaction: Open, payload: Payload) -> Logged | None:  # noqa: ARG002 - as the seam has it
        """The log, read again after a crash: the source is not asked."""
        return Logged(payload["rows"], recovered=True)

    def commit(self, transaction: Open, prepared: Logged) -> Outcome:
        """Send, then confirm: two steps, and one can die between them."""
        batch_id = transaction.batch.batch_id
        self.store.insert([(device, reading) for device, reading in prepared.rows], batch_id)
        staged = self.confirmed.with_suffix(".staged")
        staged.write_text(str(batch_id))
        staged.rename(self.confirmed)
        return Committed(batch_id, len(prepared.rows), recovered=prepared.recovered)

    def abort(self, transaction: Open) -> None:
        """Nothing was sent."""
