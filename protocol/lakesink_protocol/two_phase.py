"""Two-phase commit in a stream processor: the seam that sinks implement, and the coordinator that runs one batch.

The idea is Flink's `TwoPhaseCommitSinkFunction` (Nowojski and Winters, 2018), in Spark's terms. The batch id is the
checkpoint barrier, and the tasks' receipts are the votes. From the prepared record, a restarted process commits what an
earlier one pre-committed. Everything here is pure: it decides the order of calls, and leaves files, catalogs and Spark
to the sinks.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from lakesink_protocol.errors import CommitUnresolved, LakesinkError, PartialBatch
from lakesink_protocol.identity import Batch
from lakesink_protocol.outcome import AlreadyCommitted, Outcome
from lakesink_protocol.redact import describe, safe_cause
from lakesink_protocol.refusal import input_missing
from lakesink_protocol.votes import Votes

Payload = Mapping[str, Any]


class Durability(Enum):
    """What remains after a crash between pre-commit and commit."""

    PREPARED_SURVIVES = "prepared survives a crash"
    MUST_BE_REDONE = "must be redone"


class TaskWriter(Protocol):
    """Turns the rows of one task into closed, unreferenced files. Pickled to executors: plain data, no clients.

    A writer with an attribute ``clustered_by`` gets all rows of a partition in one task, see
    `lakesink.spark.rows.distribution`.
    """

    def write(self, task: int, batches: Iterator[Any]) -> bytes:
        """Write one task's rows and return its encoded receipt.

        Executors call this once per attempt of a task. A retried or speculative attempt has the same `task`, so every
        file name must be new. Return only after all files are closed and durable.

        Args:
            task: Index of the task's partition in the job, from 0.
            batches: The task's rows as Arrow record batches.
        """
        ...


class Transaction(Protocol):
    """One participant's open batch: the decision of `begin`, and the writer for the executors."""

    @property
    def writer(self) -> TaskWriter | None:
        """The writer for the executors; None if the batch adds no rows here (an operator skipped it)."""

    @property
    def prepared_log(self) -> "PreparedLog":
        """The log that keeps the batch's prepared record, if this participant is its last or only one.

        A sink whose `durability` is `MUST_BE_REDONE` has `NoPreparedLog()`. For other sinks,
        `lakesink.sinks.records.PreparedDirectory` keeps the records in any folder.
        """


class Prepared(Protocol):
    """One participant's pre-committed batch: everything that `commit` needs; it must survive the end of the process."""

    @property
    def payload(self) -> Payload:
        """JSON form for the prepared record."""


class PreparedLog(Protocol):
    """Keeps the pre-commit of a batch through a crash: one record for all participants."""

    def find(self, batch: Batch) -> Mapping[str, Payload] | None:
        """Payloads by participant that an earlier run put for exactly this batch; None without a trustworthy record."""

    def put(self, batch: Batch, payloads: Mapping[str, Payload]) -> None:
        """Make the record durable in one step: a reader sees the complete record or none."""

    def landed(self, batch: Batch) -> None:
        """The batch is committed: records of earlier batches are no longer needed."""


@dataclass(frozen=True, slots=True)
class NoPreparedLog:
    """For sinks whose pre-commit is lost with the process: every replay writes again."""

    def find(self, batch: Batch) -> None:
        """Always None."""

    def put(self, batch: Batch, payloads: Mapping[str, Payload]) -> None:
        """Keeps nothing."""

    def landed(self, batch: Batch) -> None:
        """Has nothing to remove."""


T = TypeVar("T", bound=Transaction)
P = TypeVar("P", bound=Prepared)


class TwoPhaseCommitSink(ABC, Generic[T, P]):
    """One participant of a batch. All methods run on the driver, on the thread that runs the batch.

    A sink can be called several times for the same batch, by this process or another one, even while an older driver
    still runs. `begin` and `commit` must therefore check the target itself for the batch. `run_batch` describes the
    order of calls, which starts again if `commit` returns None.
    """

    name: str
    durability: Durability

    @abstractmethod
    def begin(self, batch: Batch) -> T | AlreadyCommitted:
        """Decide whether the batch may be written. Called first, before any row is read.

        Must not change what readers see. Idempotent.

        Raises:
            BatchRefused: The target's history does not allow this batch.
        """

    def check_inputs(self, batch: Batch, transaction: T) -> None:  # noqa: ARG002 - for those that have more to ask
        """Refuse a batch whose input files are missing. Called before rows are written, and only if rows are written.

        A sink that lets an operator overrule this refusal asks its transaction.

        Raises:
            BatchRefused: The batch would be written without some of its rows.
        """
        if batch.missing_inputs:
            raise input_missing(batch)

    @abstractmethod
    def recover(self, transaction: T, payload: Payload) -> P | None:
        """Turn the payload of an earlier pre-commit into a prepared batch, or return None to write again.

        Called after `begin`, only if a prepared record was found, and only if `durability` is `PREPARED_SURVIVES`. The
        payload comes from storage: validate it. Must not change anything.
        """

    @abstractmethod
    def pre_commit(self, transaction: T, receipts: Sequence[bytes]) -> P:
        """Complete the vote: check every task's receipt and make the batch ready to commit in one step.

        Called after the job succeeded; `receipts` has one receipt of every task, in their order. New files stay
        invisible to readers.

        Raises:
            WriteError: A receipt is malformed, or has other premises.
        """

    @abstractmethod
    def commit(self, transaction: T, prepared: P) -> Outcome | None:
        """Make the batch visible atomically, or find that it is. Idempotent: replays and rival drivers call it too.

        Called after every participant has pre-committed and the record is durable. Return None if the prepared batch
        may no longer be used, because the target's history changed: the batch is then written again.

        Raises:
            BatchRefused: The target's history no longer allows this batch.
            CommitUnresolved: The outcome is unknown; nothing was deleted.
        """

    @abstractmethod
    def abort(self, transaction: T) -> None:
        """Drop an open batch after a failure between `begin` and `commit`; must not delete anything that is usable.

        Called at most once a run, and not if the process dies.
        """


Write = Callable[[Mapping[str, TaskWriter]], Votes]
"""Runs one job over the batch's rows: task writers by participant in, the votes of its tasks out."""

MAX_WRITES = 2
NO_VOTES = Votes(0, ())


@dataclass(frozen=True, slots=True)
class _Open:
    sink: TwoPhaseCommitSink[Any, Any]
    transaction: Any


def run_batch(
    batch: Batch,
    sinks: Sequence[TwoPhaseCommitSink[Any, Any]],
    write: Write,
) -> dict[str, Outcome]:
    """Run one batch through every participant: decide for all, prepare all, then commit all in the given order.

    The last participant's log keeps the prepared record of all. It commits last, so it is pending, and its log at hand,
    whenever the record is still needed.

    Args:
        batch: The batch to run.
        sinks: Participants with distinct names, in the order of their commits.
        write: Runs the job; called at most once, unless the target's history changes under a prepared batch.

    Returns:
        The outcome of every participant, by name.

    Raises:
        BatchRefused: Some participant refused; nothing was committed in this run.
        PartialBatch: A participant failed after an earlier one had committed in this run.
        LakesinkError: The error of a participant; nothing was committed in this run.
    """
    outcomes: dict[str, Outcome] = {}
    landed: list[str] = []
    log: PreparedLog = NoPreparedLog()
    try:
        for _ in range(MAX_WRITES):
            pending = _prepare_all(batch, sinks, write, outcomes)
            log = _log_of([entry for entry, _ in pending]) if pending else log
            if _commit(pending, outcomes, landed):
                break
        else:
            raise _never_settled(batch)
    except LakesinkError as error:
        if not landed:
            raise
        raise _partial(landed, [sink.name for sink in sinks if sink.name not in outcomes], error) from error
    if landed:
        log.landed(batch)
    return outcomes


def writers_for(batch: Batch, sinks: Sequence[TwoPhaseCommitSink[Any, Any]]) -> dict[str, TaskWriter]:
    """The writers for the tasks of a batch, if another process counts their votes by `run_batch`.

    Changes nothing. Empty if there is nothing to write: the batch is committed, or prepared, or brings no rows.

    Raises:
        BatchRefused: Some participant refuses the batch.
    """
    begun = [(sink, sink.begin(batch)) for sink in sinks]
    pending = [_Open(sink, found) for sink, found in begun if not isinstance(found, AlreadyCommitted)]
    return {} if _recover(batch, pending) is not None else _writers(batch, pending)


def _prepare_all(
    batch: Batch,
    sinks: Sequence[TwoPhaseCommitSink[Any, Any]],
    write: Write,
    outcomes: dict[str, Outcome],
) -> list[tuple[_Open, Any]]:
    """Every participant that lacks the batch, with its prepared batch; the outcome of the others is recorded."""
    pending: list[_Open] = []
    try:
        for sink in sinks:
            begun = sink.begin(batch)
            if isinstance(begun, AlreadyCommitted):
                outcomes.setdefault(sink.name, begun)
            else:
                pending.append(_Open(sink, begun))
        prepared = _prepare(batch, pending, write) if pending else {}
    except BaseException:
        for entry in pending:
            entry.sink.abort(entry.transaction)
        raise
    return [(entry, prepared[entry.sink.name]) for entry in pending]


def _prepare(batch: Batch, pending: Sequence[_Open], write: Write) -> dict[str, Any]:
    recovered = _recover(batch, pending)
    if recovered is not None:
        return recovered
    writers = _writers(batch, pending)
    votes = write(writers) if writers else NO_VOTES
    votes.check(writers)
    prepared = {
        entry.sink.name: entry.sink.pre_commit(entry.transaction, votes.receipts(entry.sink.name)) for entry in pending
    }
    _log_of(pending).put(batch, {name: ready.payload for name, ready in prepared.items()})
    return prepared


def _log_of(pending: Sequence[_Open]) -> PreparedLog:
    log: PreparedLog = pending[-1].transaction.prepared_log
    return log


def _writers(batch: Batch, pending: Sequence[_Open]) -> dict[str, TaskWriter]:
    found: dict[str, TaskWriter] = {}
    for entry in pending:
        writer = entry.transaction.writer
        if writer is not None:
            entry.sink.check_inputs(batch, entry.transaction)
            found[entry.sink.name] = writer
    return found


def _recover(batch: Batch, pending: Sequence[_Open]) -> dict[str, Any] | None:
    """The batch that an earlier run prepared, if every pending participant can use its part; otherwise None."""
    if not pending or any(entry.sink.durability is Durability.MUST_BE_REDONE for entry in pending):
        return None
    payloads = _log_of(pending).find(batch)
    if payloads is None:
        return None
    recovered: dict[str, Any] = {}
    for entry in pending:
        payload = payloads.get(entry.sink.name)
        ready = None if payload is None else entry.sink.recover(entry.transaction, payload)
        if ready is None:
            return None
        recovered[entry.sink.name] = ready
    return recovered


def _commit(pending: Sequence[tuple[_Open, Any]], outcomes: dict[str, Outcome], landed: list[str]) -> bool:
    """Commit in order; False if some participant must be written again."""
    for entry, prepared in pending:
        outcome = _commit_one(entry, prepared, after_others=bool(landed))
        if outcome is None:
            return False
        outcomes[entry.sink.name] = outcome
        landed.append(entry.sink.name)
    return True


def _commit_one(entry: _Open, prepared: Any, *, after_others: bool) -> Outcome | None:
    """Translate all errors once others have committed, because then the error must name those participants."""
    try:
        return entry.sink.commit(entry.transaction, prepared)
    except LakesinkError:
        raise
    except Exception as error:
        if not after_others:
            raise
        raise CommitUnresolved(
            "COMMIT_UNRESOLVED",
            f"The commit of {entry.sink.name} failed: {describe(error)}",
            data="It may or may not have been carried out; nothing was deleted.",
            action="Correct what the message says, then start the query again.",
        ) from safe_cause(error)


def _partial(landed: Sequence[str], missing: Sequence[str], error: LakesinkError) -> PartialBatch:
    there, lacking = ", ".join(landed), ", ".join(missing)
    return PartialBatch(
        tuple(landed),
        f"{there} committed the batch, {lacking} did not ({error.code}).",
        data=f"The batch is in {there} and not known to be in {lacking}: {error.what}",
        action=f"{error.action} The restart replays the batch and skips those that committed.",
    )


def _never_settled(batch: Batch) -> CommitUnresolved:
    return CommitUnresolved(
        "COMMIT_UNRESOLVED",
        f"Batch {batch.batch_id} was prepared {MAX_WRITES} times and each time the table's ledger had moved on.",
        data="Nothing of this batch was committed by this run; no file was deleted.",
        action="Look for a second query with the same sink id, stop it, and start this one again.",
    )
