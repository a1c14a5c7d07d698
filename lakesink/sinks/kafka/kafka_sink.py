"""The Kafka sink: a two-phase sink whose target is a topic, or the topics that the rows name.

A batch is published by one transaction, with its rows and one record for the ledger, by a driver that fenced all
others. After an unknown outcome the next attempt fences again, which ends the transaction one way or the other.

The staging folder of a sink has parts of rows, and the records of prepared batches. A part has a unique name and never
changes. The parts of a committed batch are needed no longer once a later batch is committed: then no driver can commit
them. They are removed by the names in their prepared record, and no folder is listed. Parts of failed tasks stay; a
rule of the storage can remove files that are older than a few days.
"""

import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from lakesink.parquet.batch_size import rows_at_once
from lakesink.parquet.filesystem import local_path, scheme_of
from lakesink.settings.options import read_option
from lakesink.settings.settings import PREPARED_MAX_AGE
from lakesink.sinks.kafka.clients import Clients, kafka_option_invalid
from lakesink.sinks.kafka.commit_record import CommitRecord, LedgerState
from lakesink.sinks.kafka.failures import WORDS, kafka_failures
from lakesink.sinks.kafka.staged_rows import Needs, RecordsWriter, decode_kafka, needs_of_all
from lakesink.sinks.kafka.target import KafkaTarget, Session, commit_rows
from lakesink.sinks.record_folder import PreparedDirectory
from lakesink.sinks.staged.ledger import LedgerDecision, PreparedParts
from lakesink.sinks.staged.part_receipt import Part, PartsReceipt, SinkFolder, part_stem
from lakesink.sinks.staged.parts import all_there, file_system
from lakesink.sinks.staged.sink import StagedSink, StagedTransaction, option
from lakesink.sinks.storage import failures_as, open_storage
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.record import parse_record
from lakesink_protocol.errors import CatalogError, WriteError
from lakesink_protocol.identity import Batch
from lakesink_protocol.redact import contains_secret, describe, redact, shown
from lakesink_protocol.refusals.accept import Accept
from lakesink_protocol.retry import RetryPolicy
from lakesink_protocol.verdict import Commit

TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
PART_BYTES = 128 * 1024 * 1024
CODEC = "lz4"
_BYTES_AT_ONCE = 8 * 2**20


class StagingFolder(SinkFolder):
    """The folder of one sink in the user's staging folder."""

    def check_writable(self) -> None:
        """Write and remove a small file; raises CatalogError if that fails."""
        location = f"{self.root}/probe-{uuid4()}"
        with failures_as(self._failed):
            storage = open_storage(self.root)
            storage.replace(location, b"lakesink")
            storage.remove(location)

    def has_all(self, parts: Sequence[Part]) -> bool:
        """True if every part exists with its recorded size."""
        with failures_as(self._failed):
            return all_there(open_storage(self.root), self, parts)

    def rows(self, parts: Sequence[Part]) -> Iterator[pa.RecordBatch]:
        """The rows of the parts, in their order."""
        for part in parts:
            with failures_as(self._failed):
                filesystem, path = file_system(self.part(part))
                with filesystem.open_input_file(path) as source:
                    parquet = pq.ParquetFile(source)
                    yield from parquet.iter_batches(rows_at_once(parquet, _BYTES_AT_ONCE))

    def _failed(self, error: Exception) -> CatalogError:
        return CatalogError.of("STAGING_FAILED", error=describe(error)[:120], root=redact(self.directory))


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRows(PreparedParts):
    """A batch that only needs its transaction; `topic` is that of all rows, empty if each row names its own."""

    topic: str


@dataclass(slots=True)
class StagingRecords(PreparedDirectory):
    """The prepared records of one sink; the parts that a record names are removed with it."""

    staging: StagingFolder = field(default=StagingFolder("", ""))

    def _remove(self, path: str) -> None:
        """Remove a record after its parts: if that fails half-way, the record still names the rest."""
        body = parse_record(self._read(path) or b"") or {"participants": {}}
        for payload in body["participants"].values():
            prepared = PreparedRows.parse(payload, part_stem(self.staging.sink_id, int(body["batch"]["batch_id"])))
            for part in prepared.parts if prepared else ():
                with suppress(FileNotFoundError):
                    self._opened().remove(self.staging.part(part))
        PreparedDirectory._remove(self, path)  # noqa: SLF001 - a slotted dataclass has no zero-argument super


def _folder(staging: Any) -> str:
    text = os.fspath(staging) if isinstance(staging, os.PathLike) else staging
    if not isinstance(text, str) or not text.strip() or not text.isprintable():
        raise kafka_option_invalid("staging", "expected a path or a URI that driver and executors share")
    if contains_secret("staging", text):
        raise kafka_option_invalid("staging", "it contains credentials; configure the storage's client")
    return posixpath.abspath(local_path(text)) if scheme_of(text) == "file" else text.rstrip("/")


class KafkaSink(StagedSink[CommitRecord, PreparedRows]):
    """Produces one stream into Kafka, each batch in one transaction and once, for `lakesink.stream_to`.

    The rows have the columns of Spark's Kafka sink: `value`, and if wanted `key`, `headers`, `topic` and `partition`.
    Consumers that read only committed records (``isolation.level=read_committed``) see each row once. Opens nothing
    before its first batch.

    Args:
        bootstrap_servers: ``host:port`` of brokers, separated by commas.
        sink_id: Permanent name of this stream. It stays the same when the checkpoint changes.
        staging: Folder that driver and executors share: a path, or a URI that fsspec supports.
        topic: The topic of all rows; without it, the rows have a column `topic`.
        config: Further properties of the client, in the spelling of librdkafka, for example ``security.protocol``. They
            stay on the driver.
        accept: Overrules one refusal, as the refusal prints it.
        prepared_max_age: Age limit of a prepared batch, 20 hours by default: shorter than a rule that removes old files
            from the staging folder.

    Raises:
        SettingsError: An option is malformed.
    """

    retry = RetryPolicy(num_retries=8, total_timeout_ms=600_000)  # for about ten minutes if the cluster is down
    kind = "topic"
    unresolved = "COMMIT_UNRESOLVED.topic"
    prepared = PreparedRows
    keeps_parts = False
    words = WORDS

    def __init__(  # noqa: PLR0913 - the options, each by its name
        self,
        bootstrap_servers: str,
        *,
        sink_id: str,
        staging: str | os.PathLike[str],
        topic: str | None = None,
        config: Mapping[str, Any] | None = None,
        accept: str | Accept | None = None,
        prepared_max_age: timedelta | str | None = None,
        effects: Effects | None = None,
    ) -> None:
        name = read_option("sink_id", sink_id)
        self.clients = Clients.parse(bootstrap_servers, config)
        if topic is not None and (not isinstance(topic, str) or not TOPIC.fullmatch(topic) or topic in (".", "..")):
            raise kafka_option_invalid("topic", "Kafka's names have at most 249 letters, digits, '.', '_' and '-'")
        self.topic = topic or ""
        self.staging = StagingFolder(_folder(staging), name)
        max_age = option("prepared_max_age", prepared_max_age, PREPARED_MAX_AGE)
        effects = effects or Effects()
        records = StagingRecords(self.staging.prepared, max_age, emit=effects.emit, staging=self.staging)
        super().__init__(name, self.topic, accept, records, effects)
        self._target = KafkaTarget(self.clients, name, self.topic)
        self._session: Session | None = None
        self._start_id: str | None = None

    @property
    def name(self) -> str:  # type: ignore[override] # computed, read-only
        """The participant's name in records and outcomes."""
        return f"{self.sink_id}@kafka:{self.topic}"

    @property
    def ledger(self) -> LedgerState:
        """The ledger topic as it was read last."""
        return self._target.state

    def read_ledger(self) -> LedgerState:
        """The ledger topic now."""
        with self.failures():
            return self._target.read()

    def decide_on(self, batch: Batch, attempt: int = 0) -> LedgerDecision[CommitRecord]:
        """See `StagedSink.decide_on`: an attempt to commit has a session that fenced all others."""
        if attempt:
            self._session = self._target.take_session(attempt)
        else:
            self._target.read()
        state = self._target.state
        if self._start_id is None:
            self.staging.check_writable()
            self._start_id = state.target_id
        return state.decide_on(self.sink_id, batch, self._start_id, self.accept)

    def has_parts(self, prepared: PreparedRows) -> bool:
        return self.staging.has_all(prepared.parts)

    def commit_of(
        self, facts: Mapping[str, Any], decision: LedgerDecision[CommitRecord], prepared: PreparedRows
    ) -> CommitRecord:
        assert isinstance(decision.verdict, Commit)
        batch, head = decision.situation.batch, decision.head
        return CommitRecord(
            **facts,
            target_id=self._target.state.target_id,
            ledger=batch if decision.verdict.moves_ledger or head is None else head.ledger,
            rows=prepared.rows,
        )

    def publish(self, commit: CommitRecord, prepared: PreparedRows) -> None:
        """See `StagedSink.publish`: one transaction."""
        assert self._session is not None, "decide_on comes first"
        commit_rows(self._target, self._session, self.staging.rows(prepared.parts), commit, self._effects.emit)

    def describe(self, error: Exception) -> str:
        return self.clients.describe(error)

    def failures(self) -> AbstractContextManager[None]:
        return kafka_failures(self.clients)

    def writer(self, batch: Batch) -> RecordsWriter:
        parts = self.parts(batch, self.staging.parts, CODEC, PART_BYTES)
        return RecordsWriter(parts, self.topic, self._target.most_bytes)

    def votes(self, batch: Batch, receipts: Sequence[bytes]) -> list[PartsReceipt]:
        """See `StagedSink.votes`; checks that the topics take the rows."""
        votes = [decode_kafka(data, self.stem(batch)) for data in receipts]
        with self.failures():
            for topic, needs in needs_of_all(needs for _, needs in votes).items():
                self._check_topic(topic, needs, batch.batch_id)
        return [parts for parts, _ in votes]

    def prepared_facts(self, transaction: StagedTransaction[CommitRecord]) -> dict[str, Any]:  # noqa: ARG002 - the same for all
        return {"topic": self.topic}

    def elsewhere(self, decision: LedgerDecision[CommitRecord], prepared: PreparedRows) -> str:  # noqa: ARG002 - as above
        return "" if prepared.topic == self.topic else "topic"

    def close(self) -> None:
        """End the clients; a later batch opens others."""
        self._target.close()
        self._session = None

    def _check_topic(self, topic: str, needs: Needs, batch_id: int) -> None:
        """A fixed topic limits the rows as they are written; a topic that rows name is looked at here."""
        facts, filled = self._target.facts(topic), self._target.most_bytes
        if needs.partition >= facts.partitions:
            trouble = f"a row names partition {needs.partition}, the topic has {facts.partitions} partitions"
        elif needs.record_bytes > facts.max_message_bytes:
            trouble = f"a row takes {needs.record_bytes} bytes, max.message.bytes is {facts.max_message_bytes}"
        elif filled > facts.max_message_bytes:
            trouble = f"the producer's message.max.bytes, {filled}, is above its max.message.bytes"
        else:
            return
        raise WriteError.of("KAFKA_ROW_REFUSED.by_topic", topic=shown(topic, 60), batch_id=batch_id, trouble=trouble)
