"""A two-phase sink whose tasks stage parts, and whose driver publishes them with one commit in the target's ledger."""

import uuid
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic

from lakesink._version import __version__
from lakesink.settings.options import read_option
from lakesink.sinks.record_folder import PreparedDirectory
from lakesink.sinks.staged.ledger import C, LedgerDecision, P, still_usable
from lakesink.sinks.staged.part_receipt import PartsReceipt, check_batch, decode_parts, part_stem
from lakesink.sinks.staged.parts import PartsWriter
from lakesink.sinks.unused_accept import UnusedAcceptWarning
from lakesink_catalog.commit.effects import Effects
from lakesink_protocol.errors import BatchRefused, CommitUnresolved, LakesinkError, Reason
from lakesink_protocol.events import BatchAborted, CommitUnknown, PreparedUnusable
from lakesink_protocol.fence import Fenced, MustBeWrittenAgain, Unseen, check_sent, fenced
from lakesink_protocol.identity import Batch
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.receipt_json import ReceiptInvalid
from lakesink_protocol.refusals.accept import Accept
from lakesink_protocol.refusals.message import refusal
from lakesink_protocol.refusals.texts import Words
from lakesink_protocol.retry import RetryPolicy
from lakesink_protocol.situation import Situation
from lakesink_protocol.two_phase import Durability, Payload, TaskWriter, TwoPhaseCommitSink
from lakesink_protocol.verdict import Commit, Refuse, Skip
from lakesink_protocol.votes import check_tasks, receipt_rejected


def option(name: str, value: Any, default: Any) -> Any:
    """The parsed value of an option; the default if it is not given."""
    return default if value is None else read_option(name, value)


@dataclass(frozen=True, slots=True)
class StagedTransaction(Generic[C]):
    """One batch that may be written; `begun_ms` is before any part. No writer if an operator skips the batch."""

    batch: Batch
    decision: LedgerDecision[C]
    begun_ms: int
    writer: TaskWriter | None
    prepared_log: PreparedDirectory


class StagedSink(TwoPhaseCommitSink[StagedTransaction[C], P], Generic[C, P]):
    """The steps of a batch. A subclass has the two ports of its target, and what it needs beside the parts.

    Attributes:
        kind: The kind of target, in events; `place` is this one.
        words: The texts of its refusals.
        retry: How often a commit is attempted.
        keeps_parts: True if parts become files of the target; False if only their rows get there.
        unresolved: The name of the error for a commit with an unknown outcome.
        prepared: The class of prepared batches.
    """

    durability = Durability.PREPARED_SURVIVES
    kind: str
    words: Sequence[Words]
    retry: RetryPolicy
    keeps_parts: bool
    unresolved: str
    prepared: type[P]

    def __init__(
        self, sink_id: str, place: str, accept: str | Accept | None, records: PreparedDirectory, effects: Effects
    ) -> None:
        self.sink_id, self.place, self._records, self._effects = sink_id, place, records, effects
        self.accept: Accept | None = option("accept", accept, None)
        self.accept_warning = UnusedAcceptWarning(self.accept, self.kind, place, sink_id)

    # The ledger

    @abstractmethod
    def decide_on(self, batch: Batch, attempt: int = 0) -> LedgerDecision[C]:
        """Read the ledger and decide on a batch: from attempt 1 on so that `publish` can rely on it."""

    def refused(self, reason: Reason, situation: Situation, *, overruled: str = "") -> BatchRefused:
        """The error for a refused batch, see `refusal`."""
        return refusal(reason, situation, self.words, overruled=overruled)

    # Publishing

    def check_target(self) -> None:
        """Refuse a target that cannot keep the promise. Called before rows are written."""

    @abstractmethod
    def has_parts(self, prepared: P) -> bool:
        """False if a part is gone, or has another size; need not look if none can be gone."""

    @abstractmethod
    def commit_of(self, facts: Mapping[str, Any], decision: LedgerDecision[C], prepared: P) -> C:
        """The commit for the ledger; `facts` has the fields of `StagedCommit`."""

    @abstractmethod
    def publish(self, commit: C, prepared: P) -> None:
        """Make the batch visible together with its commit. Returns only if that is certain."""

    def confirmed(self) -> None:
        """The ledger has a commit whose answer was lost."""

    @abstractmethod
    def describe(self, error: Exception) -> str:
        """One line about an error of an attempt, without secrets."""

    @abstractmethod
    def failures(self) -> AbstractContextManager[None]:
        """Converts errors of the target inside the block, which publishes nothing."""

    # What is written

    @abstractmethod
    def writer(self, batch: Batch) -> TaskWriter:
        """Stages the rows of a task, see `parts`."""

    def votes(self, batch: Batch, receipts: Sequence[bytes]) -> list[PartsReceipt]:
        """The parts of each task; raises ReceiptInvalid, or refuses rows that the target does not take."""
        return [decode_parts(data, self.stem(batch)) for data in receipts]

    @abstractmethod
    def prepared_facts(self, transaction: StagedTransaction[C]) -> dict[str, Any]:
        """The fields that a prepared batch has beside those of `PreparedParts`."""

    @abstractmethod
    def elsewhere(self, decision: LedgerDecision[C], prepared: P) -> str:
        """What an earlier run prepared this batch for; empty if it is this target."""

    # The steps

    def begin(self, batch: Batch) -> StagedTransaction[C] | AlreadyCommitted:
        """Read the ledger and decide on the batch."""
        begun_ms = self._effects.now_ms()
        with self.failures():
            decision = self.decide_on(batch)
            self.accept_warning.after_decision(decision.verdict, batch.batch_id, self._effects.emit)
            match decision.verdict:
                case Skip(snapshot_id=number):
                    return AlreadyCommitted(number)
                case Refuse(reason=reason):
                    raise self.refused(reason, decision.situation)
                case Commit(adds_rows=adds_rows):
                    self.check_target()
        if decision.head is not None:
            self._records.follow(decision.head.batch.batch_id, decision.head.batch.fingerprint)
        writer = self.writer(batch) if adds_rows else None
        return StagedTransaction(batch, decision, begun_ms, writer, self._records)

    def check_inputs(self, batch: Batch, transaction: StagedTransaction[C]) -> None:
        verdict = transaction.decision.verdict
        assert isinstance(verdict, Commit)
        if batch.missing_inputs and not verdict.without_inputs:
            raise self.refused(Reason.INPUT_MISSING, transaction.decision.situation, overruled=verdict.accepted)

    def recover(self, transaction: StagedTransaction[C], payload: Payload) -> P | None:
        """Use an earlier run's prepared batch if it follows the same commit and all its parts still exist."""
        prepared = self.prepared.parse(payload, self.stem(transaction.batch))
        trouble = "it is malformed" if prepared is None else self._trouble(transaction.decision, prepared)
        if trouble:
            self._effects.emit(PreparedUnusable(transaction.batch.batch_id, trouble))
            return None
        return prepared

    def pre_commit(self, transaction: StagedTransaction[C], receipts: Sequence[bytes]) -> P:
        """Check every receipt. The parts are closed, so nothing else is written here."""
        try:
            votes = self.votes(transaction.batch, receipts)
            parts = tuple(part for vote in votes for part in vote.parts)
            check_batch(parts)
        except ReceiptInvalid as error:
            raise receipt_rejected(str(error)) from None
        check_tasks(vote.task for vote in votes)
        decision = transaction.decision
        assert isinstance(decision.verdict, Commit)
        facts: dict[str, Any] = {"follows": decision.follows, "accepted": decision.verdict.accepted, "parts": parts}
        return self.prepared(commit_id=uuid.uuid4().hex, **facts, **self.prepared_facts(transaction))

    def commit(self, transaction: StagedTransaction[C], prepared: P) -> Outcome | None:
        """Publish the batch, or find it published; None if it must be written again."""
        attempts: Fenced[Outcome | MustBeWrittenAgain] = _Publication(self, transaction.batch, prepared, self._effects)
        found = fenced(attempts, self.retry, self._effects)
        if isinstance(found, Unseen):
            raise CommitUnresolved.of(
                self.unresolved,
                batch_id=transaction.batch.batch_id,
                sink=self.sink_id,
                attempts=found.attempts,
                trouble=found.trouble.rstrip("."),
            )
        return None if isinstance(found, MustBeWrittenAgain) else found

    def abort(self, transaction: StagedTransaction[C]) -> None:
        """Only log: closed parts stay, and nothing that readers see names them."""
        self._effects.emit(BatchAborted(transaction.batch.batch_id, self.kind, self.place))

    def stem(self, batch: Batch) -> str:
        """Start of the names of a batch's parts."""
        return part_stem(self.sink_id, batch.batch_id)

    def parts(self, batch: Batch, folder: str, codec: str, target_bytes: int) -> PartsWriter:
        """A writer of parts."""
        return PartsWriter(folder, self.stem(batch), batch.batch_id, codec, target_bytes)

    def _trouble(self, decision: LedgerDecision[C], prepared: P) -> str:
        """The reason that a prepared batch can no longer be published; empty if it can."""
        if not still_usable(decision, prepared):
            return "the ledger changed"
        elsewhere = self.elsewhere(decision, prepared)
        if elsewhere:
            return f"it was prepared for another {elsewhere}"
        with self.failures():
            return "" if self.has_parts(prepared) else "a part is missing or has another size"


@dataclass(slots=True)
class _Publication(Generic[C, P]):
    """The attempts to publish one batch. An outcome that is not known is never assumed: the ledger is read again."""

    sink: StagedSink[C, P]
    batch: Batch
    prepared: P
    effects: Effects
    _sent: bool = field(default=False, init=False)

    def attempt(self, number: int) -> Outcome | MustBeWrittenAgain | None:
        decision = self.sink.decide_on(self.batch, number)
        if not isinstance(decision.verdict, Commit):
            return self._found(decision, number)
        if not still_usable(decision, self.prepared) or not self.sink.has_parts(self.prepared):
            return MustBeWrittenAgain()
        commit = self.sink.commit_of(self._facts(decision.situation.view.last_sequence_number), decision, self.prepared)
        self._sent = True
        self.sink.publish(commit, self.prepared)
        return self._committed(commit.number, number)

    def look(self, number: int) -> Outcome | None:
        decision = self.sink.decide_on(self.batch, number)
        return None if isinstance(decision.verdict, Commit) else self._found(decision, number)

    def unsure(self, number: int, error: Exception) -> str:
        if isinstance(error, LakesinkError):
            raise error
        check_sent(error, sent=self._sent)
        trouble = self.sink.describe(error)
        self.effects.emit(CommitUnknown(self.batch.batch_id, number, trouble))
        return trouble

    def _facts(self, number: int) -> dict[str, object]:
        prepared = self.prepared
        return {
            "number": number,
            "sink_id": self.sink.sink_id,
            "batch": self.batch,
            "outcome": "accepted" if prepared.accepted else "recovered" if prepared.recovered else "committed",
            "accepted": prepared.accepted,
            "commit_id": prepared.commit_id,
            "committed_at": datetime.fromtimestamp(self.effects.now_ms() / 1000, UTC).isoformat(),
            "lakesink": __version__,
        }

    def _found(self, decision: LedgerDecision[C], attempt: int) -> Outcome:
        """The outcome of a decision that allows no commit."""
        if isinstance(decision.verdict, Refuse):
            raise self.sink.refused(decision.verdict.reason, decision.situation)
        assert isinstance(decision.verdict, Skip)
        number = decision.verdict.snapshot_id
        if number is not None and decision.commits[number].commit_id == self.prepared.commit_id:
            self.sink.confirmed()
            return self._committed(number, attempt)
        return AlreadyCommitted(number)

    def _committed(self, number: int, attempt: int) -> Committed:
        files = self.prepared.parts if self.sink.keeps_parts else ()
        return Committed(
            snapshot_id=number,
            rows=self.prepared.rows,
            files=len(files),
            bytes=sum(part.size_bytes for part in files),
            recovered=self.prepared.recovered,
            accepted=self.prepared.accepted or None,
            attempts=attempt,
        )
