"""The Kafka sink: a two-phase sink whose target is a topic, or the topics that the rows name."""

import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from lakesink.sinks.directory.part_receipt import check_batch, part_stem
from lakesink.sinks.directory.parts import PartsPlan, PartsWriter
from lakesink.sinks.kafka.clients import MESSAGE_BYTES
from lakesink.sinks.kafka.commit_record import LedgerDecision
from lakesink.sinks.kafka.failures import kafka_failures, refused
from lakesink.sinks.kafka.prepared import PreparedRecords, parse_prepared, still_usable
from lakesink.sinks.kafka.publication import Publication
from lakesink.sinks.kafka.receipt import Needs, decode_kafka, needs_of_all
from lakesink.sinks.kafka.rows import RecordsWriter
from lakesink.sinks.kafka.settings import KafkaSettings
from lakesink.sinks.kafka.staging import StagingRecords
from lakesink.sinks.kafka.target import KafkaTarget
from lakesink.sinks.kafka.topics import TopicFacts
from lakesink.sinks.unused_accept import UnusedAcceptWarning
from lakesink_catalog.commit.fence import Effects
from lakesink_protocol.accept import Accept
from lakesink_protocol.errors import Reason, WriteError
from lakesink_protocol.events import BatchAborted, PreparedUnusable
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.outcome import AlreadyCommitted, Outcome
from lakesink_protocol.receipt import ReceiptInvalid
from lakesink_protocol.redact import shown
from lakesink_protocol.two_phase import Durability, Payload, TwoPhaseCommitSink
from lakesink_protocol.verdict import Commit, Refuse, Skip
from lakesink_protocol.votes import check_tasks, receipt_rejected

PART_BYTES = 128 * 1024 * 1024
CODEC = "lz4"


@dataclass(frozen=True, slots=True)
class KafkaTransaction:
    """One batch that may be written. No writer if an operator skips the batch."""

    batch: Batch
    decision: LedgerDecision
    writer: RecordsWriter | None
    prepared_log: StagingRecords


class KafkaSink(TwoPhaseCommitSink[KafkaTransaction, PreparedRecords]):
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

    durability = Durability.PREPARED_SURVIVES

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        sink_id: str,
        staging: str | os.PathLike[str],
        topic: str | None = None,
        config: Mapping[str, Any] | None = None,
        accept: str | Accept | None = None,
        prepared_max_age: timedelta | str | None = None,
    ) -> None:
        self.settings = KafkaSettings.parse(
            bootstrap_servers, topic, sink_id, staging, config, accept=accept, prepared_max_age=prepared_max_age
        )
        self._effects = Effects()
        self._target = KafkaTarget(self.settings.clients, self.settings.sink_id, self.settings.topic)
        self._records = StagingRecords(
            self.settings.staging.prepared,
            self.settings.prepared_max_age,
            emit=self._effects.emit,
            staging=self.settings.staging,
        )
        self._start_id: str | None = None
        self._accept_warning = UnusedAcceptWarning(
            self.settings.accept, "topic", self.settings.topic, self.settings.sink_id
        )

    @property
    def name(self) -> str:  # type: ignore[override] # computed, read-only
        """The participant's name in records and outcomes."""
        return f"{self.settings.sink_id}@kafka:{self.settings.topic}"

    def begin(self, batch: Batch) -> KafkaTransaction | AlreadyCommitted:
        """Read the ledger topic and decide on the batch."""
        with kafka_failures(self.settings.clients):
            state = self._target.read()
        if self._start_id is None:
            self.settings.staging.check_writable()
            self._start_id = state.target_id
        decision = state.decide_on(SinkKey(self.settings.sink_id), batch, self._start_id, self.settings.accept)
        self._accept_warning.after_decision(decision.verdict, batch.batch_id, self._effects.emit)
        match decision.verdict:
            case Skip(snapshot_id=number):
                return AlreadyCommitted(number)
            case Refuse(reason=reason):
                raise refused(reason, decision.situation)
            case Commit(adds_rows=adds_rows):
                if decision.head is not None:
                    self._records.follow(decision.head.batch.batch_id, decision.head.batch.fingerprint)
                writer = self._writer(batch) if adds_rows else None
                return KafkaTransaction(batch, decision, writer, self._records)

    def check_inputs(self, batch: Batch, transaction: KafkaTransaction) -> None:
        """See `TwoPhaseCommitSink.check_inputs`."""
        verdict = transaction.decision.verdict
        assert isinstance(verdict, Commit)
        if batch.missing_inputs and not verdict.without_inputs:
            raise refused(Reason.INPUT_MISSING, transaction.decision.situation, overruled=verdict.accepted)

    def recover(self, transaction: KafkaTransaction, payload: Payload) -> PreparedRecords | None:
        """Use an earlier run's prepared batch if it follows the same commit and all its parts still exist."""
        prepared = parse_prepared(payload, self._stem(transaction.batch))
        trouble = "it is malformed" if prepared is None else self._trouble(transaction.decision, prepared)
        if trouble:
            self._effects.emit(PreparedUnusable(transaction.batch.batch_id, trouble))
            return None
        return prepared

    def pre_commit(self, transaction: KafkaTransaction, receipts: Sequence[bytes]) -> PreparedRecords:
        """Check every receipt, and that the topics take the rows. The parts are closed: nothing else is written."""
        stem = self._stem(transaction.batch)
        try:
            votes = [decode_kafka(data, stem) for data in receipts]
            parts = tuple(part for vote in votes for part in vote.parts.parts)
            check_batch(parts)
        except ReceiptInvalid as error:
            raise receipt_rejected(str(error)) from None
        check_tasks(vote.parts.task for vote in votes)
        with kafka_failures(self.settings.clients):
            for topic, needs in needs_of_all(votes).items():
                self._check_topic(topic, needs, transaction.batch.batch_id)
        decision = transaction.decision
        assert isinstance(decision.verdict, Commit)
        return PreparedRecords(
            commit_id=uuid.uuid4().hex,
            topic=self.settings.topic,
            follows=decision.follows,
            accepted=decision.verdict.accepted,
            parts=parts,
        )

    def commit(self, transaction: KafkaTransaction, prepared: PreparedRecords) -> Outcome | None:
        """Commit the batch by its transaction."""
        assert self._start_id is not None, "begin comes first"
        return Publication(
            self._target,
            self.settings.staging,
            self._effects,
            self.settings.accept,
            self._start_id,
            transaction.batch,
            prepared,
        ).publish()

    def abort(self, transaction: KafkaTransaction) -> None:
        """Only log: staged parts stay, and no record of the topic has their rows."""
        self._effects.emit(BatchAborted(transaction.batch.batch_id, "topic", self.settings.topic))

    def close(self) -> None:
        """End the clients; a later batch opens others."""
        self._target.close()

    def _writer(self, batch: Batch) -> RecordsWriter:
        plan = PartsPlan(
            folder=self.settings.staging.parts,
            stem=self._stem(batch),
            batch_id=batch.batch_id,
            codec=CODEC,
            target_file_size_bytes=PART_BYTES,
        )
        return RecordsWriter(PartsWriter(plan), self.settings.topic, self._target.most_bytes)

    def _stem(self, batch: Batch) -> str:
        return part_stem(self.settings.sink_id, batch.batch_id)

    def _check_topic(self, topic: str, needs: Needs, batch_id: int) -> None:
        """A fixed topic limits the rows as they are written; a topic that rows name is looked at here."""
        facts = self._target.facts(topic)
        trouble = topic_trouble(facts, needs, self._target.most_bytes)
        if trouble:
            raise WriteError(
                "KAFKA_ROW_REFUSED",
                f"Topic {shown(topic, 60)!r} does not take batch {batch_id}: {trouble}.",
                action=f"Correct the rows, the topic, or {MESSAGE_BYTES} in config. Nothing of the batch was sent.",
            )

    def _trouble(self, decision: LedgerDecision, prepared: PreparedRecords) -> str:
        """The reason that a prepared batch can no longer be committed; empty if it can."""
        if not still_usable(decision, prepared):
            return "the ledger changed"
        if prepared.topic != self.settings.topic:
            return "it was prepared for another topic"
        complete = self.settings.staging.has_all(prepared.parts)
        return "" if complete else "a part is missing or has another size"


def topic_trouble(facts: TopicFacts, needs: Needs, batch_bytes: int) -> str:
    """Why a topic cannot take the rows; empty if it can. The producer fills batches up to `batch_bytes`."""
    if needs.partition >= facts.partitions:
        return f"a row names partition {needs.partition}, the topic has {facts.partitions} partitions"
    if needs.record_bytes > facts.max_message_bytes:
        return f"a row takes {needs.record_bytes} bytes, max.message.bytes is {facts.max_message_bytes}"
    if batch_bytes > facts.max_message_bytes:
        return f"the producer's message.max.bytes, {batch_bytes}, is above its max.message.bytes"
    return ""
