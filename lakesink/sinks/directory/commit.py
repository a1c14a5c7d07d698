"""Publishes a prepared batch: one marker, created exclusively under the number after the newest.

The number is the fence: of two drivers only one creates it, and the other looks at the ledger again. Any answer but a
proven success proves nothing, so the next attempt looks. Nothing is ever deleted here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from lakesink import __version__
from lakesink.sinks.directory.ledger import Look, MarkerLedger
from lakesink.sinks.directory.marker import Marker
from lakesink.sinks.directory.prepared import PreparedParts, still_usable
from lakesink.sinks.directory.refusals import refused
from lakesink_protocol.accept import Accept
from lakesink_protocol.errors import CommitUnresolved, LakesinkError
from lakesink_protocol.events import CommitAnswered, CommitDue, CommitUnknown, Listeners
from lakesink_protocol.fence import Fenced, MustBeWrittenAgain, Unseen, fenced
from lakesink_protocol.identity import Batch
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.redact import describe
from lakesink_protocol.retry import RetryPolicy, Waiting
from lakesink_protocol.verdict import Commit, Refuse, Skip

RETRY = RetryPolicy(num_retries=8)
"""About twenty seconds. Then the query fails, and its restart publishes the prepared batch."""


class Surroundings(Waiting, Protocol):
    """Clock, sleep, randomness and listeners, as in `lakesink_catalog.commit.fence.Surroundings`."""

    @property
    def now_ms(self) -> Callable[[], int]:
        """Wall clock, milliseconds since the epoch."""

    @property
    def emit(self) -> Listeners:
        """Receives every event."""


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes one sink's batches; parts older than `prepared_max_age` are checked before a marker names them."""

    ledger: MarkerLedger
    accept: Accept | None
    prepared_max_age: timedelta
    surroundings: Surroundings
    retry: RetryPolicy = RETRY

    def look(self, batch: Batch) -> Look:
        """Read the ledger and decide on the batch."""
        return self.ledger.look(batch, self.accept)

    def publish(self, batch: Batch, prepared: PreparedParts) -> Committed | AlreadyCommitted | None:
        """Publish a prepared batch, or find that it is published.

        Returns None if the ledger moved on or a part is missing: the batch must be written again. Raises
        CommitUnresolved after the last attempt: the marker may still appear, and a restart resolves it.
        """
        attempts: Fenced[Outcome | MustBeWrittenAgain] = _Attempts(self, batch, prepared)
        found = fenced(attempts, self.retry, self.surroundings)
        if isinstance(found, Unseen):
            raise _unresolved(self.ledger.layout.sink_id, batch, found)
        return None if isinstance(found, MustBeWrittenAgain) else found

    def has_all(self, prepared: PreparedParts) -> bool:
        """True if every part exists in its recorded size."""
        parts = self.ledger.layout.parts
        sizes = self.ledger.storage.sizes([f"{parts}/{part.name}" for part in prepared.parts])
        return sizes == [part.size_bytes for part in prepared.parts]

    def is_old(self, prepared: PreparedParts) -> bool:
        """True if an orphan cleanup may have removed parts of this age, or the clock went backwards."""
        age = timedelta(milliseconds=self.surroundings.now_ms() - prepared.begun_ms)
        return not timedelta() <= age <= self.prepared_max_age

    def create(self, look: Look, batch: Batch, prepared: PreparedParts) -> None:
        """Create the marker under the number that this look found free."""
        marker = self._marker(look, batch, prepared)
        ledger, data = self.ledger, marker.to_bytes()
        ledger.storage.create(ledger.layout.marker(marker.number), data)
        self.surroundings.emit(CommitAnswered(batch.batch_id))
        ledger.landed(marker, len(data))

    def _marker(self, look: Look, batch: Batch, prepared: PreparedParts) -> Marker:
        assert isinstance(look.verdict, Commit)
        entry = look.situation.entry
        moves = look.verdict.moves_ledger or entry is None
        return Marker(
            number=look.situation.view.last_sequence_number,
            sink_id=self.ledger.layout.sink_id,
            directory_id=prepared.directory_id,
            batch=batch,
            ledger_batch_id=batch.batch_id if moves or entry is None else entry.batch_id,
            outcome="accepted" if prepared.accepted else "recovered" if prepared.recovered else "committed",
            accepted=prepared.accepted,
            commit_id=prepared.commit_id,
            previous=prepared.follows,
            committed_at=datetime.fromtimestamp(self.surroundings.now_ms() / 1000, UTC).isoformat(),
            lakesink_version=__version__,
            format=prepared.format,
            parts=prepared.parts,
        )

    def found(self, look: Look, prepared: PreparedParts, attempt: int) -> Outcome:
        """The outcome of a look that allows no marker."""
        if isinstance(look.verdict, Refuse):
            raise refused(look.verdict.reason, look.situation)
        assert isinstance(look.verdict, Skip)
        number = look.verdict.snapshot_id
        if number is not None and self.ledger[number].commit_id == prepared.commit_id:
            self.ledger.raise_high_water()
            return _committed(prepared, number, attempt)
        return AlreadyCommitted(number)


@dataclass(frozen=True, slots=True)
class _Attempts:
    publisher: Publisher
    batch: Batch
    prepared: PreparedParts

    def attempt(self, number: int) -> Outcome | MustBeWrittenAgain | None:
        publisher, prepared = self.publisher, self.prepared
        look = publisher.look(self.batch)
        if not isinstance(look.verdict, Commit):
            return publisher.found(look, prepared, number)
        if not still_usable(look, prepared):
            return MustBeWrittenAgain()
        publisher.surroundings.emit(CommitDue(self.batch.batch_id))
        if publisher.is_old(prepared) and not publisher.has_all(prepared):
            return MustBeWrittenAgain()
        publisher.create(look, self.batch, prepared)
        return _committed(prepared, look.situation.view.last_sequence_number, number)

    def look(self, number: int) -> Outcome | None:
        look = self.publisher.look(self.batch)
        return None if isinstance(look.verdict, Commit) else self.publisher.found(look, self.prepared, number)

    def unsure(self, number: int, error: Exception) -> str:
        if isinstance(error, LakesinkError):
            raise error
        trouble = describe(error)
        self.publisher.surroundings.emit(CommitUnknown(self.batch.batch_id, number, trouble))
        return trouble


def _unresolved(sink_id: str, batch: Batch, unseen: Unseen) -> CommitUnresolved:
    return CommitUnresolved(
        "COMMIT_UNRESOLVED",
        f"Batch {batch.batch_id} of sink {sink_id!r} was not seen in the directory after {unseen.attempts} attempts.",
        data="The batch is prepared; it is not in the directory, unless a request of ours is still under way."
        f" Nothing was deleted. The last trouble: {unseen.trouble}.",
        action="Make the storage reachable and start the query again: the replay finds the prepared batch, looks at"
        " the directory, and publishes it at most once.",
    )


def _committed(prepared: PreparedParts, number: int, attempt: int) -> Committed:
    return Committed(
        snapshot_id=number,
        rows=sum(part.rows for part in prepared.parts),
        files=len(prepared.parts),
        bytes=sum(part.size_bytes for part in prepared.parts),
        recovered=prepared.recovered,
        accepted=prepared.accepted or None,
        attempts=attempt,
    )
