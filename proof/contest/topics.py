"""A Kafka broker of the streams of one sink, and what a reader of committed records sees in a topic.

A topic has one partition: a reader of several sees the end of one transaction in one partition after the other.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

import lakesink
from proof.contest.target import Target, View, seen
from proof.oracle import Key
from servers.kafka import kafka_broker

_ADDRESS = "bootstrap-servers"
_PATIENCE_SECONDS = 60


@contextmanager
def broker_of(targets: Sequence[Target]) -> Iterator[None]:
    """A broker with a topic for each stream, whose address is beside their folders."""
    root = targets[0].folder.parent
    (root / "broker").mkdir(parents=True)
    with kafka_broker(root / "broker") as broker:
        for target in targets:
            broker.create_topic(target.folder.name, partitions=1)
        (root / _ADDRESS).write_text(broker.bootstrap)
        yield


def into_kafka(rows: DataFrame, target: Target) -> DataStreamWriter:
    """A stream into its topic."""
    name = target.folder.name
    sink = lakesink.KafkaSink(_address(target), sink_id=f"of-{name}", staging=target.folder / "staging", topic=name)
    return lakesink.stream_to(rows.selectExpr("to_json(struct(*)) AS value"), sink, checkpoint=target.checkpoint)


def committed(target: Target) -> View:
    """What every record holds that is committed now."""
    return seen(_rows(target))


def _address(target: Target) -> str:
    return (target.folder.parent / _ADDRESS).read_text()


def _rows(target: Target) -> Iterator[Key]:
    consumer = Consumer(
        {
            "bootstrap.servers": _address(target),
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(target.folder.name, 0, 0)])
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
