"""Errors of the Kafka sink: the texts of its refusals, and failures of the cluster."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from lakesink.sinks.kafka.clients import Clients, Undelivered, is_time_out, kafka_error
from lakesink_protocol.errors import CatalogError, LakesinkError, Reason
from lakesink_protocol.redact import redact, safe_cause, shown
from lakesink_protocol.refusals.texts import Words

LONGEST = 120
_NEW = "Use a new sink id and a new checkpoint: the stream then reads the source from its beginning."
WORDS = (
    Words(
        Reason.TABLE_REPLACED,
        "The topic of sink {sink}, or its ledger topic, is not the one of its earlier batches.",
        f"If the topic was created again or changed on purpose: {_NEW} Rows that are still in the topic then come a"
        " second time. Otherwise correct topic and bootstrap servers.",
    ),
    Words(
        Reason.LEDGER_DAMAGED,
        "The ledger topic of sink {sink} cannot be trusted: {damage}.",
        "Upgrade lakesink if a newer version wrote the record.\n"
        f"If somebody else wrote into the ledger topic, find out which batch is the newest in the topic. {_NEW}",
    ),
    Words(
        Reason.UNKNOWN_HISTORY,
        "The ledger topic has no batch of sink {sink}, so the batches before batch {n} are unknown.",
        "Check bootstrap servers and sink id: the ledger topic may be on another cluster, or was deleted.\n"
        "Start with a new checkpoint, which reads the source from its beginning.",
    ),
    Words(
        Reason.BATCH_CHANGED,
        "Batch {changed} of sink {sink} was replayed with other data than the topic has: restore its checkpoint.",
        "Restore the checkpoint that belongs to the topic: then no row is lost or duplicated. The source or the"
        " checkpoint changed after the commit of batch {last}, which ended at {end}.",
    ),
    Words(
        Reason.REWOUND,
        "Batch {n} of sink {sink} is older than batch {last}, the newest in the ledger topic.",
        "Restore the newest checkpoint: this one is older than the topic. The sink ended at {end}, and stays at batch"
        " {last}, even if an older batch is accepted.",
    ),
    Words(
        Reason.GAP,
        "Batch {n} of sink {sink} does not follow the topic's batch {last}: batches are missing. Rewind to {last}.",
        "Stop the stream, run `lakesink rewind <checkpoint> --to-batch {last}`, and start it again: batches {next}"
        " to {n} are replayed. The checkpoint is newer than the topic, or two queries share this sink id.",
    ),
)
_NOT_PERMITTED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - a public code
    }
)
_NEVER_DELIVERED = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.POLICY_VIOLATION,
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - a public code
    }
)
_MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})  # noqa: SLF001 - a public code


class NotDelivered(Exception):
    """The cluster did not take a record of an open transaction, which cannot be committed any more."""

    def __init__(self, record: Undelivered) -> None:
        self.record = record
        super().__init__(record.error.str())


def final_error(error: Exception, clients: Clients) -> LakesinkError | None:
    """The error to raise if trying again cannot help; None if it can."""
    found = error.record.error if isinstance(error, NotDelivered) else kafka_error(error)
    if found is None:
        return None
    told = f"{clients.describe(error)[:LONGEST].rstrip('.')}."
    if found.code() in _NOT_PERMITTED:
        return CatalogError.of("KAFKA_NOT_PERMITTED", told=told)
    if found.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return CatalogError.of("KAFKA_TIMEOUT_TOO_LONG", timeout_ms=clients.transaction_timeout_ms)
    if found.code() in _MISSING:
        return CatalogError.of("KAFKA_TOPIC_MISSING.told", told=told)
    if found.code() in _NEVER_DELIVERED:
        record = error.record if isinstance(error, NotDelivered) else None
        size = "" if record is None else f" of {record.size_bytes} bytes for topic {shown(record.topic, 40)!r}"
        topic = "the topic" if record is None else f"topic {shown(record.topic, 249)!r}"
        most = clients.max_message_bytes
        return CatalogError.of("KAFKA_RECORD_REFUSED", size=size, told=told, most_bytes=most, topic=topic)
    return None


@contextmanager
def kafka_failures(clients: Clients) -> Iterator[None]:
    """Convert a client's exceptions inside the block, which commits nothing, to a `CatalogError`."""
    try:
        yield
    except LakesinkError:
        raise
    except (KafkaException, TimeoutError) as error:
        found = final_error(error, clients) or CatalogError.of(
            "KAFKA_UNREACHABLE" if is_time_out(error) else "KAFKA_FAILED",
            error=clients.describe(error)[:LONGEST],
            servers=redact(shown(clients.bootstrap_servers, 200)),
        )
        raise found from safe_cause(error, clients.config)
