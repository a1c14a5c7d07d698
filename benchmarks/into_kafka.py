"""W17: the same rows into a Kafka topic, by lakesink in transactions and by Spark's sink, in turn in one session."""

import json
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, TopicPartition
from pyspark.sql import DataFrame, SparkSession

import lakesink
from benchmarks.result import Goal, Ratio, Result
from benchmarks.session import iceberg_conf, session
from benchmarks.usage import Usage, measured
from servers.kafka import KafkaBroker, kafka_broker

ROWS, FILES, PARTITIONS, ROUNDS = 600_000, 2, 2, 3
LAKESINK, SPARK = "lakesink.KafkaSink", "Spark's Kafka sink"
LOOK_SECONDS = 0.5
Run = Callable[[DataFrame, str, Path], None]


class RowsDiffer(Exception):
    """A topic has not each row once."""


def measure(folder: Path, say: Callable[[str], None], scale: float = 1.0) -> Result:
    """Each sink in turn, first in every other round; each topic is read before its time is believed."""
    rows = int(ROWS * scale)
    folder.mkdir()
    (folder / "broker").mkdir()
    found: dict[str, list[Usage]] = {LAKESINK: [], SPARK: []}
    with kafka_broker(folder / "broker") as broker:
        runs: dict[str, Run] = {LAKESINK: _lakesink(broker), SPARK: _spark(broker)}
        spark = session(iceberg_conf(folder))
        _write_source(spark, folder / "source", rows)
        for number in range(-1, ROUNDS):
            for name in sorted(runs, reverse=bool(number % 2)):
                topic = f"round-{number + 1}-{name[:5].lower()}"
                broker.create_topic(topic, PARTITIONS)
                with measured() as used:
                    runs[name](_stream(spark, folder / "source"), topic, folder / topic)
                _check(broker, topic, rows)
                if number >= 0:
                    found[name].append(used)
                    say(f"W17: {name} {used.seconds:.2f} s")
        spark.stop()
    return report(rows, found)


def report(rows: int, found: dict[str, list[Usage]]) -> Result:
    """A row for each sink, and the goal."""
    ours, theirs = ([used.seconds for used in found[name]] for name in (LAKESINK, SPARK))
    ratio = Ratio.of(theirs, ours)
    goal = Goal("W17, throughput against Spark's Kafka sink", 0.7, ratio.median, at_least=True)
    heads = ("sink", "guarantee", "seconds", "rows a second", "as fast as Spark's", "processor s")
    promises = {LAKESINK: "exactly once", SPARK: "at least once"}
    lines = [
        (
            name,
            promises[name],
            round(statistics.median(seconds), 2),
            int(rows / statistics.median(seconds)),
            str(Ratio.of(theirs, seconds)),
            round(statistics.median(used.cpu_seconds for used in found[name]), 1),
        )
        for name, seconds in ((LAKESINK, ours), (SPARK, theirs))
    ]
    raw = {name: [asdict(used) for used in usages] for name, usages in found.items()}
    title = f"{rows:,} rows in {FILES} batches into a topic of {PARTITIONS} partitions"
    return Result("W17", title, heads, tuple(lines), (goal,), raw, rounds=ROUNDS)


def _write_source(spark: SparkSession, place: Path, rows: int) -> None:
    """Parquet files of equal size: reading them costs little."""
    columns = ["CAST(id AS STRING) AS key", "to_json(struct(id, id * 7 AS amount, uuid() AS note)) AS value"]
    spark.range(0, rows, 1, FILES).selectExpr(*columns).write.parquet(str(place))


def _stream(spark: SparkSession, source: Path) -> DataFrame:
    files = spark.readStream.schema("key STRING, value STRING").option("maxFilesPerTrigger", "1")
    return files.parquet(str(source)).repartition(2)


def _lakesink(broker: KafkaBroker) -> Run:
    def run(rows: DataFrame, topic: str, place: Path) -> None:
        sink = lakesink.KafkaSink(broker.bootstrap, topic=topic, sink_id=topic, staging=place / "staging")
        writer = lakesink.stream_to(rows, sink, checkpoint=place / "checkpoint")
        writer.trigger(availableNow=True).start().awaitTermination()
        sink.close()

    return run


def _spark(broker: KafkaBroker) -> Run:
    def run(rows: DataFrame, topic: str, place: Path) -> None:
        options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
        writer = rows.writeStream.format("kafka").options(**options, checkpointLocation=str(place / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    return run


def _check(broker: KafkaBroker, topic: str, rows: int) -> None:
    """Raise RowsDiffer unless a reader of committed records sees each row once."""
    seen = Counter(number for partition in range(PARTITIONS) for number in _numbers(broker, topic, partition))
    if seen != Counter(range(rows)):
        raise RowsDiffer(f"{topic} has {seen.total()} records of {len(seen)} rows, expected {rows}")


def _numbers(broker: KafkaBroker, topic: str, partition: int) -> Sequence[int]:
    own = {"bootstrap.servers": broker.bootstrap, "group.id": "bench", "isolation.level": "read_committed"}
    consumer = Consumer({**own, "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[int] = []
    while True:
        for message in consumer.consume(10_000, LOOK_SECONDS):  # which waits for all of them, also behind the end
            error = message.error()
            if error is None:
                found.append(json.loads(message.value() or b"")["id"])
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - a public code
                consumer.close()
                return found
