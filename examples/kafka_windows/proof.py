"""The proof: DuckDB counts the source's text file and the tables' data files, and what was sent is read once more."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from lakesink_catalog.connect import connect
from lakesink_catalog.tables import load_table
from lakesink_tools.demo.checks import Check

from .departures import PARTITIONS
from .queries import CATALOG, DEPARTURES, EVENTS, TOPIC
from .setting import Setting

PATIENCE_SECONDS = 60
Key = tuple[int, ...]
_SOURCE = """
CREATE TABLE source AS
SELECT epoch_us(time_hour) + (minute + dep_delay) * 60000000 AS departed_us, carrier, flight, tailnum, origin, dest,
       dep_delay AS delay
FROM read_csv(?, header = true, nullstr = ['', 'NA'], types = {'flight': 'INTEGER', 'time_hour': 'TIMESTAMP'})
WHERE dep_time IS NOT NULL AND dayofyear(make_date(year, month, day)) <= ?
"""
_SOURCE_HOURS = """
CREATE TABLE source_hours AS
SELECT departed_us // 3600000000 AS hour, origin, count(*) AS departures, sum(delay) AS delay_minutes
FROM source GROUP BY ALL
"""
_EVENTS = """
CREATE TABLE events AS
SELECT epoch_us(departed_at) AS departed_us, carrier, flight, tailnum, origin, dest, delay
FROM read_parquet(?) WHERE id >= 0
"""
_HOURS = """
CREATE TABLE hours AS
SELECT epoch_us(hour) // 3600000000 AS hour, origin, departures, delay_minutes FROM read_parquet(?)
"""


@dataclass(frozen=True, slots=True)
class Sent:
    """What was sent.

    Attributes:
        committed: Records of committed transactions: event id, and in Kafka partition and offset too.
        aborted: How many records belong to aborted transactions.
    """

    committed: Counter[Key]
    aborted: int

    @classmethod
    def to(cls, setting: Setting) -> "Sent":
        """Read again what was sent, by other means than Spark's."""
        if not setting.bootstrap:
            return cls(_lines(setting.inbox), _lines(setting.staging).total())
        committed = _records(setting.bootstrap, "read_committed")
        return cls(committed, (_records(setting.bootstrap, "read_uncommitted") - committed).total())


def prove(setting: Setting, sent: Sent) -> list[Check]:
    """Compare both tables with what was sent, and with a batch computation over the source.

    Args:
        setting: Of the run; its catalog is that of ``LAKESINK_HOME``.
        sent: What was sent.
    """
    events, hours = _data_files(EVENTS), _data_files(DEPARTURES)
    with duckdb.connect() as connection:
        connection.execute(_SOURCE, [str(setting.csv), setting.days])
        connection.execute(_SOURCE_HOURS)
        connection.execute(_EVENTS, [events])
        connection.execute(_HOURS, [hours])
        columns = "id, _kafka_partition, _kafka_offset" if setting.bootstrap else "id"
        rows = Counter(connection.execute(f"SELECT {columns} FROM read_parquet(?)", [events]).fetchall())  # noqa: S608 - constants
        return [
            Check(f"rows in {EVENTS}, one for each committed record", sent.committed.total(), rows.total()),
            Check("committed records without a row", 0, (sent.committed - rows).total()),
            Check("rows without a committed record, or twice", 0, (rows - sent.committed).total()),
            *_same(connection, "departures", "source", "events"),
            *_same(connection, "hours by airport", "source_hours", "hours"),
        ]


def _same(connection: duckdb.DuckDBPyConnection, what: str, source: str, table: str) -> list[Check]:
    counts = [_number(connection, f"SELECT count(*) FROM {name}") for name in (source, table)]  # noqa: S608 - constants
    missing, surplus = (
        _number(connection, f"SELECT count(*) FROM (FROM {left} EXCEPT ALL FROM {right})")  # noqa: S608 - constants
        for left, right in ((source, table), (table, source))
    )
    return [
        Check(what, *counts),
        Check(f"{what}: missing in the table", 0, missing),
        Check(f"{what}: in the table alone, or twice", 0, surplus),
    ]


def _number(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def _data_files(table: str) -> list[str]:
    tasks = load_table(connect(CATALOG, create=False), table).scan().plan_files()
    return [task.file.file_path.removeprefix("file://") for task in tasks]


def _lines(folder: Path) -> Counter[Key]:
    texts: Sequence[str] = [line for path in folder.glob("*.json") for line in path.read_text().splitlines()]
    return Counter((json.loads(text)["id"],) for text in texts)


def _records(bootstrap: str, isolation: str) -> Counter[Key]:
    """All records of the topic, as a consumer of this isolation level sees them."""
    own = {"bootstrap.servers": bootstrap, "group.id": "proof", "isolation.level": isolation, "log_level": 0}
    consumer = Consumer({**own, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found: Counter[Key] = Counter()
    ended = 0
    while ended < PARTITIONS:
        record = consumer.poll(PATIENCE_SECONDS)
        assert record is not None, "the broker is silent"
        error = record.error()
        if error is None:
            found[_key(record)] += 1
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error  # noqa: SLF001 - it has no other name
            ended += 1
    consumer.close()
    return found


def _key(record: Message) -> Key:
    value, partition, offset = record.value(), record.partition(), record.offset()
    assert value is not None
    assert partition is not None
    assert offset is not None
    return json.loads(value)["id"], partition, offset
