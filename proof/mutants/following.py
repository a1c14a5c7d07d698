"""Bugs of what a batch brings beside its rows: dead letters, and columns that the table gets for its documents."""

from collections.abc import Iterator, Sequence
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table.update import AssertCurrentSchemaId
from pyiceberg.table.update.schema import UpdateSchema

from lakesink.decode import documents
from lakesink.rows.letters import LetterRows
from lakesink.sinks.iceberg import checked_receipts as votes
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.side import side_tables
from lakesink.sinks.iceberg.side.side_sink import PreparedRows, SideTableSink, SideTransaction
from lakesink.sinks.iceberg.transaction import IcebergTransaction
from lakesink.task.task_files import SideOutput
from lakesink_catalog.commit import decision, evolution
from lakesink_catalog.commit.batch_commit import FencedCommit
from lakesink_catalog.commit.decision import Decision
from lakesink_catalog.commit.evolution import evolve
from lakesink_catalog.commit.premises import Path, columns
from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_catalog.read.landed import newest_batch
from lakesink_protocol.change import SchemaChange
from lakesink_protocol.coordinator import BatchRun
from lakesink_protocol.identity import Batch
from lakesink_protocol.two_phase import Payload
from proof.content import Content
from proof.mutants.mutant import Focus, Patches, mutant
from proof.simulator.tasks import RoutingSimulatedWriter

WITH_LETTERS, WITH_DOCUMENTS = Content(aside_every=2), Content(follows="add")
EVOLVED_MEANWHILE = Focus(actions=("change the schema", "kill") * 4, content=WITH_DOCUMENTS)


@mutant(
    "P10: the rows are committed first and their dead letters after them, where a replay skips the batch.",
    seen_in="sinks that write bad rows to a second table once the batch is done",
    focus=Focus(content=WITH_LETTERS),
    scenario="killed between letters and rows",
)
def letters_after_the_table(patches: Patches) -> None:
    """The participants commit in the other order."""

    def commit_all(self: BatchRun, ready: Sequence[Any]) -> Any:
        return real(self, ready[::-1])

    real = patches.put(BatchRun, "commit_all", commit_all)


@mutant(
    "P9: that letters are in the record is taken for proof that they are in their table.",
    seen_in="write-ahead-log sinks that replay the last of several targets alone",
    focus=Focus(actions=("kill", "kill", "kill", "twin"), content=WITH_LETTERS),
    scenario="killed before the letters",
)
def recorded_letters_taken_as_landed(patches: Patches) -> None:
    """A restart commits the rows, and nobody the letters."""

    def recover(_: SideTableSink, __: SideTransaction, payload: Payload) -> PreparedRows:
        return PreparedRows(payload["rows"], payload["fingerprint"])

    patches.put(SideTableSink, "recover", recover)


@mutant(
    "P4: letters of the same batch are taken for the same letters, whatever rows a replay puts aside.",
    seen_in="quarantine tables that are deduplicated by batch id",
    focus=Focus(
        actions=("put other rows aside", "change the schema") * 4, content=Content(aside_every=2, follows="add")
    ),
    scenario="a replay puts other rows aside",
)
def other_letters_of_a_replay_accepted(patches: Patches) -> None:
    """A row is in both tables, or in neither."""

    def begun(self: SideTableSink, batch: Batch, rows: int, fingerprint: str) -> Any:
        newest = newest_batch(self._load_or_create(), self.key(batch))
        if newest is not None and newest.batch_id == batch.batch_id:
            return PreparedRows(rows, fingerprint)
        return real(self, batch, rows, fingerprint)

    real = patches.put(SideTableSink, "_begun", begun)


@mutant(
    "P8: a row that is put aside is written too, and nobody compares the two receipts of its task.",
    seen_in="dead letter queues that get a copy of the record, which is then written with NULLs",
    focus=Focus(content=WITH_LETTERS),
    scenario="killed between letters and rows",
)
def row_put_aside_and_written(patches: Patches) -> None:
    """It is in both tables."""

    def write(self: RoutingSimulatedWriter, task: int, batches: Iterator[Any]) -> bytes:
        keys = self._keys(batches)
        aside = self._put_aside(task, [key for key in keys if self.tasks.content.is_unfit(key)])  # likewise
        receipt = self._write(task, keys)
        return len(receipt).to_bytes(4) + receipt + aside

    def of(self: LetterRows, *made_of: Any) -> Any:
        rows, self.count = made(self, *made_of), 0
        return rows

    def receipt(self: SideOutput, *, refused: bool) -> Any:
        self.made.count = self.files.record_count
        return told(self, refused=refused)

    patches.put(documents, "either", lambda _misfits, left: left)
    made, told = patches.put(LetterRows, "of", of), patches.put(SideOutput, "receipt", receipt)
    patches.put(side_tables, "check_letters", lambda *_: None)
    patches.put(RoutingSimulatedWriter, "write", write)


@mutant(
    "P8: the driver does not write the rows that tasks left, and does not count them.",
    seen_in="lakesink's own protocol, by hand: the rows with news are as many as documents with a new key",
    focus=Focus(content=WITH_DOCUMENTS),
    scenario="killed before a record with new columns",
)
def left_rows_forgotten(patches: Patches) -> None:
    """What tasks have written is taken for the batch."""
    patches.put(IcebergSink, "write_rest", _nothing)
    patches.put(votes, "_check_rest", lambda _rest, _of_job: None)


def _nothing(_: IcebergSink, __: IcebergTransaction, ___: Sequence[bytes]) -> None:
    return None


@mutant(
    "P1: the columns are added by a commit of their own, before that of the rows.",
    seen_in="Iceberg's Spark writer with mergeSchema, Delta, Hudi, Kafka Connect sinks",
    focus=Focus(content=WITH_DOCUMENTS),
    scenario="killed before a record with new columns",
)
def schema_changed_apart(patches: Patches) -> None:
    """A reader, and a crash, may find the columns without the rows."""

    def request(self: FencedCommit, decision: Decision, prepared: PreparedBatch, *rest: Any) -> Any:
        table = decision.table
        updates = evolve(table, prepared.schema_change).updates
        if updates:
            fence = AssertCurrentSchemaId(current_schema_id=table.metadata.current_schema_id)
            table.catalog.commit_table(table, (fence,), updates)
            decision = self.decide_on(self.load(), decision.situation.batch)
        return real(self, decision, prepared, *rest)

    real = patches.put(FencedCommit, "request", request)


@mutant(
    "P11: a replay evolves again: a column that another writer has added meanwhile is replaced by a new one.",
    seen_in="schema registries' clients that drop and add a field to change it",
    focus=EVOLVED_MEANWHILE,
    scenario="another adds the column before the restart",
)
def column_added_again(patches: Patches) -> None:
    """Files have the values under the id of a column that was dropped."""

    def missing(schema: Schema, change: SchemaChange) -> SchemaChange | None:
        found = real_missing(schema, change)
        rest = found or SchemaChange()
        again = SchemaChange(change.added, rest.widened, rest.optional)
        return again if again != SchemaChange() else None

    def add(update: UpdateSchema, column: Path, *of: Any) -> Any:
        if column in columns(update._schema):  # noqa: SLF001 - PyIceberg has no other way to it
            update.delete_column(column)
        return real_add(update, column, *of)

    real_missing = patches.put(evolution, "_missing", missing)
    real_add = patches.put(UpdateSchema, "add_column", add)
    _take_any_ids(patches)


@mutant(
    "P11: after another evolution, new columns are known by their names alone, and the files keep their ids.",
    seen_in="two evolvers of one table, of which each has taken the next id",
    focus=EVOLVED_MEANWHILE,
    scenario="another evolves before the restart",
)
def ids_of_columns_not_compared(patches: Patches) -> None:
    """Values of one column are read as those of another."""
    _take_any_ids(patches)


def _take_any_ids(patches: Patches) -> None:
    """Files are committed under whatever schema a change gives."""
    patches.put(decision, "brings_columns_of", _always)
    patches.put(decision, "is_compatible", _always)


def _always(*_: Any) -> bool:
    return True


MUTANTS = (
    letters_after_the_table,
    recorded_letters_taken_as_landed,
    other_letters_of_a_replay_accepted,
    row_put_aside_and_written,
    left_rows_forgotten,
    schema_changed_apart,
    column_added_again,
    ids_of_columns_not_compared,
)
