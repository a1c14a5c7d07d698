"""Publishes a prepared batch: creates one marker exclusively, under the number after the newest marker.

The number is the fence: only one of two drivers can create this marker, and the other reads the ledger again. Only a
proven success counts: after any other answer, the next attempt reads the ledger. This module deletes nothing.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lakesink import __version__
from lakesink.sinks.directory.ledger import LedgerDecision, MarkerLedger
from lakesink.sinks.directory.marker import Marker
from lakesink.sinks.directory.prepared import PreparedParts, still_usable
from lakesink.sinks.directory.refusals import refused
from lakesink.sinks.directory.settings import FileSettings
from lakesink_catalog.commit.fence import Effects
from lakesink_protocol.errors import CommitUnresolved, LakesinkError
from lakesink_protocol.events import CommitAnswered, CommitDue, CommitUnknown
from lakesink_protocol.fence import Fenced, MustBeWrittenAgain, Unseen, check_sent, fenced
from lakesink_protocol.identity import Batch
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.redact import describe
from lakesink_protocol.retry import RetryPolicy
from lakesink_protocol.verdict import Commit, Refuse, Skip

RETRY = RetryPolicy(num_retries=8)
"""Retries for about twenty seconds. Then the query fails, and its restart publishes the prepared batch."""


@dataclass(slots=True)
class Publication:
    """One batch to publish; parts older than `prepared_max_age` must still exist before a marker names them."""

    ledger: MarkerLedger
    settings: FileSettings
    effects: Effects
    batch: Batch
    prepared: PreparedParts
    _sent: bool = False

    def publish(self) -> Committed | AlreadyCommitted | None:
        """Publish the batch, or find that it is published.

        Returns None if the ledger changed or a part is missing: the batch must be written again. Raises
        CommitUnresolved after the last attempt: the marker may still appear, and a restart resolves this.
        """
        attempts: Fenced[Outcome | MustBeWrittenAgain] = self
        found = fenced(attempts, RETRY, self.effects)
        if isinstance(found, Unseen):
            raise self._unresolved(found)
        return None if isinstance(found, MustBeWrittenAgain) else found

    def attempt(self, number: int) -> Outcome | MustBeWrittenAgain | None:
        """See `Fenced.attempt`."""
        decision = self.ledger.decide_on(self.batch, self.settings.accept)
        if not isinstance(decision.verdict, Commit):
            return self._found(decision, number)
        if not still_usable(decision, self.prepared):
            return MustBeWrittenAgain()
        self.effects.emit(CommitDue(self.batch.batch_id))
        if self._is_old() and not self.ledger.has_all(self.prepared.parts):
            return MustBeWrittenAgain()
        marker = self._marker(decision)
        data = marker.to_bytes()
        self._sent = True
        self.ledger.storage.create(self.ledger.layout.marker(marker.number), data)
        self.effects.emit(CommitAnswered(self.batch.batch_id))
        self.ledger.landed(marker, len(data))
        return self._committed(marker.number, number)

    def look(self, number: int) -> Outcome | None:
        """See `Fenced.look`."""
        decision = self.ledger.decide_on(self.batch, self.settings.accept)
        return None if isinstance(decision.verdict, Commit) else self._found(decision, number)

    def unsure(self, number: int, error: Exception) -> str:
        """See `Fenced.unsure`."""
        if isinstance(error, LakesinkError):
            raise error
        check_sent(error, sent=self._sent)
        trouble = describe(error)
        self.effects.emit(CommitUnknown(self.batch.batch_id, number, trouble))
        return trouble

    def _is_old(self) -> bool:
        """True if an orphan cleanup may have removed parts of this age, or if the clock went backwards."""
        age = timedelta(milliseconds=self.effects.now_ms() - self.prepared.begun_ms)
        return not timedelta() <= age <= self.settings.prepared_max_age

    def _marker(self, decision: LedgerDecision) -> Marker:
        """The marker, under the number that was free when the decision was made."""
        assert isinstance(decision.verdict, Commit)
        entry, prepared = decision.situation.entry, self.prepared
        moves = decision.verdict.moves_ledger or entry is None
        return Marker(
            number=decision.situation.view.last_sequence_number,
            sink_id=self.ledger.layout.sink_id,
            directory_id=prepared.directory_id,
            batch=self.batch,
            ledger_batch_id=self.batch.batch_id if moves or entry is None else entry.batch_id,
            outcome="accepted" if prepared.accepted else "recovered" if prepared.recovered else "committed",
            accepted=prepared.accepted,
            commit_id=prepared.commit_id,
            previous=prepared.follows,
            committed_at=datetime.fromtimestamp(self.effects.now_ms() / 1000, UTC).isoformat(),
            lakesink_version=__version__,
            parts=prepared.parts,
        )

    def _found(self, decision: LedgerDecision, attempt: int) -> Outcome:
        """The outcome of a decision that allows no marker."""
        if isinstance(decision.verdict, Refuse):
            raise refused(decision.verdict.reason, decision.situation)
        assert isinstance(decision.verdict, Skip)
        number = decision.verdict.snapshot_id
        if number is not None and self.ledger[number].commit_id == self.prepared.commit_id:
            self.ledger.raise_high_water()
            return self._committed(number, attempt)
        return AlreadyCommitted(number)

    def _committed(self, number: int, attempt: int) -> Committed:
        parts = self.prepared.parts
        return Committed(
            snapshot_id=number,
            rows=sum(part.rows for part in parts),
            files=len(parts),
            bytes=sum(part.size_bytes for part in parts),
            recovered=self.prepared.recovered,
            accepted=self.prepared.accepted or None,
            attempts=attempt,
        )

    def _unresolved(self, unseen: Unseen) -> CommitUnresolved:
        sink_id = self.ledger.layout.sink_id
        return CommitUnresolved(
            "COMMIT_UNRESOLVED",
            f"The commit of batch {self.batch.batch_id} of sink {sink_id!r} is not visible in the directory after"
            f" attempt {unseen.attempts}.",
            data="The batch is prepared. It is unknown whether it is committed: an earlier request may still take"
            f" effect. Nothing was deleted. The last error: {unseen.trouble.rstrip('.')}.",
            action="Make the storage reachable and start the query again. The replay finds the prepared batch, checks"
            " the directory, and publishes the batch at most once.",
        )
