"""Publishes a prepared batch: one marker, created exclusively under the number after the newest.

The number is the fence: of two drivers only one creates it, and the other looks at the ledger again. Any answer but a
proven success proves nothing, so the next attempt looks. Nothing is ever deleted here.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lakesink import __version__
from lakesink.sinks.directory.ledger import Look, MarkerLedger
from lakesink.sinks.directory.marker import Marker
from lakesink.sinks.directory.prepared import PreparedParts, still_usable
from lakesink.sinks.directory.refusals import refused
from lakesink.sinks.directory.settings import FileSettings
from lakesink_catalog.commit.fence import Surroundings
from lakesink_protocol.errors import CommitUnresolved, LakesinkError
from lakesink_protocol.events import CommitAnswered, CommitDue, CommitUnknown
from lakesink_protocol.fence import Fenced, MustBeWrittenAgain, Unseen, fenced
from lakesink_protocol.identity import Batch
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.redact import describe
from lakesink_protocol.retry import RetryPolicy
from lakesink_protocol.verdict import Commit, Refuse, Skip

RETRY = RetryPolicy(num_retries=8)
"""About twenty seconds. Then the query fails, and its restart publishes the prepared batch."""


@dataclass(frozen=True, slots=True)
class Publication:
    """One batch to publish; parts older than `prepared_max_age` are checked before a marker names them."""

    ledger: MarkerLedger
    settings: FileSettings
    surroundings: Surroundings
    batch: Batch
    prepared: PreparedParts

    def publish(self) -> Committed | AlreadyCommitted | None:
        """Publish the batch, or find that it is published.

        Returns None if the ledger moved on or a part is missing: the batch must be written again. Raises
        CommitUnresolved after the last attempt: the marker may still appear, and a restart resolves it.
        """
        attempts: Fenced[Outcome | MustBeWrittenAgain] = self
        found = fenced(attempts, RETRY, self.surroundings)
        if isinstance(found, Unseen):
            raise self._unresolved(found)
        return None if isinstance(found, MustBeWrittenAgain) else found

    def attempt(self, number: int) -> Outcome | MustBeWrittenAgain | None:
        """See `Fenced.attempt`."""
        look = self.ledger.look(self.batch, self.settings.accept)
        if not isinstance(look.verdict, Commit):
            return self._found(look, number)
        if not still_usable(look, self.prepared):
            return MustBeWrittenAgain()
        self.surroundings.emit(CommitDue(self.batch.batch_id))
        if self._is_old() and not self.ledger.has_all(self.prepared.parts):
            return MustBeWrittenAgain()
        marker = self._marker(look)
        data = marker.to_bytes()
        self.ledger.storage.create(self.ledger.layout.marker(marker.number), data)
        self.surroundings.emit(CommitAnswered(self.batch.batch_id))
        self.ledger.landed(marker, len(data))
        return self._committed(marker.number, number)

    def look(self, number: int) -> Outcome | None:
        """See `Fenced.look`."""
        look = self.ledger.look(self.batch, self.settings.accept)
        return None if isinstance(look.verdict, Commit) else self._found(look, number)

    def unsure(self, number: int, error: Exception) -> str:
        """See `Fenced.unsure`."""
        if isinstance(error, LakesinkError):
            raise error
        trouble = describe(error)
        self.surroundings.emit(CommitUnknown(self.batch.batch_id, number, trouble))
        return trouble

    def _is_old(self) -> bool:
        """True if an orphan cleanup may have removed parts of this age, or the clock went backwards."""
        age = timedelta(milliseconds=self.surroundings.now_ms() - self.prepared.begun_ms)
        return not timedelta() <= age <= self.settings.prepared_max_age

    def _marker(self, look: Look) -> Marker:
        """The marker under the number that this look found free."""
        assert isinstance(look.verdict, Commit)
        entry, prepared = look.situation.entry, self.prepared
        moves = look.verdict.moves_ledger or entry is None
        return Marker(
            number=look.situation.view.last_sequence_number,
            sink_id=self.ledger.layout.sink_id,
            directory_id=prepared.directory_id,
            batch=self.batch,
            ledger_batch_id=self.batch.batch_id if moves or entry is None else entry.batch_id,
            outcome="accepted" if prepared.accepted else "recovered" if prepared.recovered else "committed",
            accepted=prepared.accepted,
            commit_id=prepared.commit_id,
            previous=prepared.follows,
            committed_at=datetime.fromtimestamp(self.surroundings.now_ms() / 1000, UTC).isoformat(),
            lakesink_version=__version__,
            format=prepared.format,
            parts=prepared.parts,
        )

    def _found(self, look: Look, attempt: int) -> Outcome:
        """The outcome of a look that allows no marker."""
        if isinstance(look.verdict, Refuse):
            raise refused(look.verdict.reason, look.situation)
        assert isinstance(look.verdict, Skip)
        number = look.verdict.snapshot_id
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
            f"Batch {self.batch.batch_id} of sink {sink_id!r} was not seen in the directory after {unseen.attempts}"
            " attempts.",
            data="The batch is prepared; it is not known to be in the directory. A request of ours may have landed, or"
            f" may still land. Nothing was deleted. The last trouble: {unseen.trouble.rstrip('.')}.",
            action="Make the storage reachable and start the query again: the replay finds the prepared batch, looks at"
            " the directory, and publishes it at most once.",
        )
