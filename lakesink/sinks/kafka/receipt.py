"""The receipt of one task of the Kafka sink: its staged parts, and what the topics must accept. Pure.

A receipt comes from a less trusted process than the driver: `decode_kafka` accepts this form only.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakesink.sinks.staged.part_receipt import PartsReceipt, decode_parts, read_receipt
from lakesink_protocol.receipt_json import ReceiptInvalid

KAFKA_RECEIPT_VERSION = 1
LONGEST_TOPIC = 249
_NUMBERS = range(-1, 2**63)


@dataclass(frozen=True, slots=True)
class Needs:
    """What the rows of a batch need of one topic: room for the largest record, and the highest partition they name.

    `partition` is -1 if no row names one.
    """

    record_bytes: int
    partition: int

    def also(self, other: "Needs | None") -> "Needs":
        """These needs and others."""
        if other is None:
            return self
        return Needs(max(self.record_bytes, other.record_bytes), max(self.partition, other.partition))


@dataclass(frozen=True, slots=True)
class KafkaReceipt:
    """The result of one task: staged parts, and the needs by topic."""

    parts: PartsReceipt
    needs: Mapping[str, Needs]


def encode_kafka(parts: bytes, needs: Mapping[str, Needs]) -> bytes:
    """The receipt as JSON; `parts` is the encoded receipt of the parts."""
    topics = {topic: [found.record_bytes, found.partition] for topic, found in needs.items()}
    document = {"v": KAFKA_RECEIPT_VERSION, "parts": parts.decode(), "topics": topics}
    return json.dumps(document, separators=(",", ":")).encode()


def decode_kafka(data: bytes, stem: str) -> KafkaReceipt:
    """The receipt in `data`; raises ReceiptInvalid unless it is of this batch and version, and not too large."""

    def read(document: Mapping[str, Any]) -> KafkaReceipt:
        needs = {_topic(topic): _needs(numbers) for topic, numbers in document["topics"].items()}
        return KafkaReceipt(decode_parts(document["parts"].encode(), stem), needs)

    return read_receipt(data, KAFKA_RECEIPT_VERSION, read)


def needs_of_all(receipts: list[KafkaReceipt]) -> dict[str, Needs]:
    """What all tasks together need, by topic."""
    found: dict[str, Needs] = {}
    for receipt in receipts:
        for topic, needs in receipt.needs.items():
            found[topic] = needs.also(found.get(topic))
    return found


def _topic(name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_TOPIC:
        raise ReceiptInvalid("the name of a topic is empty or too long")
    return name


def _needs(numbers: Any) -> Needs:
    match numbers:
        case [int(record_bytes), int(partition)] if record_bytes in _NUMBERS and partition in _NUMBERS:
            return Needs(record_bytes, partition)
    raise ReceiptInvalid("a count is not an integer in its range")
