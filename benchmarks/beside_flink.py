"""W13: the same changes of a Kafka topic, upserted by lakesink and by Flink, and what a read costs afterwards.

Flink writes equality deletes, lakesink position deletes. A slice of changes is produced, and the next one when the
table shows it: so both wait for nothing but themselves, and Flink for its checkpoint, here one a second.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession

import lakesink
from benchmarks.oracle import WrongRows
from benchmarks.peers import flink
from benchmarks.peers.measure import NAMESPACE, Lake
from benchmarks.result import Goal, Ratio, Result
from benchmarks.session import CATALOG, TABLE_PROPERTIES, catalog_properties, iceberg_conf, session
from lakesink_catalog.connect.catalog import connect
from servers.flink import Flink
from servers.jars import FLINK_KAFKA
from servers.kafka import kafka_broker

ROWS, CHANGES, SLICES, WARM_UP, READS = 1_000_000, 10_000, 23, 3, 5
LAKESINK, FLINK = "lakesink", "Flink"
CHECKPOINT = "1s"
_PATIENCE_SECONDS = 120
_BASE_FILES = 4
_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "customer", StringType()),
    NestedField(3, "quantity", LongType()),
    NestedField(4, "version", LongType()),
    identifier_field_ids=[1],
)
_READ = "SELECT count(*), count(DISTINCT id), sum(quantity), sum(version) FROM {table}"
_DIGEST = "SELECT count(*), sum(CAST(xxhash64(id, customer, quantity, version) AS DECIMAL(38, 0))) FROM {table}"


@dataclass(slots=True)
class Times:
    """Seconds by sink.

    Attributes:
        visible: From the end of producing a slice until the table shows it.
        read: Of a query over the whole table afterwards.
        compacted: Of the same query after Spark's `rewrite_data_files`.
    """

    visible: list[float] = field(default_factory=list)
    read: list[float] = field(default_factory=list)
    compacted: list[float] = field(default_factory=list)


def measure(folder: Path, say: Callable[[str], None], scale: float = 1.0) -> Result:
    """Both sinks one after the other on the same topic of changes, then reads in turn."""
    (folder / "broker").mkdir(parents=True)
    (folder / "flink").mkdir()
    rows, found = int(ROWS * scale), {LAKESINK: Times(), FLINK: Times()}
    lake = Lake(folder, CATALOG)
    catalog = connect(CATALOG, catalog_properties(folder))
    catalog.create_namespace(NAMESPACE)
    for sink in found:
        properties = TABLE_PROPERTIES | {"format-version": "2", "write.upsert.enabled": str(sink == FLINK).lower()}
        table = catalog.create_table((NAMESPACE, _table(sink)), _SCHEMA, properties=properties)
        for start in range(0, rows, rows // _BASE_FILES):
            table.append(rows_of(range(start, start + rows // _BASE_FILES), 0))
    with kafka_broker(folder / "broker") as broker:
        spark = session(iceberg_conf(folder))
        for sink, running in ((LAKESINK, partial(_lakesink, spark, folder)), (FLINK, partial(_flink, folder, lake))):
            broker.create_topic(sink, 2)
            with running(broker.bootstrap, sink) as check:
                found[sink].visible = list(_slices(broker.bootstrap, sink, lake, rows, check))
            say(f"W13, {sink}: {statistics.median(found[sink].visible):.2f} s until a slice is visible")
        _read(spark, found)
        spark.stop()
    return report(found, rows)


def rows_of(ids: Sequence[int], version: int) -> pa.Table:
    """Rows whose values follow from key and version."""
    columns = {
        "id": ids,
        "customer": [f"customer {key % 100_000}" for key in ids],
        "quantity": [(key * 7919 + version) % 1_000_003 for key in ids],
        "version": [version] * len(ids),
    }
    types = pa.schema([
        pa.field("id", pa.int64(), nullable=False),
        ("customer", pa.string()),
        ("quantity", pa.int64()),
        ("version", pa.int64()),
    ])  # fmt: skip
    return pa.table({name: pa.array(values, types.field(name).type) for name, values in columns.items()}, schema=types)


def changed_keys(number: int, rows: int) -> list[int]:
    """Distinct keys of a slice, all over the table, one in a hundred of them new."""
    step = rows // CHANGES
    old = [(place * step + number * 37 % step) % rows for place in range(CHANGES)]
    return [rows + number * CHANGES + key if place % 100 == 0 else key for place, key in enumerate(old)]


def _table(sink: str) -> str:
    return f"changed_by_{sink.lower()}"


def _slices(broker: str, sink: str, lake: Lake, rows: int, check: Callable[[], None]) -> Iterator[float]:
    """Seconds until each slice is visible, without those that warm up. Both sinks add one row for each change."""
    producer = Producer({"bootstrap.servers": broker, "linger.ms": 20, "log_level": 0})
    for number in range(SLICES):
        for row in rows_of(changed_keys(number, rows), number + 1).to_pylist():
            producer.produce(sink, json.dumps(row).encode(), key=str(row["id"]).encode())
            producer.poll(0)
        producer.flush()
        started = time.monotonic()
        lake.wait(_table(sink), rows + (number + 1) * CHANGES, check)
        if number >= WARM_UP:
            yield time.monotonic() - started


@contextmanager
def _lakesink(spark: SparkSession, folder: Path, broker: str, topic: str) -> Iterator[Callable[[], None]]:
    source = {"kafka.bootstrap.servers": broker, "subscribe": topic, "startingOffsets": "earliest"}
    records = spark.readStream.format("kafka").options(**source).load()
    options: dict[str, Any] = {
        "sink_id": "bench",
        "checkpoint": str(folder / "checkpoint"),
        "catalog": CATALOG,
        "catalog_properties": catalog_properties(folder),
    }
    changes = lakesink.stream(
        records, f"{NAMESPACE}.{_table(LAKESINK)}", **options, decode="json", mode="upsert", keys=["id"]
    )
    query = changes.start()

    def check() -> None:
        if (error := query.exception()) is not None:
            raise error

    yield check
    query.stop()


@contextmanager
def _flink(folder: Path, lake: Lake, broker: str, topic: str) -> Iterator[Callable[[], None]]:
    config = flink.CONFIG | {"execution.checkpointing.interval": CHECKPOINT}
    server = Flink(folder / "flink", java_options=flink.JAVA_OPTIONS, config=config, more_jars=(FLINK_KAFKA,))
    try:
        server.start()
        flink.create_catalog(server, lake)
        columns = "id BIGINT, customer STRING, quantity BIGINT, version BIGINT"
        yield partial(flink.check, server, flink.start(server, lake, broker, topic, _table(FLINK), columns))
    finally:
        server.stop()


def _read(spark: SparkSession, found: Mapping[str, Times]) -> None:
    """Read both tables in turn, as they are and compacted; they must be equal, one row a key."""
    tables = {sink: f"{CATALOG}.{NAMESPACE}.{_table(sink)}" for sink in found}
    digests = {sink: spark.sql(_DIGEST.format(table=table)).first() for sink, table in tables.items()}
    counts = {sink: spark.sql(_READ.format(table=table)).first() for sink, table in tables.items()}
    if len(set(digests.values())) > 1 or any(row is None or row[0] != row[1] for row in counts.values()):
        raise WrongRows(f"{digests}, {counts}")
    _timed(spark, tables, {sink: times.read for sink, times in found.items()})
    for table in tables.values():
        call = f"CALL {CATALOG}.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))"
        spark.sql(call)
    _timed(spark, tables, {sink: times.compacted for sink, times in found.items()})


def _timed(spark: SparkSession, tables: Mapping[str, str], into: Mapping[str, list[float]]) -> None:
    for _ in range(READS):
        for sink, table in tables.items():
            started = time.monotonic()
            spark.sql(_READ.format(table=table)).collect()
            into[sink].append(time.monotonic() - started)


def report(found: Mapping[str, Times], rows: int) -> Result:
    """Medians of both, and how often as long Flink's take."""
    ours, theirs = found[LAKESINK], found[FLINK]
    visible, read = Ratio.of(theirs.visible, ours.visible), Ratio.of(theirs.read, ours.read)
    goals = (
        Goal("W13, time until changes are visible, against Flink", 0.7, visible.median, at_least=True),
        Goal("W13, reading afterwards, against equality deletes", 3, read.median, at_least=True),
        Goal("W13, reading before compaction, against after", 2, _against_compacted(ours), at_least=False),
    )
    heads = ("sink", "visible after s", "read s", "read s, compacted")
    lines = tuple((sink, _median(t.visible), _median(t.read), _median(t.compacted)) for sink, t in found.items())
    title = f"{SLICES} slices of {CHANGES:,} changes from Kafka into {rows:,} rows, and a read by Spark"
    raw = {sink: {"visible": t.visible, "read": t.read, "compacted": t.compacted} for sink, t in found.items()}
    return Result("W13", title, heads, lines, goals, raw=raw)


def _median(seconds: Sequence[float]) -> float:
    return round(statistics.median(seconds), 2)


def _against_compacted(times: Times) -> float:
    return statistics.median(times.read) / statistics.median(times.compacted)
