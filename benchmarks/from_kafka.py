"""W2 again, from a Kafka broker: here engines take part that are no Spark, each in its own process.

Every run is a whole reading of the topic, from the start of a job in a process that has run another one before.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import pyarrow.parquet as pq
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from benchmarks.oracle import files_fingerprint, size_of
from benchmarks.peers import flink, kafka_connect
from benchmarks.peers.events import EVENTS, event, typed_events
from benchmarks.peers.measure import PeerFailed, PeerRun
from benchmarks.result import Goal, Ratio, Result
from benchmarks.session import CATALOG, TABLE_PROPERTIES, catalog_properties, iceberg_conf, session
from benchmarks.sinks import ICEBERG, LAKESINK, Sink, Target, parsed_by_spark
from benchmarks.usage import measured
from lakesink_catalog.connect.catalog import connect
from servers.kafka import kafka_broker

EVENT_COUNT = 600_000
PARTITIONS = 2
ROUNDS = 3
TOPIC = "events"
_SCHEMA = (
    "id bigint, customer bigint, quantity bigint, price double, weight double, amount decimal(12, 2), at timestamp,"
    " paid boolean, city string, note string"
)
_PEERS = {"Flink's Iceberg sink": flink.run, "Kafka Connect's Iceberg sink": kafka_connect.run}


def measure(folder: Path, say: Callable[[str], None], scale: float = 1.0) -> Result:
    """The sinks on Spark in turn, then the others once each; one that does not come to its end here is told so."""
    rows = int(EVENT_COUNT * scale)
    folder.mkdir()
    (folder / "broker").mkdir()
    found: dict[str, list[PeerRun]] = {LAKESINK.name: [], ICEBERG.name: [], **{name: [] for name in _PEERS}}
    failed: dict[str, str] = {}
    with kafka_broker(folder / "broker") as broker:
        say(f"W2/Kafka: producing {rows:,} documents")
        for topic in (TOPIC, f"{TOPIC}-warm"):
            broker.create_topic(topic, PARTITIONS)
        produce(broker.bootstrap, rows)
        spark = session(iceberg_conf(folder))
        for sink in (LAKESINK, ICEBERG):
            _spark_run(spark, sink, broker.bootstrap, rows, folder / f"warm-{sink.name}")
        for number in range(ROUNDS):
            for sink in (LAKESINK, ICEBERG) if number % 2 else (ICEBERG, LAKESINK):
                say(f"W2/Kafka: {sink.name}")
                run = _spark_run(spark, sink, broker.bootstrap, rows, folder / f"{number}-{sink.name}")
                found[sink.name].append(run)
        spark.stop()
        for name, peer in _PEERS.items():
            say(f"W2/Kafka: {name}")
            place = folder / peer.__module__.rpartition(".")[2]
            place.mkdir()
            try:
                found[name].append(peer(broker.bootstrap, TOPIC, rows, place))
            except PeerFailed as error:
                failed[name] = str(error)[-200:]
    check(rows, found, folder / "source.parquet")
    return report(rows, {name: runs for name, runs in found.items() if runs}, failed)


def produce(broker: str, rows: int) -> None:
    """Fill the topic."""
    producer = Producer({"bootstrap.servers": broker, "linger.ms": 50, "log_level": 0})
    for number in range(rows):
        producer.produce(TOPIC, event(number))
        if number % 10_000 == 0:
            producer.poll(0)
            producer.flush()
    producer.flush()


def check(rows: int, found: Mapping[str, Sequence[PeerRun]], place: Path) -> None:
    """All wrote the rows of the documents, which are put into a file for this.

    Raises:
        WrongRows: One wrote others.
    """
    pq.write_table(typed_events(rows), place)
    expected = files_fingerprint([str(place)])
    for name, runs in found.items():
        for run in runs:
            expected.check(name, files_fingerprint(run.files))


def report(rows: int, found: Mapping[str, Sequence[PeerRun]], failed: Mapping[str, str]) -> Result:
    """A row for every sink, and the goal against Flink judged."""
    ours = [run.seconds for run in found[LAKESINK.name]]
    goals = [
        Goal(f"W2/Kafka, throughput against {name}", 2.5, _ratio(found[name], ours).median, at_least=True)
        for name in (ICEBERG.name, "Flink's Iceberg sink")
        if name in found
    ]
    heads = ("sink", "seconds", "as fast as it", "processor s", "MiB of its process", "files", "bytes a row")
    lines = [_row(name, runs, ours, rows) for name, runs in found.items()]
    lines += [(name, f"did not come to its end: {why}", "", "", "", "", "") for name, why in failed.items()]
    raw = {name: [asdict(run) for run in runs] for name, runs in found.items()}
    title = f"{rows:,} JSON documents from a Kafka broker"
    return Result("W2/Kafka", title, heads, tuple(lines), tuple(goals), raw, rounds=ROUNDS)


def _ratio(theirs: Sequence[PeerRun], ours: Sequence[float]) -> Ratio:
    """Pair by pair where there are pairs, else by our median."""
    seconds = [run.seconds for run in theirs]
    return Ratio.of(seconds, ours if len(seconds) == len(ours) else [statistics.median(ours)] * len(seconds))


def _row(name: str, runs: Sequence[PeerRun], ours: Sequence[float], rows: int) -> tuple[str | float | int, ...]:
    seconds = [run.seconds for run in runs]
    return (
        name,
        round(statistics.median(seconds), 2),
        str(_ratio(runs, ours)),
        round(statistics.median(run.cpu_seconds for run in runs), 1),
        max(run.peak_memory_bytes for run in runs) // 1024**2,
        int(statistics.median(len(run.files) for run in runs)),
        round(size_of(runs[0].files) / rows, 1),
    )


def _spark_run(spark: SparkSession, sink: Sink, broker: str, rows: int, place: Path) -> PeerRun:
    """As the others: from the start of the query until the last row can be read."""
    place = place.with_name(place.name.replace(" ", "-").replace("'", ""))
    properties = catalog_properties(place.parent)
    (place.parent / "warehouse").mkdir(exist_ok=True)
    catalog = connect(CATALOG, properties)
    table = f"bench.kafka_{place.name.replace('-', '_')}"
    catalog.create_namespace_if_not_exists("bench")
    catalog.create_table(table, EVENTS, properties=TABLE_PROPERTIES)
    target = Target(place, table, properties, {"decode": "json"} if sink.decodes else {})
    with measured() as used:
        writer = sink.writer(_stream(spark, broker, rows, sink), target).trigger(availableNow=True)
        sink.start(writer, target).awaitTermination()
    return PeerRun(used.seconds, used.cpu_seconds, used.peak_bytes, target.data_files())


def _stream(spark: SparkSession, broker: str, rows: int, sink: Sink) -> DataFrame:
    half = rows // 2 + PARTITIONS  # or what is rounded off would be a third batch, of two records
    options = {"kafka.bootstrap.servers": broker, "subscribe": TOPIC, "startingOffsets": "earliest"}
    records = spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger=str(half)).load()
    return records if sink.decodes else parsed_by_spark(records, _SCHEMA)
