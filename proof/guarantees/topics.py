"""A Kafka broker of the cells of one sink, and what a reader of committed records sees in a topic.

A topic has one partition: a reader of several sees the end of one transaction in one partition after the other.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from proof.guarantees.cells import Row, Source
from servers.kafka import kafka_broker

TOPIC = "readings"
_ADDRESS = "bootstrap-servers"
_PATIENCE_SECONDS = 60


@contextmanager
def broker_of(root: Path) -> Iterator[None]:
    """A broker with a topic for each kind of source, whose address is in the folder of the cells."""
    (root / "broker").mkdir(parents=True)
    with kafka_broker(root / "broker") as broker:
        for source in Source:
            broker.create_topic(topic_of(root / source.name), partitions=1)
        (root / _ADDRESS).write_text(broker.bootstrap)
        yield


def topic_of(folder: Path) -> str:
    """The topic of one cell; two cells share their broker."""
    return f"{TOPIC}-{folder.name.lower()}"


def address_of(folder: Path) -> str:
    """The broker's address, for one cell."""
    return (folder.parent / _ADDRESS).read_text()


def committed_rows(folder: Path) -> Iterator[Row]:
    """The rows of every record that is committed now."""
    consumer = Consumer(
        {
            "bootstrap.servers": address_of(folder),
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic_of(folder), 0, 0)])
        while (message := consumer.poll(_PATIENCE_SECONDS)) is not None:
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - a public code
                return
            if error is not None:
                raise KafkaException(error)
            row = json.loads(message.value() or b"")
            yield row["device"], row["reading"]
        raise TimeoutError("the topic could not be read in time")
    finally:
        consumer.close()
