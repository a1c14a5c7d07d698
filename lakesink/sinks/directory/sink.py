"""The file sink: a two-phase sink whose target is a directory."""

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

from lakesink.sinks.directory.commit import Publication
from lakesink.sinks.directory.layout import Layout
from lakesink.sinks.directory.ledger import LedgerDecision, MarkerLedger
from lakesink.sinks.directory.part_receipt import check_batch, decode_parts, part_stem
from lakesink.sinks.directory.parts import PartsPlan, PartsWriter
from lakesink.sinks.directory.prepared import PreparedParts, parse_prepared, still_usable
from lakesink.sinks.directory.refusals import directory_failures, refused
from lakesink.sinks.directory.settings import FileSettings
from lakesink.sinks.records import PreparedDirectory
from lakesink.sinks.storage import Storage, check_exclusive, open_storage, prove_exclusive
from lakesink.sinks.unused_accept import UnusedAcceptWarning
from lakesink_catalog.commit.fence import Effects
from lakesink_protocol.accept import Accept
from lakesink_protocol.errors import Reason
from lakesink_protocol.events import BatchAborted, PreparedUnusable
from lakesink_protocol.identity import Batch
from lakesink_protocol.outcome import AlreadyCommitted, Outcome
from lakesink_protocol.receipt import ReceiptInvalid
from lakesink_protocol.two_phase import Durability, Payload, TwoPhaseCommitSink
from lakesink_protocol.verdict import Commit, Refuse, Skip
from lakesink_protocol.votes import check_tasks, receipt_rejected


@dataclass(frozen=True, slots=True)
class FileTransaction:
    """One batch that may be written; `begun_ms` is before any part. No writer if an operator skips the batch."""

    batch: Batch
    decision: LedgerDecision
    begun_ms: int
    writer: PartsWriter | None
    prepared_log: PreparedDirectory


class FileSink(TwoPhaseCommitSink[FileTransaction, PreparedParts]):
    """Writes one stream into files of one directory, each batch completely and once; see `lakesink.stream_files`.

    Opens nothing before its first batch. `storage` contains the directory; None opens it by the directory's scheme.
    """

    durability = Durability.PREPARED_SURVIVES

    def __init__(  # noqa: PLR0913 - the options, each by its name
        self,
        directory: str | os.PathLike[str],
        sink_id: str,
        *,
        compression_codec: str | None = None,
        target_file_size_bytes: int | str | None = None,
        accept: str | Accept | None = None,
        prepared_max_age: timedelta | str | None = None,
        storage: Storage | None = None,
        effects: Effects | None = None,
    ) -> None:
        self.settings = FileSettings.parse(
            directory,
            sink_id,
            compression_codec,
            target_file_size_bytes=target_file_size_bytes,
            accept=accept,
            prepared_max_age=prepared_max_age,
        )
        self._effects = effects or Effects()
        self._records = PreparedDirectory(
            self.layout.prepared,
            self.settings.prepared_max_age,
            self._effects.now_ms,
            storage,
            self._effects.emit,
        )
        if storage is None:
            check_exclusive(self.layout.directory)
        self._exclusive_proved = False
        self._accept_warning = UnusedAcceptWarning(
            self.settings.accept, "directory", self.layout.directory, self.layout.sink_id
        )

    @property
    def layout(self) -> Layout:
        """Directory and sink."""
        return self.settings.layout

    @property
    def name(self) -> str:  # type: ignore[override] # computed, read-only
        """The participant's name in records and outcomes."""
        return f"{self.layout.sink_id}@{self.layout.directory}"

    def begin(self, batch: Batch) -> FileTransaction | AlreadyCommitted:
        """Read the markers and decide on the batch."""
        begun_ms = self._effects.now_ms()
        with directory_failures(self.layout.directory):
            decision = self._ledger.decide_on(batch, self.settings.accept)
            self._accept_warning.after_decision(decision.verdict, batch.batch_id, self._effects.emit)
            match decision.verdict:
                case Skip(snapshot_id=number):
                    return AlreadyCommitted(number)
                case Refuse(reason=reason):
                    raise refused(reason, decision.situation)
                case Commit(adds_rows=adds_rows):
                    self._prove_exclusive_once()
        if decision.head is not None:
            self._records.follow(decision.head.batch.batch_id, decision.head.batch.fingerprint)
        writer = PartsWriter(self._plan(batch)) if adds_rows else None
        return FileTransaction(batch, decision, begun_ms, writer, self._records)

    def check_inputs(self, batch: Batch, transaction: FileTransaction) -> None:
        """See `TwoPhaseCommitSink.check_inputs`."""
        verdict = transaction.decision.verdict
        assert isinstance(verdict, Commit)
        if batch.missing_inputs and not verdict.without_inputs:
            raise refused(Reason.INPUT_MISSING, transaction.decision.situation, overruled=verdict.accepted)

    def recover(self, transaction: FileTransaction, payload: Payload) -> PreparedParts | None:
        """Use an earlier run's prepared batch if it follows the same marker and all its parts still exist."""
        prepared = parse_prepared(payload, self._stem(transaction.batch))
        trouble = "it is malformed" if prepared is None else self._trouble(transaction.decision, prepared)
        if trouble:
            self._effects.emit(PreparedUnusable(transaction.batch.batch_id, trouble))
            return None
        return prepared

    def pre_commit(self, transaction: FileTransaction, receipts: Sequence[bytes]) -> PreparedParts:
        """Check every receipt. The parts are closed, so nothing else is written here."""
        stem = self._stem(transaction.batch)
        try:
            votes = [decode_parts(data, stem) for data in receipts]
            parts = tuple(part for vote in votes for part in vote.parts)
            check_batch(parts)
        except ReceiptInvalid as error:
            raise receipt_rejected(str(error)) from None
        check_tasks(vote.task for vote in votes)
        decision = transaction.decision
        assert isinstance(decision.verdict, Commit)
        return PreparedParts(
            commit_id=uuid.uuid4().hex,
            directory_id=uuid.uuid4().hex if decision.head is None else decision.head.directory_id,
            follows=decision.follows,
            accepted=decision.verdict.accepted,
            parts=parts,
            begun_ms=transaction.begun_ms,
        )

    def commit(self, transaction: FileTransaction, prepared: PreparedParts) -> Outcome | None:
        """Publish the batch by its marker."""
        return Publication(self._ledger, self.settings, self._effects, transaction.batch, prepared).publish()

    def abort(self, transaction: FileTransaction) -> None:
        """Only log: closed parts stay, and no marker names them."""
        self._effects.emit(BatchAborted(transaction.batch.batch_id, "directory", self.layout.directory))

    @cached_property
    def _ledger(self) -> MarkerLedger:
        self._records.storage = self._records.storage or open_storage(self.layout.directory)
        return MarkerLedger(self._records.storage, self.layout, self._effects.emit)

    def _prove_exclusive_once(self) -> None:
        """Prove that the storage creates files exclusively, before the run's first write."""
        if not self._exclusive_proved:
            prove_exclusive(self._ledger.storage, self.layout.root)
            self._exclusive_proved = True

    def _plan(self, batch: Batch) -> PartsPlan:
        return PartsPlan(
            folder=self.layout.parts,
            stem=self._stem(batch),
            batch_id=batch.batch_id,
            codec=self.settings.codec,
            target_file_size_bytes=self.settings.target_file_size_bytes,
        )

    def _stem(self, batch: Batch) -> str:
        return part_stem(self.layout.sink_id, batch.batch_id)

    def _trouble(self, decision: LedgerDecision, prepared: PreparedParts) -> str:
        """The reason that a prepared batch can no longer be published; empty if it can."""
        if not still_usable(decision, prepared):
            return "the ledger changed"
        if decision.head is not None and prepared.directory_id != decision.head.directory_id:
            return "it was prepared for another history of the directory"
        with directory_failures(self.layout.directory):
            complete = self._ledger.has_all(prepared.parts)
        return "" if complete else "a part is missing or has another size"
