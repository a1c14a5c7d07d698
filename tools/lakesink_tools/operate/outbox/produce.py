"""Produces the batches of a table that come after the position in the ledger topic, each in one transaction.

An outcome that is not known is never assumed: the next attempt fences, and reads the position again.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyiceberg.table import Table

from lakesink.read.batch_files import files_of
from lakesink.read.begin import AtBatch, Begin, beginning
from lakesink.read.follow import unread_batches
from lakesink.read.position import Position
from lakesink.read.steps import Unread, behind, is_read_at
from lakesink.sinks.kafka.commit_record import CommitRecord, LedgerState
from lakesink.sinks.kafka.failures import kafka_failures
from lakesink.sinks.kafka.producing import commit_rows
from lakesink.sinks.kafka.target import KafkaTarget
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.connect.catalog_failures import catalog_error
from lakesink_catalog.manifests.live_reading import LiveMemory
from lakesink_catalog.read.past import Past, PastCommit
from lakesink_catalog.read.view import view_table
from lakesink_protocol.errors import CommitUnresolved, LakesinkError
from lakesink_protocol.events import CommitUnknown
from lakesink_protocol.fence import Fenced, Unseen, check_sent, fenced
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.redact import safe_cause
from lakesink_protocol.retry import RetryPolicy
from lakesink_tools.operate.outbox.batch_records import BatchRecords
from lakesink_tools.operate.outbox.keys import check_same_key, check_unique, key_names
from lakesink_tools.operate.outbox.position import (
    Outbox,
    Progress,
    check_beginning,
    check_same_ledger,
    progress_in,
    record_of,
)
from lakesink_tools.operate.outbox.standing import check_standing
from lakesink_tools.operate.outbox.words import Words

RETRY = RetryPolicy(num_retries=8, total_timeout_ms=600_000)


@dataclass(frozen=True, slots=True)
class Produced:
    """One batch, or one replay of dead letters, in the topic.

    Attributes:
        batch_id: None for a replay.
        replay: Its number; None for a batch.
        rows: None, as `tombstones`, if an earlier attempt committed it.
    """

    batch_id: int | None
    replay: int | None
    snapshot_id: int
    rows: int | None
    tombstones: int | None


@dataclass(slots=True)
class Producing:
    """One outbox: a table, which is loaded again for each look, and a topic.

    Attributes:
        keys: Columns of the key; None for the identifier fields of the table.
        starting_batch: The first batch that is produced while the ledger topic has none; None for that of the table.
        others: Snapshots with rows of other writers that were passed, as seen in the last look.
        stopped_by: The snapshot of another writer that ended the last look: what is behind it cannot be produced.
        left: Batches of the last look that are not produced yet.
    """

    outbox: Outbox
    load: Callable[[], Table]
    target: KafkaTarget
    keys: tuple[str, ...] | None
    starting_batch: int | None = None
    effects: Effects = field(default_factory=Effects)
    others: int = 0
    stopped_by: PastCommit | None = None
    left: int = 0
    _memory: LiveMemory = field(default_factory=LiveMemory)
    _seen: LedgerState | None = None

    def all_there_is(self) -> Iterator[Produced]:
        """Produce every batch that the table has now; yields each when it is committed."""
        table = self.load()
        past, unread, position = self._unread(table)
        self.others, self.stopped_by, self.left = len(unread.others), unread.stopped_by, len(unread.batches)
        for batch in unread.batches:
            with self._words(table, position.batch_id if batch.is_replay else batch.batch_id):
                found = self._committed(table, past, batch, position)
            position = behind(past, position, [batch])
            self.left -= 1
            yield found

    def progress_in(self, state: LedgerState) -> Progress | None:
        """The progress in the ledger topic, which must be the one that this process has read before."""
        check_same_ledger(self._seen, state, self.outbox)
        self._seen = state
        progress = progress_in(state, self.outbox)
        if progress is not None:
            check_beginning(progress, self.starting_batch, self.outbox)
        return progress

    def _unread(self, table: Table) -> tuple[Past, Unread, Position]:
        with self._words(table), kafka_failures(self.target.clients):
            state = self.target.read()
        known = self.progress_in(state)
        with self._words(table):
            position = self._beginning(table) if known is None else known.position
            past, found = unread_batches(table, self.outbox.table, self.outbox.sink, position, changes=True)
        check_standing(past, found, position, self.outbox)
        return past, found, position

    def _beginning(self, table: Table) -> Position:
        begin = Begin.EARLIEST if self.starting_batch is None else AtBatch(self.starting_batch)
        return beginning(table, self.outbox.table, self.outbox.sink, begin)

    @contextmanager
    def _words(self, table: Table, batch_id: int | None = None) -> Iterator[None]:
        """Errors inside the block in the words of an outbox, and those of the table's storage by their codes."""
        try:
            yield
        except LakesinkError as error:
            found = Words(self.outbox.name, batch_id).of(error)
            if found is error:
                raise
            raise found from error.__cause__
        except OSError as error:
            known = table.io.properties
            raise catalog_error(error, "The table", known) from safe_cause(error, known)

    def _committed(self, table: Table, past: Past, batch: PastCommit, before: Position) -> Produced:
        [files] = files_of(table, past, [batch])
        keys = key_names(files.schema_json, table.schema().model_dump_json(), self.keys)
        if files.deletes:
            check_unique(keys, files.schema_json, self._key_ids(table), self.outbox, batch.batch_id)
        records = BatchRecords(table, past, files, keys, self._memory)
        attempts: Fenced[Produced] = _OneBatch(self, batch, behind(past, before, [batch]), records, uuid.uuid4().hex)
        found = fenced(attempts, RETRY, self.effects)
        if isinstance(found, Unseen):
            raise _unresolved(self.outbox, batch, found)
        return found

    def _key_ids(self, table: Table) -> tuple[int, ...]:
        """The columns by which the stream replaces rows; empty if its newest batch only appended."""
        entry = view_table(table, SinkKey(self.outbox.sink.sink, self.outbox.sink.branch)).entry
        return () if entry is None else entry.keys


@dataclass(slots=True)
class _OneBatch:
    """The attempts to produce one batch; the position is behind it."""

    of: Producing
    batch: PastCommit
    position: Position
    records: BatchRecords
    commit_id: str
    _sent: bool = field(default=False, init=False)

    def attempt(self, number: int) -> Produced | None:
        """See `Fenced.attempt`."""
        session = self.of.target.take_session(number)
        state = self.of.target.state
        known = self.of.progress_in(state)
        if known is not None and is_read_at(self.batch, known.position):
            return self._produced(known=state.record is not None and state.record.commit_id == self.commit_id)
        check_same_key(self.records.keys, known, self.batch.title)
        began = self.of.starting_batch if known is None else known.starting_batch
        record = self._record(state, Progress(self.position, tuple(self.records.keys), began))
        self._sent = True
        commit_rows(self.of.target, session, self.records.read(), record, self.of.effects.emit)
        self.of.progress_in(self.of.target.state)
        return self._produced(known=True)

    def look(self, number: int) -> Produced | None:  # noqa: ARG002 - see `Fenced.look`
        """See `Fenced.look`."""
        known = self.of.progress_in(self.of.target.fence())
        return self._produced(known=False) if known is not None and is_read_at(self.batch, known.position) else None

    def unsure(self, number: int, error: Exception) -> str:
        """See `Fenced.unsure`."""
        if isinstance(error, LakesinkError):
            raise error
        check_sent(error, sent=self._sent)
        trouble = self.of.target.clients.describe(error)
        self.of.effects.emit(CommitUnknown(self.batch.batch_id, number, trouble))
        return trouble

    def _record(self, state: LedgerState, progress: Progress) -> CommitRecord:
        now = datetime.fromtimestamp(self.of.effects.now_ms() / 1000, UTC)
        rows = self.batch.rows
        return record_of(state, self.of.outbox, progress, rows=rows, commit_id=self.commit_id, now=now)

    def _produced(self, *, known: bool) -> Produced:
        counts = (self.records.rows, self.records.tombstones) if known else (None, None)
        batch_id, replay = (None, self.batch.batch_id) if self.batch.is_replay else (self.batch.batch_id, None)
        return Produced(batch_id, replay, self.batch.snapshot_id, *counts)


def _unresolved(outbox: Outbox, batch: PastCommit, unseen: Unseen) -> CommitUnresolved:
    return CommitUnresolved(
        "COMMIT_UNRESOLVED",
        f"{batch.title.capitalize()} of {outbox.table} is not in the ledger topic of outbox {outbox.name!r} after"
        f" attempt {unseen.attempts}.",
        data="It is unknown whether the topic has the batch: Kafka ends the transaction on its own. The last error:"
        f" {unseen.trouble.rstrip('.')}.",
        action="Make the Kafka cluster reachable and start the outbox again. It ends the open transaction, reads the"
        " ledger topic, and goes on at the batch after the newest one there.",
    )
