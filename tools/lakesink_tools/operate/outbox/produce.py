"""Produces the batches of a table that come after the position in the ledger topic, each as a batch of a Kafka sink.

The sink stages the records of a batch in files, and commits them with the position in one transaction.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyiceberg.schema import Schema
from pyiceberg.table import Table

from lakesink.read.batch_files import files_of
from lakesink.read.begin import AtBatch, Begin, beginning
from lakesink.read.follow import unread_batches
from lakesink.read.position import Position
from lakesink.read.steps import behind, is_read_at
from lakesink.sinks.kafka.commit_record import LedgerState
from lakesink.sinks.kafka.kafka_sink import KafkaSink
from lakesink_catalog.connect.catalog_failures import catalog_error
from lakesink_catalog.manifests.live_reading import LiveMemory
from lakesink_catalog.read.past import Past, PastCommit
from lakesink_catalog.read.view import view_table
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.errors import BatchRefused, LakesinkError
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.outcome import AlreadyCommitted, Outcome
from lakesink_protocol.redact import safe_cause
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Votes
from lakesink_tools.operate.outbox import position as positions
from lakesink_tools.operate.outbox.batch_records import BatchRecords
from lakesink_tools.operate.outbox.words import Words


@dataclass(frozen=True, slots=True)
class Produced:
    """One batch, or one replay of dead letters, in the topic.

    Attributes:
        batch_id: None for a replay.
        replay: Its number; None for a batch.
        rows: None, as `tombstones`, if another process wrote it.
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
        position: Behind the newest batch in the topic, as seen last.
    """

    outbox: positions.Outbox
    load: Callable[[], Table]
    sink: KafkaSink
    keys: tuple[str, ...] | None
    starting_batch: int | None = None
    others: int = 0
    stopped_by: PastCommit | None = None
    left: int = 0
    position: Position | None = None
    _memory: LiveMemory = field(default_factory=LiveMemory)
    _seen: LedgerState | None = None
    _written: tuple[int, int] | None = None  # rows and tombstones of the batch that this process has staged

    def all_there_is(self) -> Iterator[Produced]:
        """Produce every batch that the table has now; yields each when it is committed."""
        table = self.load()
        begin = Begin.EARLIEST if self.starting_batch is None else AtBatch(self.starting_batch)
        with self._words(table):
            known = self.progress_in(self.sink.read_ledger())
            position = known.position if known else beginning(table, self.outbox.table, self.outbox.sink, begin)
            past, unread = unread_batches(table, self.outbox.table, self.outbox.sink, position, changes=True)
        positions.check_standing(past, unread, position, self.outbox)
        self.others, self.stopped_by, self.left = len(unread.others), unread.stopped_by, len(unread.batches)
        self.position = position
        for batch in unread.batches:
            before, position = position, behind(past, position, [batch])
            with self._words(table, before.batch_id if batch.is_replay else batch.batch_id, batch.title):
                outcome = self._committed(table, past, batch, position)
            self.left, self.position = self.left - 1, position
            written, self._written = self._written, None
            counts = (None, None) if written is None or isinstance(outcome, AlreadyCommitted) else written
            batch_id, replay = (None, batch.batch_id) if batch.is_replay else (batch.batch_id, None)
            yield Produced(batch_id, replay, batch.snapshot_id, *counts)

    def progress_in(self, state: LedgerState) -> positions.Progress | None:
        """The progress in the ledger topic, which must be the one that this process has read before."""
        positions.check_same_ledger(self._seen, state, self.outbox)
        self._seen = state
        progress = positions.progress_in(state, self.outbox)
        if progress is not None:
            positions.check_beginning(progress, self.starting_batch, self.outbox)
        return progress

    @contextmanager
    def _words(self, table: Table, batch_id: int | None = None, title: str = "") -> Iterator[None]:
        """Errors inside the block in the words of an outbox, and those of the table's storage by their codes."""
        try:
            yield
        except LakesinkError as error:
            found = Words(self.outbox.name, batch_id, title).of(error)
            if found is error:
                raise
            raise found from error.__cause__
        except OSError as error:
            known = table.io.properties
            raise catalog_error(error, "The table", known) from safe_cause(error, known)

    def _committed(self, table: Table, past: Past, batch: PastCommit, position: Position) -> Outcome:
        """Run one batch through the sink, unless the topic has it; the position is behind it."""
        [files] = files_of(table, past, [batch])
        schema = Schema.model_validate_json(files.schema_json)
        keys = positions.key_names(schema, table.schema(), self.keys)
        if files.deletes:
            entry = view_table(table, SinkKey(self.outbox.sink.sink, self.outbox.sink.branch)).entry
            replaced_by = entry.keys if entry else ()  # empty if the newest batch of the stream only appended
            positions.check_unique(keys, schema, replaced_by, self.outbox, batch.batch_id)
        known = self.progress_in(self.sink.ledger)
        if known is not None and is_read_at(batch, known.position):
            return AlreadyCommitted(None)
        positions.check_same_key(keys, known, batch.title)
        records = BatchRecords(table, past, files, keys, self._memory)

        def staged(writers: Mapping[str, TaskWriter]) -> Votes:
            [(name, writer)] = writers.items()
            vote = writer.write(0, records.read())
            self._written = records.rows, records.removed
            return Votes.in_order({name: [vote]})

        began = self.starting_batch if known is None else known.starting_batch
        next_batch = positions.batch_of(self.sink.ledger, positions.Progress(position, keys, began))
        try:
            [outcome] = run_batch(next_batch, [self.sink], staged).values()
        except BatchRefused:
            known = self.progress_in(self.sink.ledger)
            if known is None or not is_read_at(batch, known.position):
                raise
            return AlreadyCommitted(None)  # another process has committed it, and a later one
        return outcome
