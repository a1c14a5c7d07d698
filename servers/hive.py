"""Hive's metastore on this machine's loopback, with its state in Derby and its tables in a folder.

`Metastore.java` starts it: the metastore's own program listens on every network of the machine.
"""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from servers.jars import HIVE, classpath
from servers.ports import free_port
from servers.process import Server

PATIENCE_SECONDS = 120
_MAIN = Path(__file__).with_name("Metastore.java")
_OPTIONS = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # short runs: start fast


@dataclass(slots=True)
class Hive(Server):
    """One metastore with its data; its port stays the same over restarts. Use `hive`.

    Attributes:
        folder: Its configuration, database, tables and log.
        lock_seconds: After how long it frees a lock whose owner is silent.
        port: On 127.0.0.1.
        process: The metastore; None while it is down.
    """

    folder: Path
    lock_seconds: int = 300
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None
    grace_seconds: ClassVar[float] = 20

    @property
    def uri(self) -> str:
        """For PyIceberg: ``{"type": "hive", "uri": ...}``, with `catalog_clients`."""
        return f"thrift://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it on the data that there are, and wait until it answers.

        Raises:
            JarsMissing: See `servers.jars.fetched`.
            RuntimeError: It does not come up.
        """
        assert self.process is None, "it runs"
        lines = (
            f"<property><name>{name}</name><value>{value}</value></property>\n" for name, value in self._settings()
        )
        (self.folder / "metastore-site.xml").write_text(f"<configuration>\n{''.join(lines)}</configuration>\n")
        jars = os.pathsep.join([str(self.folder), classpath(HIVE)])
        call = ["java", *_OPTIONS, "-cp", jars, str(_MAIN), str(self.port)]
        log_file = self.folder / "hive.log"
        with log_file.open("ab") as log:
            self.process = subprocess.Popen(call, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        self._wait("Hive's metastore", log_file, self._answers, PATIENCE_SECONDS)

    def _settings(self) -> Iterator[tuple[str, str]]:
        yield "javax.jdo.option.ConnectionURL", f"jdbc:derby:;databaseName={self.folder}/derby;create=true"
        yield "javax.jdo.option.ConnectionDriverName", "org.apache.derby.jdbc.EmbeddedDriver"
        yield "datanucleus.schema.autoCreateAll", "true"
        yield "metastore.schema.verification", "false"
        yield "metastore.warehouse.dir", f"file://{self.folder}/managed"
        yield "metastore.warehouse.external.dir", f"file://{self.folder}/warehouse"
        yield "metastore.expression.proxy", "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy"
        yield "metastore.task.threads.always", "org.apache.hadoop.hive.metastore.txn.AcidHouseKeeperService"
        yield "metastore.timedout.txn.reaper.interval", "1s"
        yield "metastore.txn.timeout", f"{self.lock_seconds}s"

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def hive(folder: Path, lock_seconds: int = 300) -> Iterator[Hive]:
    """A metastore that runs, and ends with the block.

    Args:
        folder: Made if it is not there; the data stay in it.
        lock_seconds: See `Hive`.

    Raises:
        JarsMissing: See `servers.jars.fetched`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    server = Hive(folder, lock_seconds)
    try:
        server.start()
        yield server
    finally:
        server.stop()
