"""A Kafka broker on this machine's loopback: a real one, alone in its cluster, to be killed and started again.

It keeps its log in a folder, so that a broker that was killed comes back with all that it had acknowledged.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from servers.jars import KAFKA, classpath
from servers.ports import free_port
from servers.process import Server

PATIENCE_SECONDS = 60
_CLUSTER_ID = "bGFrZXNpbmstdGVzdC1rYQ"
_OPTIONS = (
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # short runs: start fast
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_ALONE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}


@dataclass(slots=True)
class KafkaBroker(Server):
    """One broker with its log; its port stays the same over restarts.

    Attributes:
        folder: Holds its properties, its log and what it says.
        port: On 127.0.0.1.
        controller_port: Where it talks to itself.
        process: The broker; None while it is down.
    """

    folder: Path
    port: int = field(default_factory=free_port)
    controller_port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None
    grace_seconds: ClassVar[float] = 60

    @property
    def bootstrap(self) -> str:
        """For ``bootstrap.servers``."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the broker on the log that there is, and wait until it answers.

        Raises:
            JarsMissing: See `servers.jars.fetched`.
            RuntimeError: It does not come up.
        """
        assert self.process is None, "it runs"
        program = ["java", *_OPTIONS, "-cp", classpath(KAFKA)]
        with (self.folder / "kafka.log").open("ab") as log:
            if not self._properties.exists():
                self._format(program)
            command = [*program, "kafka.Kafka", str(self._properties)]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self._wait("The Kafka broker", self.folder / "kafka.log", lambda: _answers(client), PATIENCE_SECONDS)

    def create_topic(self, name: str, partitions: int) -> None:
        """Make a topic and wait until it is there."""
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})  # must outlive its answer
        client.create_topics([NewTopic(name, partitions, 1)])[name].result(PATIENCE_SECONDS)

    def add_partitions(self, name: str, total: int) -> None:
        """Let a topic have so many partitions from now on."""
        client = AdminClient({"bootstrap.servers": self.bootstrap})
        client.create_partitions([NewPartitions(name, total)])[name].result(PATIENCE_SECONDS)

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _format(self, program: list[str]) -> None:
        own = {
            **_ALONE,
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self.controller_port}",
            "log.dirs": str(self.folder / "data"),
        }
        text = "".join(f"{name}={value}\n" for name, value in own.items())
        staged = self._properties.with_suffix(".new")
        staged.write_text(text)
        tool = [*program, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(staged)]
        subprocess.run(tool, check=True, capture_output=True, timeout=PATIENCE_SECONDS)
        staged.rename(self._properties)


@contextmanager
def kafka_broker(folder: Path) -> Iterator[KafkaBroker]:
    """A broker that runs, and ends with the block.

    Args:
        folder: Exists; the log stays in it.

    Raises:
        JarsMissing: See `servers.jars.fetched`.
    """
    broker = KafkaBroker(folder)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def _answers(client: AdminClient) -> bool:
    try:
        return bool(client.list_topics(timeout=0.5).brokers)
    except KafkaException:
        return False
