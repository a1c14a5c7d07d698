"""A stream of Pravega as an exactly-once sink: each batch is one transaction, which another process can commit by id.

Tasks stage events in files. The driver writes them into one transaction, and the prepared record keeps its id. The
commit elects the transaction by compare-and-swap in the ledger, then commits it: no second transaction of the batch is
ever committed, whichever driver prepared it.
"""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeGuard

from pravega_controller import Controller, LeaseRefused, PravegaFailed, State
from pravega_ledger import Elected, Fate, Held, Ledger, Standing, fate_of, forgotten, refused, standing
from pravega_staging import Encode, StagingWriter, key_and_value, staged_files
from pravega_transaction import is_durable, write_transaction

from lakesink import AlreadyCommitted, Committed, CommitUnresolved, Outcome, Reason, WriteError
from lakesink.sinks.record_folder import PreparedDirectory
from lakesink.testing import reached
from lakesink.two_phase import Durability, Payload, PreparedLog, TwoPhaseCommitSink
from lakesink_catalog.identity import Batch

DEFAULT_LEASE = timedelta(minutes=10)
"""The longest lease that a server grants unless it is configured otherwise."""
_MOST_ELECTIONS = 10
_PAUSE_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Open:
    """A batch that may be written."""

    batch: Batch
    writer: StagingWriter
    prepared_log: PreparedLog


@dataclass(frozen=True, slots=True)
class Prepared:
    """A transaction with all events of a batch, durable and open; no reader sees it."""

    stem: str
    ledger: str
    transaction: int
    rows: int
    size_bytes: int
    recovered: bool = False

    @property
    def payload(self) -> Payload:
        """For the prepared record."""
        return {
            "stem": self.stem,
            "ledger": self.ledger,
            "transaction": f"{self.transaction:032x}",
            "rows": self.rows,
            "bytes": self.size_bytes,
        }

    @classmethod
    def parsed(cls, payload: Payload) -> "Prepared | None":
        """A payload that comes from storage; None if it has another form."""
        stem, ledger, transaction = (payload.get(name) for name in ("stem", "ledger", "transaction"))
        rows, size_bytes = payload.get("rows"), payload.get("bytes")
        if not isinstance(stem, str) or not isinstance(ledger, str) or not _is_count(rows) or not _is_count(size_bytes):
            return None
        if not isinstance(transaction, str) or not re.fullmatch(r"[0-9a-f]{32}", transaction):
            return None
        return cls(stem, ledger, int(transaction, 16), rows, size_bytes, recovered=True)


class PravegaSink(TwoPhaseCommitSink[Open, Prepared]):
    """Writes each batch of a query into a stream of Pravega as one transaction.

    Args:
        controller: The stream, which exists.
        sink_id: Names the query for life.
        staging: Folder that driver and executors share.
        encode: Turns rows into events.
        lease: How long a prepared batch survives; Pravega then aborts it, and the batch is written again.
    """

    durability = Durability.PREPARED_SURVIVES

    def __init__(
        self,
        controller: Controller,
        *,
        sink_id: str,
        staging: Path | str,
        encode: Encode = key_and_value,
        lease: timedelta = DEFAULT_LEASE,
    ) -> None:
        self.name, self.staging, self.encode = sink_id, Path(staging), encode
        self.log: PreparedLog = PreparedDirectory(f"{staging}/prepared")
        self._controller, self._ledger = controller, Ledger(controller, sink_id)
        self._lease_ms = int(lease.total_seconds() * 1000)
        self._lease_is_granted = False

    def begin(self, batch: Batch) -> Open | AlreadyCommitted:
        """Ask the ledger before a row is read."""
        with self._answering(batch):
            self._check_lease(batch)
            newest = self._ledger.read().newest
            if self._has(batch, newest):
                return AlreadyCommitted(None)
        self.staging.mkdir(parents=True, exist_ok=True)
        return Open(batch, StagingWriter(str(self.staging), self._stem(batch), self.encode), self.log)

    def pre_commit(self, transaction: Open, receipts: Sequence[bytes]) -> Prepared:
        """Write the staged events into one transaction, and wait until all of it is durable."""
        batch, stem = transaction.batch, self._stem(transaction.batch)
        staged = staged_files(receipts, self.staging, stem)
        with self._answering(batch):
            born = self._ledger.opened().born
            written = write_transaction(self._controller, staged.events(), self._lease_ms)
        reached("example.pravega-durable", batch.batch_id)
        staged.remove()
        return Prepared(stem, born, written.transaction, written.rows, written.size_bytes)

    def recover(self, transaction: Open, payload: Payload) -> Prepared | None:
        """The transaction of an earlier run, if it is of this batch and this ledger, and still whole."""
        prepared = Prepared.parsed(payload)
        if prepared is None or prepared.stem != self._stem(transaction.batch):
            return None
        with self._answering(transaction.batch):
            held = self._ledger.read()
            if prepared.ledger != held.born:
                return None
            state = self._controller.state(prepared.transaction)
            if state is State.OPEN:
                whole = is_durable(self._controller, prepared.transaction, prepared.size_bytes)
                return prepared if whole else None
            ours = held.newest == Elected.of(transaction.batch, prepared.transaction)
            return prepared if ours and state in (State.COMMITTING, State.COMMITTED) else None

    def commit(self, transaction: Open, prepared: Prepared) -> Outcome | None:
        """Elect the transaction, or find another one elected; commit the elected one."""
        batch = transaction.batch
        with self._unresolved(batch):
            for _ in range(_MOST_ELECTIONS):
                held = self._ledger.read()
                own = Elected.of(batch, prepared.transaction)
                if standing(batch, held.newest) is Standing.NEXT or held.newest is None:
                    self._ledger.swap(held, own)
                    reached("example.pravega-elected", batch.batch_id)
                elif self._landed(held, held.newest, batch):
                    if held.newest.transaction != prepared.transaction:
                        return AlreadyCommitted(None)
                    return Committed(batch.batch_id, prepared.rows, recovered=prepared.recovered)
                elif held.newest.transaction == prepared.transaction:
                    return None  # Pravega aborted it: the batch is written again
                else:
                    self._ledger.swap(held, own)
            raise PravegaFailed("other drivers changed the ledger at each attempt")

    def abort(self, transaction: Open) -> None:
        """Nothing: an open transaction may be what another driver has prepared. Pravega aborts it in time."""

    def settle(self, *, landed: bool) -> None:
        """Write down what became of the newest batch, if Pravega has forgotten it and an operator has looked.

        Raises:
            ValueError: The newest batch is not in doubt.
        """
        held = self._ledger.read()
        newest = held.newest
        in_doubt = newest is not None and newest.fate is Fate.ELECTED
        if newest is None or not in_doubt or self._controller.state(newest.transaction) is not State.UNKNOWN:
            raise ValueError("Pravega knows what became of the newest batch")
        if not self._ledger.swap(held, replace(newest, fate=Fate.LANDED if landed else Fate.ABORTED)):
            raise ValueError("another driver has changed the ledger")

    def _has(self, batch: Batch, newest: Elected | None) -> bool:
        """Whether the stream has a batch; if not, it comes next."""
        stands = standing(batch, newest)
        if newest is None:
            return False
        landed = fate_of(newest, self._controller.state) is Fate.LANDED
        if stands is Standing.NEXT and not landed:
            raise refused(Reason.GAP, batch, f"comes before batch {newest.batch_id} is committed")
        return stands is Standing.THIS and landed

    def _landed(self, held: Held, elected: Elected, batch: Batch) -> bool:
        """Complete an elected transaction, whoever prepared it; False if Pravega aborted it."""
        if elected.fate is not Fate.ELECTED:
            return elected.fate is Fate.LANDED
        state = self._ended(elected.transaction)
        if state is State.UNKNOWN:
            raise forgotten(elected)
        if state is State.COMMITTED:
            reached("example.pravega-committed", batch.batch_id)
            self._ledger.swap(held, replace(elected, fate=Fate.LANDED))  # else another driver did
        return state is State.COMMITTED

    def _ended(self, transaction: int) -> State:
        """Commit a transaction, and return the state in which it ended."""
        deadline = time.monotonic() + self._controller.patience_seconds
        while time.monotonic() < deadline:
            state = self._controller.state(transaction)
            if state in (State.COMMITTED, State.ABORTED, State.UNKNOWN):
                return state
            if state is State.OPEN:
                self._controller.commit(transaction)
            time.sleep(_PAUSE_SECONDS)
        raise PravegaFailed(f"transaction {transaction:032x} is {state.name} for too long")

    def _check_lease(self, batch: Batch) -> None:
        """Ask once whether the server grants the lease, by a transaction that ends at once."""
        if self._lease_is_granted:
            return
        try:
            self._controller.abort(self._controller.begin(self._lease_ms))
        except LeaseRefused as error:
            raise WriteError(
                "PRAVEGA_LEASE",
                f"Pravega grants no lease of {self._lease_ms} ms.",
                data=f"Nothing of batch {batch.batch_id} was written.",
                action="Choose another `lease`, or set controller.transaction.lease.count.max of the server."
                f" It answered: {error}",
            ) from None
        self._lease_is_granted = True

    def _stem(self, batch: Batch) -> str:
        return f"{self.name}-{batch.batch_id}-{batch.fingerprint}"

    @contextmanager
    def _answering(self, batch: Batch) -> Iterator[None]:
        """Before the commit, a failure of Pravega leaves nothing that a reader sees."""
        try:
            yield
        except PravegaFailed as error:
            raise WriteError(
                "PRAVEGA_FAILED",
                f"Batch {batch.batch_id} was not prepared: {error}.",
                data=f"This run committed nothing of batch {batch.batch_id}.",
                action="Start the query again when Pravega answers and the stream is there.",
            ) from None

    @contextmanager
    def _unresolved(self, batch: Batch) -> Iterator[None]:
        """In the commit, only Pravega knows how far it came."""
        try:
            yield
        except PravegaFailed as error:
            raise CommitUnresolved(
                "COMMIT_UNRESOLVED",
                f"The commit of batch {batch.batch_id} did not end: {error}.",
                data="The stream has all rows of the batch or none; nothing was deleted.",
                action="Start the query again when Pravega answers: it asks for the batch first.",
            ) from None


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
