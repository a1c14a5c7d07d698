"""Iceberg's REST reference server on this machine's loopback: a real REST catalog, to be killed and started again.

The servlet and the adapter are those of Iceberg's `RESTCatalogServer`, over its JDBC catalog and SQLite. They are put
together by `rest_reference.xml` instead, for `RESTCatalogServer` listens on every network of the machine.
"""

import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar
from urllib.error import URLError

from servers.jars import REST_REFERENCE, classpath
from servers.ports import free_port
from servers.process import Server

PATIENCE_SECONDS = 60
_CONFIGURATION = Path(__file__).with_suffix(".xml")
_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # short runs: start fast
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


@dataclass(slots=True)
class RestReference(Server):
    """One server with its data; its port stays the same over restarts.

    Attributes:
        folder: Holds its database, its warehouse and its log.
        port: On 127.0.0.1.
        process: The server; None while it is down.
    """

    folder: Path
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None
    grace_seconds: ClassVar[float] = 60

    @property
    def uri(self) -> str:
        """For PyIceberg: ``{"type": "rest", "uri": ...}``."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def database(self) -> Path:
        """The SQLite file; its catalog is called ``lake``."""
        return self.folder / "catalog.db"

    @property
    def warehouse(self) -> str:
        """Where the tables are."""
        return f"file://{self.folder}/warehouse"

    def start(self) -> None:
        """Start the server on the data that there are, and wait until it answers.

        Raises:
            JarsMissing: See `servers.jars.fetched`.
            RuntimeError: It does not come up.
        """
        assert self.process is None, "it runs"
        own = {"port": self.port, "uri": f"jdbc:sqlite:{self.database}", "warehouse": self.warehouse}
        properties = [f"-Dreference.{name}={value}" for name, value in own.items()]
        program = ["java", *_OPTIONS, *properties, "-cp", classpath(REST_REFERENCE)]
        command = [*program, "org.eclipse.jetty.xml.XmlConfiguration", str(_CONFIGURATION)]
        log_file = self.folder / "rest-reference.log"
        with log_file.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._wait("The REST reference server", log_file, self._answers, PATIENCE_SECONDS)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/v1/config", timeout=5):  # noqa: S310 - our own loopback
                return True
        except (URLError, ConnectionError, TimeoutError):
            return False


@contextmanager
def rest_reference(folder: Path) -> Iterator[RestReference]:
    """A server that runs, and ends with the block.

    Args:
        folder: Exists; the data stay in it.

    Raises:
        JarsMissing: See `servers.jars.fetched`.
    """
    server = RestReference(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
