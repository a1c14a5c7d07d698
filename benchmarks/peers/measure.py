"""What a peer's run cost, from the process itself, and when its rows were there, from the table."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psutil
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.peers.events import EVENTS
from benchmarks.session import TABLE_PROPERTIES

CATALOG, NAMESPACE = "bench", "bench"
WARM_ROWS = 100_000
PATIENCE_SECONDS = 120
_POLL_SECONDS = 0.05
_PATIENCE_WITH_KAFKA_SECONDS = 10


@dataclass(frozen=True, slots=True)
class PeerRun:
    """One run of a peer over a topic.

    Attributes:
        seconds: From the start of its job, in a process that has run another before, until the last row can be read.
        cpu_seconds: Of its process and all that it started, over that time.
        peak_memory_bytes: Most memory that its process has had at once, since it started.
        files: Paths of the table's data files.
    """

    seconds: float
    cpu_seconds: float
    peak_memory_bytes: int
    files: list[str]


class PeerFailed(Exception):
    """A peer did not do its work; its own words."""


@dataclass(frozen=True, slots=True)
class Lake:
    """A SQLite catalog in a folder, which Java's JDBC catalog opens too.

    Attributes:
        folder: Exists.
        catalog: The name under which it has its tables.
    """

    folder: Path
    catalog: str = CATALOG

    @property
    def database(self) -> Path:
        """Its file."""
        return self.folder / "catalog.db"

    @property
    def warehouse(self) -> str:
        """Where its tables are."""
        return (self.folder / "warehouse").as_uri()

    @property
    def java_properties(self) -> dict[str, str]:
        """For Iceberg's Java catalogs."""
        return {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri": f"jdbc:sqlite:{self.database}",
            "jdbc.schema-version": "V1",
            "warehouse": self.warehouse,
        }

    def create(self, *names: str) -> None:
        """Make the catalog and empty tables for events, zstd at level 1."""
        catalog = self._open()
        catalog.create_namespace_if_not_exists(NAMESPACE)
        for name in names:
            catalog.create_table((NAMESPACE, name), EVENTS, properties=TABLE_PROPERTIES)

    def rows(self, name: str) -> int:
        """How many rows can be read of a table now."""
        snapshot = self._open().load_table((NAMESPACE, name)).current_snapshot()
        return 0 if snapshot is None or snapshot.summary is None else int(snapshot.summary["total-records"] or 0)

    def files(self, name: str) -> list[str]:
        """Paths of a table's data files."""
        tasks = self._open().load_table((NAMESPACE, name)).scan().plan_files()
        return sorted(unquote(urlsplit(task.file.file_path).path) for task in tasks)

    def wait(self, name: str, rows: int, alive: Callable[[], None]) -> None:
        """Return once a table has so many rows.

        Args:
            name: The table.
            rows: As many as there are to come.
            alive: Raises `PeerFailed` if none will come any more.

        Raises:
            PeerFailed: There are more rows than that, or not as many after a long time.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := self.rows(name)) < rows:
            alive()
            if time.monotonic() > deadline:
                raise PeerFailed(f"{found} of {rows} rows after {PATIENCE_SECONDS} s")
            time.sleep(_POLL_SECONDS)
        if found > rows:
            raise PeerFailed(f"{found} rows of {rows}")

    def _open(self) -> SqlCatalog:
        return SqlCatalog(self.catalog, uri=f"sqlite:///{self.database}", warehouse=self.warehouse)


def measured(lake: Lake, name: str, rows: int, pid: int, start: Callable[[], Callable[[], None]]) -> PeerRun:
    """Run a job and wait until its rows can be read.

    Args:
        lake: Where the table is.
        name: The table, empty.
        rows: As many as there are to come.
        pid: The peer's process.
        start: Starts the job, and returns what raises `PeerFailed` if it has ended badly.
    """
    started, before = time.monotonic(), cpu_seconds(pid)
    lake.wait(name, rows, start())
    seconds = time.monotonic() - started
    return PeerRun(seconds, cpu_seconds(pid) - before, peak_memory_bytes(pid), lake.files(name))


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and of its children that have ended, user and system."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def peak_memory_bytes(pid: int) -> int:
    """Most memory that a process has had resident at once."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [kibibytes] = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(kibibytes) * 1024


def warm_topic(broker: str, topic: str, rows: int) -> tuple[str, int]:
    """A topic with the first records of another, to warm a process up with; made once.

    Args:
        broker: For ``bootstrap.servers``.
        topic: The other.
        rows: As many as that has.

    Returns:
        Its name and how many records it has.
    """
    name, wanted = f"{topic}-warm", min(rows, WARM_ROWS)
    own = {"bootstrap.servers": broker, "group.id": "warm", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer(own)
    try:
        if topic_rows(consumer, name) != wanted:
            consumer.subscribe([topic])
            _copy(consumer, Producer({"bootstrap.servers": broker, "log_level": 0, "linger.ms": 50}), name, wanted)
    finally:
        consumer.close()
    return name, wanted


def _copy(consumer: Consumer, producer: Producer, topic: str, rows: int) -> None:
    while rows:
        for message in consumer.consume(min(10_000, rows), _PATIENCE_WITH_KAFKA_SECONDS):
            if message.error():
                raise PeerFailed(str(message.error()))
            producer.produce(topic, message.value())
            rows -= 1
        producer.flush()


def topic_rows(consumer: Consumer, topic: str) -> int:
    """How many records a topic has; 0 if it is not there."""
    patience = _PATIENCE_WITH_KAFKA_SECONDS
    found = consumer.list_topics(topic, patience).topics[topic]
    if found.error is not None:
        if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return 0
        raise PeerFailed(str(found.error))
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, part), patience) for part in found.partitions]
    return sum(end - first for first, end in ends)
