"""The file sink: a two-phase sink whose target is a directory.

A batch is published by one marker, created exclusively under the number after the newest marker. The number is the
fence: only one of two drivers can create this marker, and the other reads the ledger again. Nothing is deleted here.
"""

import os
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from lakesink.settings.options import read_option
from lakesink.settings.settings import PREPARED_MAX_AGE
from lakesink.sinks.directory.directory_errors import WORDS, directory_failures
from lakesink.sinks.directory.layout import Layout
from lakesink.sinks.directory.marker import Marker
from lakesink.sinks.directory.marker_ledger import MarkerLedger
from lakesink.sinks.directory.settings import codec_of, directory_location
from lakesink.sinks.record_folder import PreparedDirectory
from lakesink.sinks.staged.ledger import LedgerDecision, PreparedParts
from lakesink.sinks.staged.parts import PartsWriter, all_there
from lakesink.sinks.staged.sink import StagedSink, StagedTransaction, option
from lakesink.sinks.storage import Storage, check_exclusive, open_storage, prove_exclusive
from lakesink_catalog.commit.effects import Effects
from lakesink_protocol.events import CommitAnswered, CommitDue
from lakesink_protocol.identity import Batch
from lakesink_protocol.redact import describe
from lakesink_protocol.refusals.accept import Accept
from lakesink_protocol.retry import RetryPolicy
from lakesink_protocol.verdict import Commit

TARGET_FILE_SIZE_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedFiles(PreparedParts):
    """A batch that only needs its marker; `Marker` explains `directory_id`.

    Attributes:
        begun_ms: Time before the first part; None if an earlier run wrote it. Not part of the record.
    """

    directory_id: str
    begun_ms: int | None = None


class FileSink(StagedSink[Marker, PreparedFiles]):
    """Writes one stream into files of one directory, each batch completely and once; see `lakesink.stream_files`.

    Opens nothing before its first batch. `storage` contains the directory; None opens it by the directory's scheme.
    """

    retry = RetryPolicy(num_retries=8)  # for about twenty seconds: a restart then publishes the prepared batch
    kind = "directory"
    unresolved = "COMMIT_UNRESOLVED.directory"
    prepared = PreparedFiles
    keeps_parts = True
    words = WORDS
    describe = staticmethod(describe)

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
        self.layout = layout = Layout(directory_location(directory), read_option("sink_id", sink_id))
        self.codec = codec_of(compression_codec)
        self.target_file_size_bytes = option("target_file_size_bytes", target_file_size_bytes, TARGET_FILE_SIZE_BYTES)
        max_age = option("prepared_max_age", prepared_max_age, PREPARED_MAX_AGE)
        effects = effects or Effects()
        records = PreparedDirectory(layout.prepared, max_age, effects.now_ms, storage, effects.emit)
        super().__init__(layout.sink_id, layout.directory, accept, records, effects)
        if storage is None:
            check_exclusive(layout.directory)
        self._exclusive_proved = False

    @property
    def name(self) -> str:  # type: ignore[override] # computed, read-only
        """The participant's name in records and outcomes."""
        return f"{self.sink_id}@{self.place}"

    def decide_on(self, batch: Batch, attempt: int = 0) -> LedgerDecision[Marker]:  # noqa: ARG002 - the number fences
        return self._ledger.decide_on(batch, self.accept)

    def has_parts(self, prepared: PreparedFiles) -> bool:
        """See `StagedSink.has_parts`: an orphan cleanup removes no young parts. A clock can go backwards."""
        if prepared.begun_ms is not None:
            age = timedelta(milliseconds=self._effects.now_ms() - prepared.begun_ms)
            if timedelta() <= age <= self._records.max_age:
                return True
        return all_there(self._ledger.storage, self.layout, prepared.parts)

    def commit_of(self, facts: Mapping[str, Any], decision: LedgerDecision[Marker], prepared: PreparedFiles) -> Marker:
        assert isinstance(decision.verdict, Commit)
        entry, batch = decision.situation.entry, decision.situation.batch
        return Marker(
            **facts,
            directory_id=prepared.directory_id,
            ledger_batch_id=batch.batch_id if decision.verdict.moves_ledger or entry is None else entry.batch_id,
            previous=prepared.follows,
            parts=prepared.parts,
        )

    def publish(self, commit: Marker, prepared: PreparedFiles) -> None:  # noqa: ARG002 - the marker names the parts
        """See `StagedSink.publish`: creates the marker."""
        data = commit.to_bytes()
        self._effects.emit(CommitDue(commit.batch.batch_id))
        self._ledger.storage.create(self.layout.marker(commit.number), data)
        self._effects.emit(CommitAnswered(commit.batch.batch_id))
        self._ledger.landed(commit, len(data))

    def confirmed(self) -> None:
        self._ledger.raise_high_water()

    def failures(self) -> AbstractContextManager[None]:
        return directory_failures(self.place)

    def check_target(self) -> None:
        """Prove that the storage creates files exclusively, before the run's first write."""
        if not self._exclusive_proved:
            prove_exclusive(self._ledger.storage, self.layout.root)
            self._exclusive_proved = True

    def writer(self, batch: Batch) -> PartsWriter:
        return self.parts(batch, self.layout.parts, self.codec, self.target_file_size_bytes)

    def prepared_facts(self, transaction: StagedTransaction[Marker]) -> dict[str, Any]:
        head = transaction.decision.head
        directory_id = uuid.uuid4().hex if head is None else head.directory_id
        return {"directory_id": directory_id, "begun_ms": transaction.begun_ms}

    def elsewhere(self, decision: LedgerDecision[Marker], prepared: PreparedFiles) -> str:
        head = decision.head
        return "" if head is None or prepared.directory_id == head.directory_id else "history of the directory"

    @cached_property
    def _ledger(self) -> MarkerLedger:
        self._records.storage = self._records.storage or open_storage(self.place)
        return MarkerLedger(self._records.storage, self.layout, self._effects.emit)
