"""The example's sink, broken in one way each: what is easily got wrong, and the check of the suite that sees it."""

import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlite_sink import Open, SqliteSink, Staged, StagingWriter

from lakesink.testing import Promise, reached
from lakesink_protocol.identity import Batch
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.two_phase import Durability, NoPreparedLog, Payload
from lakesink_tools.testing.checks.base import BATCHES
from tests.testing.sinks.unsafe import AsksThenPublishes, WipesAtTheFirstBegin

BETWEEN = "mutant.between"


class Pieces(SqliteSink):
    """The sound sink with its commit in pieces, for others to break."""

    def commit(self, transaction: Open, prepared: Staged) -> Outcome:
        with closing(self._connect()) as database, database:
            database.execute("BEGIN IMMEDIATE")
            if self._has(database, transaction.batch):
                return AlreadyCommitted(None)
            rows = self.insert(database, prepared)
            self.enter(database, transaction.batch)
        return Committed(transaction.batch.batch_id, rows, recovered=prepared.recovered)

    def insert(self, database: sqlite3.Connection, prepared: Staged) -> int:
        return sum(self._insert(database, self.staging / name) for name in prepared.files)

    def enter(self, database: sqlite3.Connection, batch: Batch) -> None:
        values = (self.name, batch.batch_id, batch.query_id, batch.fingerprint)
        database.execute("INSERT OR REPLACE INTO ledger VALUES (?, ?, ?, ?)", values)


class ChecksBeforeTheTransaction(Pieces):
    def commit(self, transaction: Open, prepared: Staged) -> Outcome:
        with closing(self._connect()) as database, database:
            database.execute("BEGIN IMMEDIATE")
            rows = self.insert(database, prepared)
            self.enter(database, transaction.batch)
        return Committed(transaction.batch.batch_id, rows, recovered=prepared.recovered)


class CommitsRowsThenLedger(Pieces):
    def commit(self, transaction: Open, prepared: Staged) -> Outcome:
        with closing(self._connect()) as database:
            if self._has(database, transaction.batch):
                return AlreadyCommitted(None)
            rows = self.insert(database, prepared)
            self.enter(database, transaction.batch)
        return Committed(transaction.batch.batch_id, rows, recovered=prepared.recovered)


class CommitsLedgerThenRows(Pieces):
    def commit(self, transaction: Open, prepared: Staged) -> Outcome:
        with closing(self._connect()) as database:
            if self._has(database, transaction.batch):
                return AlreadyCommitted(None)
            self.enter(database, transaction.batch)
            with database:
                database.execute("BEGIN IMMEDIATE")
                rows = self.insert(database, prepared)
        return Committed(transaction.batch.batch_id, rows, recovered=prepared.recovered)


class CommitsFileByFile(Pieces):
    def insert(self, database: sqlite3.Connection, prepared: Staged) -> int:
        rows = 0
        for name in prepared.files:
            rows += self._insert(database, self.staging / name)
            database.execute("COMMIT")
            database.execute("BEGIN IMMEDIATE")
        return rows


class ShowsRowByRow(CommitsRowsThenLedger):
    """A reader sees a part of the batch only in the middle of the loop."""

    def insert(self, database: sqlite3.Connection, prepared: Staged) -> int:
        staged = [pa.ipc.open_stream((self.staging / name).read_bytes()).read_all() for name in prepared.files]
        rows = [(row["batch"], row["position"]) for table in staged for row in table.to_pylist()]
        for row in rows:
            database.execute("INSERT INTO events VALUES (?, ?)", row)
        return len(rows)


class ForgetsTheLedger(Pieces):
    def enter(self, database: sqlite3.Connection, batch: Batch) -> None:
        pass


class LeavesEmptyBatchesOut(Pieces):
    def commit(self, transaction: Open, prepared: Staged) -> Outcome:
        return super().commit(transaction, prepared) if prepared.files else Committed(transaction.batch.batch_id, 0)


class RemembersInTheProcess(Pieces):
    """Its ledger is a set: it knows nothing after a restart."""

    def __init__(self, database: Path, table: str, sink_id: str, staging: Path) -> None:
        super().__init__(database, table, sink_id, staging)
        self.seen: set[int] = set()

    def _has(self, database: sqlite3.Connection, batch: Batch) -> bool:  # noqa: ARG002 - the ledger is not asked
        return batch.batch_id in self.seen

    def enter(self, database: sqlite3.Connection, batch: Batch) -> None:  # noqa: ARG002 - nor written
        self.seen.add(batch.batch_id)


class ShowsRowsAtPreCommit(Pieces):
    def pre_commit(self, transaction: Open, receipts: Sequence[bytes]) -> Staged:
        prepared = super().pre_commit(transaction, receipts)
        with closing(self._connect()) as database:
            self.insert(database, prepared)
        return prepared

    def insert(self, database: sqlite3.Connection, prepared: Staged) -> int:
        return 0 if database.in_transaction else super().insert(database, prepared)


class EntersTheBatchAtBegin(Pieces):
    def begin(self, batch: Batch) -> Open | AlreadyCommitted:
        begun = super().begin(batch)
        with closing(self._connect()) as database:
            self.enter(database, batch)
        return begun


class RemovesAtAbort(Pieces):
    def abort(self, transaction: Open) -> None:
        for path in self.staging.glob(f"{self._stem(transaction.batch)}-*"):
            path.unlink()


class DeletesTheBatchAtAbort(Pieces):
    def abort(self, transaction: Open) -> None:
        with closing(self._connect()) as database:
            database.execute(f"DELETE FROM {self.table} WHERE batch = ?", [transaction.batch.batch_id])


class TakesWhatIsInTheFolder(Pieces):
    """Commits by listing, not by receipts: every attempt counts."""

    def pre_commit(self, transaction: Open, receipts: Sequence[bytes]) -> Staged:
        super().pre_commit(transaction, receipts)
        return Staged(sorted(path.name for path in self.staging.glob(f"{self._stem(transaction.batch)}-*.arrow")))


@dataclass(frozen=True)
class SameNameWriter(StagingWriter):
    """All attempts of a task write one file."""

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        receipt = json.loads(super().write(task, batches))
        same = [f"{self.batch}-{task}-{'0' * 36}.arrow" for _ in receipt["files"]]
        for name, taken in zip(receipt["files"], same, strict=True):
            (Path(self.folder) / name).rename(Path(self.folder) / taken)
        return json.dumps(receipt | {"files": same}).encode()


@dataclass(frozen=True)
class PatientWriter(StagingWriter):
    """Keeps what came before the error, and votes for it."""

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        return super().write(task, self._as_far_as_they_go(batches))

    def _as_far_as_they_go(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except InterruptedError:
            return


@dataclass(frozen=True)
class WriterWithAClient(StagingWriter):
    client: Any = None


class _WithWriter(Pieces):
    writer: type[StagingWriter]
    arguments: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it

    def begin(self, batch: Batch) -> Open | AlreadyCommitted:
        begun = super().begin(batch)
        if isinstance(begun, AlreadyCommitted):
            return begun
        return replace(begun, writer=self.writer(begun.writer.folder, begun.writer.batch, **self.arguments))


class ReusesNames(_WithWriter):
    writer = SameNameWriter


class VotesForHalfATask(_WithWriter):
    writer = PatientWriter


class ShipsAClient(_WithWriter):
    writer = WriterWithAClient

    def begin(self, batch: Batch) -> Open | AlreadyCommitted:
        self.arguments = {"client": threading.Lock()}
        return super().begin(batch)


class BelievesEveryVote(Pieces):
    def pre_commit(self, transaction: Open, receipts: Sequence[bytes]) -> Staged:  # noqa: ARG002 - the seam's
        return Staged([name for vote in map(json.loads, receipts) for name in vote["files"]])


class _Ledger(Pieces):
    """Asks its ledger less than it should."""

    def known(self, database: sqlite3.Connection, batch: Batch) -> tuple[str, str] | None:
        told = "SELECT query_id, fingerprint FROM ledger WHERE sink_id = ? AND batch_id = ?"
        found: tuple[str, str] | None = database.execute(told, [self.name, batch.batch_id]).fetchone()
        return found


class LooksAtIdsOnly(_Ledger):
    def _has(self, database: sqlite3.Connection, batch: Batch) -> bool:
        return self.known(database, batch) is not None


class TakesAnyCheckpoint(_Ledger):
    """Knows batches by query and id: a new checkpoint brings everything again."""

    def _has(self, database: sqlite3.Connection, batch: Batch) -> bool:
        known = self.known(database, batch)
        return known is not None and known[0] == batch.query_id


class LeavesGaps(_Ledger):
    def _has(self, database: sqlite3.Connection, batch: Batch) -> bool:
        return self.known(database, batch) is not None and super()._has(database, batch)


class CommitsOnce(Pieces):
    def commit(self, transaction: Open, prepared: Staged) -> Outcome:
        outcome = super().commit(transaction, prepared)
        if isinstance(outcome, AlreadyCommitted):
            raise sqlite3.IntegrityError("the batch is there")
        return outcome


class HasNoRecord(Pieces):
    def __init__(self, *place: Any) -> None:
        super().__init__(*place)
        self.log = NoPreparedLog()


class BelievesEveryRecord(Pieces):
    def recover(self, transaction: Open, payload: Payload) -> Staged | None:  # noqa: ARG002 - the seam's
        return Staged(list(payload["files"]), recovered=True)


class NeverSaysRecovered(Pieces):
    def recover(self, transaction: Open, payload: Payload) -> Staged | None:
        found = super().recover(transaction, payload)
        return None if found is None else replace(found, recovered=False)


class OneRecordForAll(Pieces):
    """Its record is found for any batch of this id, whatever it reads; so are its files."""

    def __init__(self, *place: Any) -> None:
        super().__init__(*place)
        self.log = _ById(self.log.find, self.log.put)

    def _stem(self, batch: Batch) -> str:
        return f"{self.name}-{batch.batch_id}"


@dataclass
class _ById:
    inner_find: Any
    inner_put: Any

    def find(self, batch: Batch) -> Any:
        return self.inner_find(replace(batch, fingerprint="any"))

    def put(self, batch: Batch, payloads: Any) -> None:
        self.inner_put(replace(batch, fingerprint="any"), payloads)

    def landed(self, batch: Batch) -> None:
        pass


class SaysNothing(Pieces):
    def commit(self, transaction: Open, prepared: Staged) -> Any:
        super().commit(transaction, prepared)


class CountsWrong(Pieces):
    def insert(self, database: sqlite3.Connection, prepared: Staged) -> int:
        super().insert(database, prepared)
        return len(prepared.files)


class AsksOnce(Pieces):
    """Keeps what the ledger said to its first question."""

    first: int | None = None

    def begin(self, batch: Batch) -> Open | AlreadyCommitted:
        self.first = batch.batch_id if self.first is None else self.first
        if batch.batch_id > self.first + BATCHES:
            raise KeyError(batch.batch_id)
        return super().begin(batch)


@dataclass(frozen=True)
class DirectWriter(StagingWriter):
    """Tasks insert their rows themselves."""

    database: str = ""

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        with closing(sqlite3.connect(self.database)) as database, database:
            for batch in batches:
                database.executemany("INSERT INTO events VALUES (?, ?)", zip(*batch.to_pydict().values(), strict=True))
        return json.dumps({"batch": self.batch, "task": task, "files": []}).encode()


class InsertsInTheTasks(_WithWriter):
    writer = DirectWriter

    def begin(self, batch: Batch) -> Open | AlreadyCommitted:
        self.arguments = {"database": str(self.database)}
        return super().begin(batch)


class KnowsTheLastOnly(_Ledger):
    def _has(self, database: sqlite3.Connection, batch: Batch) -> bool:
        last = database.execute("SELECT max(batch_id) FROM ledger WHERE sink_id = ?", [self.name]).fetchone()
        return bool(batch.batch_id == last[0])


class CommitsAtRecover(Pieces):
    def recover(self, transaction: Open, payload: Payload) -> Staged | None:
        found = super().recover(transaction, payload)
        if found is None:
            return None
        with closing(self._connect()) as database:
            self.insert(database, found)
        return replace(found, files=[])


class CleansUpBehindItself(Pieces):
    """Two steps, and a handler that takes back the first one: nobody handles SIGKILL."""

    def commit(self, transaction: Open, prepared: Staged) -> Outcome:
        batch = transaction.batch
        with closing(self._connect()) as database:
            if self._has(database, batch):
                return AlreadyCommitted(None)
            try:
                rows = self.insert(database, prepared)
                reached(BETWEEN, batch.batch_id)
                self.enter(database, batch)
            except BaseException:
                database.execute(f"DELETE FROM {self.table} WHERE batch = ?", [batch.batch_id])
                raise
        return Committed(batch.batch_id, rows, recovered=prepared.recovered)


class LooksThenLocks(Pieces):
    """Asks the ledger in its commit, a moment before the transaction that adds the rows."""

    def commit(self, transaction: Open, prepared: Staged) -> Outcome:
        with closing(self._connect()) as database:
            there = self._has(database, transaction.batch)
        time.sleep(0.2)
        if there:
            return AlreadyCommitted(None)
        with closing(self._connect()) as database, database:
            database.execute("BEGIN IMMEDIATE")
            rows = self.insert(database, prepared)
            self.enter(database, transaction.batch)
        return Committed(transaction.batch.batch_id, rows, recovered=prepared.recovered)


class MustRedo(Pieces):
    """Sound: it has no record, and says so."""

    durability = Durability.MUST_BE_REDONE

    def __init__(self, *place: Any) -> None:
        super().__init__(*place)
        self.log = NoPreparedLog()


@dataclass(frozen=True)
class Mutant:
    """A broken sink, the check that sees it, and what is then said to be broken."""

    sink: type[SqliteSink]
    check: str
    promise: Promise
    failpoints: tuple[str, ...] = ()


RIVAL = "test_a_driver_goes_on_after_another_one_committed"
VOTE = "test_a_malformed_receipt_or_one_of_another_task_or_batch_fails_it"
ATTEMPT = "test_of_the_attempts_of_a_task_one_counts"
STRANGE = "test_a_batch_that_does_not_follow_is_refused_before_it_is_written"
CRASHED_LINE = "test_a_crash_at_any_line_of_commit_loses_and_doubles_nothing"
EVERY_LINE = "test_readers_see_all_or_nothing_at_every_line_of_commit"
USED_AGAIN = "test_a_prepared_batch_is_used_again_if_it_survives_and_written_again_if_not"

MUTANTS = (
    Mutant(ChecksBeforeTheTransaction, RIVAL, Promise.RIVAL),
    Mutant(ChecksBeforeTheTransaction, "test_of_two_drivers_with_other_data_one_wins", Promise.RIVAL),
    Mutant(ChecksBeforeTheTransaction, "test_commit_may_be_called_twice", Promise.AGAIN),
    Mutant(CommitsRowsThenLedger, CRASHED_LINE, Promise.CRASH),
    Mutant(CommitsLedgerThenRows, CRASHED_LINE, Promise.CRASH),
    Mutant(CommitsFileByFile, EVERY_LINE, Promise.WHOLE),
    Mutant(ForgetsTheLedger, "test_a_replayed_batch_is_neither_written_nor_committed", Promise.REPLAY),
    Mutant(LeavesEmptyBatchesOut, "test_an_empty_batch_is_committed_and_known_when_it_comes_back", Promise.EMPTY),
    Mutant(LeavesEmptyBatchesOut, "test_an_empty_batch_dies_and_is_completed", Promise.CRASH),
    Mutant(RemembersInTheProcess, "test_a_driver_dies_and_another_completes_its_batch", Promise.CRASH),
    Mutant(RemembersInTheProcess, "test_a_later_batch_is_refused_by_a_target_that_knows_none", Promise.HISTORY),
    Mutant(ShowsRowsAtPreCommit, "test_readers_see_a_batch_after_its_commit_and_not_before", Promise.WHOLE),
    Mutant(EntersTheBatchAtBegin, "test_begin_changes_nothing_and_may_be_called_again", Promise.BEGIN),
    Mutant(EntersTheBatchAtBegin, "test_a_driver_fails_and_the_same_sink_completes_its_batch", Promise.CRASH),
    Mutant(RemovesAtAbort, "test_another_drivers_abort_spoils_nothing_that_is_prepared", Promise.ABORT),
    Mutant(RemovesAtAbort, "test_an_abort_after_the_record_spoils_nothing", Promise.ABORT),
    Mutant(DeletesTheBatchAtAbort, "test_an_abort_after_the_commit_spoils_nothing", Promise.ABORT),
    Mutant(TakesWhatIsInTheFolder, ATTEMPT, Promise.ATTEMPTS),
    Mutant(ReusesNames, ATTEMPT, Promise.ATTEMPTS),
    Mutant(VotesForHalfATask, ATTEMPT, Promise.ATTEMPTS),
    Mutant(ShipsAClient, "test_tasks_run_in_other_processes", Promise.TRAVELS),
    Mutant(BelievesEveryVote, VOTE, Promise.VOTES),
    Mutant(LooksAtIdsOnly, STRANGE, Promise.HISTORY),
    Mutant(TakesAnyCheckpoint, STRANGE, Promise.HISTORY),
    Mutant(LeavesGaps, STRANGE, Promise.HISTORY),
    Mutant(CommitsOnce, "test_commit_may_be_called_twice", Promise.AGAIN),
    Mutant(HasNoRecord, USED_AGAIN, Promise.DURABILITY),
    Mutant(BelievesEveryRecord, "test_a_record_that_was_spoilt_is_not_believed", Promise.PAYLOAD),
    Mutant(BelievesEveryRecord, "test_the_record_of_another_batch_is_not_believed", Promise.PAYLOAD),
    Mutant(NeverSaysRecovered, USED_AGAIN, Promise.DURABILITY),
    Mutant(OneRecordForAll, "test_what_was_prepared_for_other_data_is_not_used", Promise.DURABILITY),
    Mutant(SaysNothing, "test_each_row_of_each_batch_is_there_once", Promise.ONCE),
    Mutant(AsksOnce, "test_one_process_may_run_many_batches", Promise.ONCE),
    Mutant(InsertsInTheTasks, "test_an_attempt_that_ends_after_the_commit_changes_nothing", Promise.ATTEMPTS),
    Mutant(KnowsTheLastOnly, "test_an_old_batch_is_known_or_refused", Promise.HISTORY),
    Mutant(CommitsAtRecover, "test_the_driver_that_recovers_dies_too", Promise.CRASH),
    Mutant(CleansUpBehindItself, "test_a_driver_is_killed_at_every_point", Promise.CRASH, (BETWEEN,)),
    Mutant(AsksThenPublishes, "test_a_rival_commits_before_every_step", Promise.RIVAL),
    Mutant(WipesAtTheFirstBegin, "test_a_rival_commits_before_a_step_of_the_first_begin", Promise.RIVAL),
    Mutant(LooksThenLocks, "test_two_drivers_run_the_same_batches_at_once", Promise.RIVAL),
    Mutant(CountsWrong, "test_each_row_of_each_batch_is_there_once", Promise.ONCE),
)
