"""Iceberg's REST reference server on this machine's loopback: a real REST catalog, to be killed and started again.

The servlet and the adapter are those of Iceberg's `RESTCatalogServer`, over its JDBC catalog and SQLite. They are put
together by `rest_reference.xml` instead, for `RESTCatalogServer` listens on every network of the machine.
"""

import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError

from servers.jars import REST_REFERENCE, classpath
from servers.ports import free_port
from servers.process import end, why_not_up

PATIENCE_SECONDS = 60
_CONFIGURATION = Path(__file__).with_suffix(".xml")
_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # short runs: start fast
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


@dataclass(slots=True)
class RestReference:
    """One server with its data; its port stays the same over restarts.

    Attributes:
        folder: Holds its database, its warehouse and its log.
        port: On 127.0.0.1.
        process: The server; None while it is down.
    """

    folder: Path
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

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
        with (self.folder / "rest-reference.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._wait()

    def kill(self) -> None:
        """SIGKILL: what it had not yet made durable is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it as an operator would; nothing if it is down."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP: it accepts connections and answers nothing, until `resume`."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            end(self.process, PATIENCE_SECONDS, how)
            self.process = None

    def _wait(self) -> None:
        assert self.process is not None
        said = why_not_up(self.process, self.folder / "rest-reference.log", self._answers, PATIENCE_SECONDS)
        if said is not None:
            self.kill()
            raise RuntimeError(f"The REST reference server did not come up: {said}")

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
