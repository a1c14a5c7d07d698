"""Two-phase commit in a stream processor: the seam that sinks implement. Pure.

`lakesink_protocol.coordinator` runs a batch through sinks of this kind, and decides the order of calls. Only the
sinks use files, catalogs and Spark.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from lakesink_protocol.identity import Batch
from lakesink_protocol.outcome import AlreadyCommitted, Outcome
from lakesink_protocol.refusals.message import input_missing

Payload = Mapping[str, Any]


class Durability(Enum):
    """State of a pre-committed batch after a crash before the commit."""

    PREPARED_SURVIVES = "prepared survives a crash"
    MUST_BE_REDONE = "must be redone"


class TaskWriter(Protocol):
    """Turns the rows of one task into closed, unreferenced files. Pickled to executors: plain data, no clients."""

    def write(self, task: int, batches: Iterator[Any]) -> bytes:
        """Write one task's rows and return its encoded receipt.

        Executors call this once per attempt of a task. A retried or speculative attempt has the same `task`, so every
        file name must be new. Return only after all files are closed and durable.

        Args:
            task: Index of the task's partition in the job, from 0.
            batches: The task's rows as Arrow record batches.
        """
        ...


ClusteredBy = Sequence[tuple[Sequence[str], str]]
"""Path of each source column from the top, and its transform in Iceberg's spelling."""


@runtime_checkable
class ClusteredWriter(TaskWriter, Protocol):
    """A task writer that needs all rows of a partition, or of a range of values, in one task, in any order."""

    @property
    def clustered_by(self) -> ClusteredBy:
        """The fields of the partitions; empty if each row may stay in its task."""

    @property
    def by_range(self) -> bool:
        """True if each task should get a range of the fields' values, the first field being the most significant."""


@runtime_checkable
class RoutingWriter(TaskWriter, Protocol):
    """A task writer that also writes rows for other participants, which the votes then name."""

    def receipts(self, name: str, written: bytes) -> Mapping[str, bytes]:
        """The receipts by participant in what `write` returned. Called on the driver: the bytes are untrusted.

        Raises:
            WriteError: The bytes are not what `write` returns.
        """


class Transaction(Protocol):
    """One participant's open batch: the decision of `begin`, and the writer for the executors."""

    @property
    def writer(self) -> TaskWriter | None:
        """The writer for the executors; None if the batch adds no rows here (an operator skipped it)."""

    @property
    def prepared_log(self) -> "PreparedLog":
        """The log that keeps the batch's prepared record, if this participant is its last or only one.

        A sink whose `durability` is `MUST_BE_REDONE` has `NoPreparedLog()`. For other sinks,
        `lakesink.sinks.record_folder.PreparedDirectory` keeps the records in any folder.
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


class WriteAgain:
    """The votes of all tasks changed how the batch is written: a job with the transaction's new writer runs."""


T = TypeVar("T", bound=Transaction)
P = TypeVar("P", bound=Prepared)


class TwoPhaseCommitSink(ABC, Generic[T, P]):
    """One participant of a batch. All methods run on the driver, on the thread that runs the batch.

    A sink can be called several times for the same batch, by this process or another one, even while an older driver
    still runs. `begin` and `commit` must therefore check the target itself for the batch. `run_batch` has the
    order of calls. The calls start again if `commit` returns None.
    """

    name: str
    durability: Durability
    open_named: "Callable[[str], TwoPhaseCommitSink[Any, Any]] | None" = None
    """Opens the participants that only this sink's task writers name; see `RoutingWriter`. A name is untrusted."""

    @abstractmethod
    def begin(self, batch: Batch) -> T | AlreadyCommitted:
        """Decide whether the batch may be written. Called first, before any row is read.

        Must not change what readers see. Idempotent.

        Raises:
            BatchRefused: The target's history does not allow this batch.
        """

    def check_inputs(self, batch: Batch, transaction: T) -> None:  # noqa: ARG002 - subclasses can use it
        """Refuse a batch whose input files are missing. Called before rows are written, and only if rows are written.

        A sink that lets an operator overrule this refusal checks its transaction for the accept.

        Raises:
            BatchRefused: The batch would be written without some of its rows.
        """
        if batch.missing_inputs:
            raise input_missing(batch)

    @abstractmethod
    def recover(self, transaction: T, payload: Payload) -> P | None:
        """Turn the payload of an earlier pre-commit into a prepared batch, or return None to write again.

        Called after `begin`, only if a prepared record was found, and only if `durability` is `PREPARED_SURVIVES`. The
        payload comes from storage: validate it. Do not change anything.
        """

    def write_rest(
        self,
        transaction: T,  # noqa: ARG002 - sinks can use it
        receipts: Sequence[bytes],  # noqa: ARG002 - as above
    ) -> bytes | WriteAgain | None:
        """Write on the driver, as one more task, the rows that tasks left because they needed the votes of all tasks.

        Called after the job, before `pre_commit`, if the transaction has a writer; `receipts` has one receipt of every
        task, in their order. The result is what the writer's `write` returns, and becomes the last vote; None if no
        task left a row. `WriteAgain` if what these tasks wrote cannot be used: the transaction then has another writer.

        Raises:
            WriteError: A receipt is malformed, or the rows cannot be written.
        """
        return None

    @abstractmethod
    def pre_commit(self, transaction: T, receipts: Sequence[bytes]) -> P | None:
        """Complete the vote: check every task's receipt and make the batch ready to commit in one step.

        Called after the job succeeded; `receipts` has one receipt of every task, in the order of the tasks. New files
        stay invisible to readers. A participant that only votes name can return None: the batch has nothing for it,
        and it is left out.

        Raises:
            WriteError: A receipt is malformed, or its files have another schema or partition spec.
        """

    @abstractmethod
    def commit(self, transaction: T, prepared: P) -> Outcome | None:
        """Make the batch visible atomically, or find it visible. Idempotent: replays and rival drivers call it too.

        Called after every participant has pre-committed and the record is durable. Return None if the prepared batch
        may no longer be used, because the target's history changed: the batch is then written again.

        Raises:
            BatchRefused: The target's history no longer allows this batch.
            CommitUnresolved: The outcome is unknown; nothing was deleted.
        """

    @abstractmethod
    def abort(self, transaction: T) -> None:
        """Drop an open batch after a failure between `begin` and `commit`; must not delete anything usable.

        Called at most once per run, and not if the process dies.
        """

    def maintain(self, *, at_end: bool = False) -> None:
        """Keep the target in order between two batches; must not raise.

        Called when a batch has landed and is reported, and `at_end` of a query that ends by itself.
        """
