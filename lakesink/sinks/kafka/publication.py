"""Commits a prepared batch: its rows and one ledger record, in one transaction, by a driver that fenced all others.

An outcome that is not known is never assumed. The next attempt fences again, which ends the transaction one way or the
other, and reads the ledger after that.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from lakesink._version import __version__
from lakesink.sinks.kafka.commit_record import CommitRecord, LedgerDecision
from lakesink.sinks.kafka.failures import refused
from lakesink.sinks.kafka.prepared import PreparedRecords, still_usable
from lakesink.sinks.kafka.producing import commit_rows
from lakesink.sinks.kafka.staging import StagingFolder
from lakesink.sinks.kafka.target import KafkaTarget
from lakesink_catalog.commit.effects import Effects
from lakesink_protocol.errors import CommitUnresolved, LakesinkError
from lakesink_protocol.events import CommitUnknown
from lakesink_protocol.fence import Fenced, MustBeWrittenAgain, Unseen, check_sent, fenced
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.refusals.accept import Accept
from lakesink_protocol.retry import RetryPolicy
from lakesink_protocol.verdict import Commit, Refuse, Skip

RETRY = RetryPolicy(num_retries=8, total_timeout_ms=600_000)
"""For about ten minutes if the cluster is down. Then the query fails, and its restart commits the prepared batch."""


@dataclass(slots=True)
class Publication:
    """One batch to commit. `start_id` is the target's id at the start of this run."""

    target: KafkaTarget
    staging: StagingFolder
    effects: Effects
    accept: Accept | None
    start_id: str
    batch: Batch
    prepared: PreparedRecords
    _sent: bool = False

    def publish(self) -> Outcome | None:
        """Commit the batch, or find that it is committed.

        Returns None if the ledger changed or a part is missing: the batch must be written again. Raises
        CommitUnresolved after the last attempt: a restart resolves this.
        """
        attempts: Fenced[Outcome | MustBeWrittenAgain] = self
        found = fenced(attempts, RETRY, self.effects)
        if isinstance(found, Unseen):
            raise self._unresolved(found)
        return None if isinstance(found, MustBeWrittenAgain) else found

    def attempt(self, number: int) -> Outcome | MustBeWrittenAgain | None:
        """See `Fenced.attempt`."""
        session = self.target.take_session(number)
        decision = self._decision()
        if not isinstance(decision.verdict, Commit):
            return self._found(decision, number)
        if not still_usable(decision, self.prepared) or not self.staging.has_all(self.prepared.parts):
            return MustBeWrittenAgain()
        rows = self.staging.rows(self.prepared.parts)
        self._sent = True
        commit_rows(self.target, session, rows, self._record(decision), self.effects.emit)
        return self._committed(decision.next_number, number)

    def look(self, number: int) -> Outcome | None:
        """See `Fenced.look`."""
        self.target.fence()
        decision = self._decision()
        return None if isinstance(decision.verdict, Commit) else self._found(decision, number)

    def unsure(self, number: int, error: Exception) -> str:
        """See `Fenced.unsure`."""
        if isinstance(error, LakesinkError):
            raise error
        check_sent(error, sent=self._sent)
        trouble = self.target.clients.describe(error)
        self.effects.emit(CommitUnknown(self.batch.batch_id, number, trouble))
        return trouble

    def _decision(self) -> LedgerDecision:
        return self.target.state.decide_on(SinkKey(self.target.sink_id), self.batch, self.start_id, self.accept)

    def _record(self, decision: LedgerDecision) -> CommitRecord:
        """The ledger's record, under the number that follows the newest one."""
        assert isinstance(decision.verdict, Commit)
        prepared = self.prepared
        return CommitRecord(
            number=decision.next_number,
            sink_id=self.target.sink_id,
            target_id=self.target.state.target_id,
            batch=self.batch,
            ledger=decision.ledger_after(self.batch, moves=decision.verdict.moves_ledger),
            outcome="accepted" if prepared.accepted else "recovered" if prepared.recovered else "committed",
            accepted=prepared.accepted,
            commit_id=prepared.commit_id,
            rows=prepared.rows,
            committed_at=datetime.fromtimestamp(self.effects.now_ms() / 1000, UTC).isoformat(),
            lakesink=__version__,
        )

    def _found(self, decision: LedgerDecision, attempt: int) -> Outcome:
        """The outcome of a decision that allows no transaction."""
        if isinstance(decision.verdict, Refuse):
            raise refused(decision.verdict.reason, decision.situation)
        assert isinstance(decision.verdict, Skip)
        head = decision.head
        if head is not None and head.commit_id == self.prepared.commit_id:
            return self._committed(head.number, attempt)
        return AlreadyCommitted(decision.verdict.snapshot_id)

    def _committed(self, number: int, attempt: int) -> Committed:
        return Committed(
            snapshot_id=number,
            rows=self.prepared.rows,
            recovered=self.prepared.recovered,
            accepted=self.prepared.accepted or None,
            attempts=attempt,
        )

    def _unresolved(self, unseen: Unseen) -> CommitUnresolved:
        return CommitUnresolved(
            "COMMIT_UNRESOLVED",
            f"The commit of batch {self.batch.batch_id} of sink {self.target.sink_id!r} is not in the ledger topic"
            f" after attempt {unseen.attempts}.",
            data="The batch is prepared. It is unknown whether it is committed: Kafka ends the transaction on its own."
            f" Nothing was deleted. The last error: {unseen.trouble.rstrip('.')}.",
            action="Make the Kafka cluster reachable and start the query again. The replay finds the prepared batch,"
            " ends the open transaction, reads the ledger topic, and commits the batch at most once.",
        )
