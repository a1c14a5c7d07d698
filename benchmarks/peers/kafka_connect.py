"""Iceberg's sink for Kafka Connect: one worker, two tasks, JSON without schemas, a commit every two seconds."""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from urllib.error import HTTPError, URLError

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.peers.measure import NAMESPACE, Lake, PeerFailed, PeerRun, measured, warm_topic
from servers.jars import KAFKA_CONNECT, classpath
from servers.ports import free_port
from servers.process import Process, Server

TASKS = 2
COMMIT_MILLISECONDS = 2_000
JAVA_OPTIONS = ("-Xmx3g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
PATIENCE_SECONDS = 120
_WORKER = "org.apache.kafka.connect.cli.ConnectStandalone"
_CONNECTOR = "org.apache.iceberg.connect.IcebergSinkConnector"


@dataclass(slots=True)
class Worker(Server):
    """A worker of Kafka Connect, alone.

    Attributes:
        folder: Its properties, offsets and log.
        broker: For ``bootstrap.servers``.
        port: Of its REST interface, on 127.0.0.1.
        process: The worker; None while it is down.
    """

    folder: Path
    broker: str
    port: int = field(default_factory=free_port)
    process: Process | None = None
    grace_seconds: ClassVar[float] = 60

    def start(self) -> None:
        """Start it, and wait until it answers."""
        properties = self.folder / "worker.properties"
        own = {
            "bootstrap.servers": self.broker,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "offset.storage.file.filename": str(self.folder / "offsets"),
            "listeners": f"HTTP://127.0.0.1:{self.port}",
            "plugin.discovery": "service_load",
            "offset.flush.interval.ms": "500",  # no record comes any more, and a task looks at commits only so often
        }
        properties.write_text("".join(f"{name}={value}\n" for name, value in own.items()))
        command = ["java", *JAVA_OPTIONS, "-cp", classpath(KAFKA_CONNECT), _WORKER, str(properties)]
        with (self.folder / "worker.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._wait("Kafka Connect", self.folder / "worker.log", self._answers, PATIENCE_SECONDS)

    def begin(self, name: str, connector: Mapping[str, str]) -> None:
        """Start a connector."""
        self._ask("connectors", {"name": name, "config": dict(connector)})

    def end(self, name: str) -> None:
        """Remove a connector."""
        self._ask(f"connectors/{name}", method="DELETE")

    def check(self, name: str) -> None:
        """Find out whether a connector works.

        Raises:
            PeerFailed: It or a task of it has failed.
        """
        status = self._ask(f"connectors/{name}/status")
        for part in (status["connector"], *status["tasks"]):
            if part["state"] == "FAILED":
                raise PeerFailed(str(part.get("trace"))[:2_000])

    def _answers(self) -> bool:
        with suppress(URLError, ConnectionError, TimeoutError):
            return bool(self._ask("connectors") == [])
        return False

    def _ask(self, path: str, body: Mapping[str, Any] | None = None, method: str | None = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:  # noqa: S310 - our own loopback
                return json.loads(answer.read() or b"null")
        except HTTPError as error:
            if error.code == 404:  # a connector that is being made has no status yet
                return {"connector": {"state": "UNASSIGNED"}, "tasks": []}
            raise PeerFailed(error.read().decode(errors="replace")[:2_000]) from None


def run(broker: str, topic: str, rows: int, place: Path) -> PeerRun:
    """Read a topic of `benchmarks.peers.events` into a table, once to warm up and once for the clock.

    Args:
        broker: For ``bootstrap.servers``.
        topic: Holds the events.
        rows: As many as it has.
        place: An empty folder.

    Raises:
        PeerFailed: It did not get there.
        JarsMissing: See `servers.jars.fetched`.
    """
    lake = Lake(place)
    lake.create("warm", "events")
    worker = Worker(place, broker)
    try:
        worker.start()
        warm, warm_rows = warm_topic(broker, topic, rows)
        begin = partial(_begin, worker, lake, f"{topic}-{place.name}-{time.time_ns()}")
        lake.wait("warm", warm_rows, begin(warm, "warm"))
        worker.end("warm")
        assert worker.process is not None
        return measured(lake, "events", rows, worker.process.pid, partial(begin, topic, "events"))
    finally:
        worker.stop()


def _begin(worker: Worker, lake: Lake, unique: str, topic: str, table: str) -> "partial[None]":
    """Start a connector; its control topic and its groups are its own, so that it begins at the first record."""
    control = f"control-{unique}-{table}"
    client = AdminClient({"bootstrap.servers": worker.broker})
    client.create_topics([NewTopic(control, 1, 1)])[control].result(PATIENCE_SECONDS)
    connector = {
        "connector.class": _CONNECTOR,
        "tasks.max": str(TASKS),
        "topics": topic,
        "consumer.override.auto.offset.reset": "earliest",
        "iceberg.tables": f"{NAMESPACE}.{table}",
        "iceberg.control.topic": control,
        "iceberg.control.group-id-prefix": control,
        "iceberg.control.commit.interval-ms": str(COMMIT_MILLISECONDS),
        **{f"iceberg.catalog.{name}": value for name, value in lake.java_properties.items()},
        "iceberg.catalog": "bench",
        "iceberg.kafka.bootstrap.servers": worker.broker,
    }
    worker.begin(table, connector)
    return partial(worker.check, table)


if __name__ == "__main__":
    print(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])))
