"""Pravega on this machine: controller, segment store and ZooKeeper in one process, which keeps everything in memory.

The server listens on all interfaces, which cannot be configured. Its Python client is installed beside the environment,
because there is one wheel of it, for Python 3.11 on Linux.
"""

import hashlib
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from servers.jars import PRAVEGA, ROOT, classpath
from servers.missing import Missing
from servers.once import made_once
from servers.ports import free_port
from servers.process import Server

PATIENCE_SECONDS = 90
REQUIREMENTS = ROOT / "requirements" / "pravega.txt"
FOLDER = ROOT / ".tools" / "pravega-client"
LONGEST_SECONDS = 600
_OPTIONS = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # short runs: start fast
_LOG = """<configuration>
  <appender name="all" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %p %c %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="all"/></root>
</configuration>
"""
_MAIN = "io.pravega.local.LocalPravegaEmulator"


class PravegaClientMissing(Missing):
    """Pravega's client cannot be had on this machine, in one sentence with what to do."""


@dataclass(slots=True)
class PravegaServer(Server):
    """One server; its ports stay the same over restarts, and nothing else does. Use `pravega`.

    Attributes:
        folder: Its configuration and its log.
        longest_lease_ms: The longest lease of a transaction that it grants; its own default if None.
        port: Of the controller.
        process: The server; None while it is down.
    """

    folder: Path
    longest_lease_ms: int | None = None
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None
    grace_seconds: ClassVar[float] = 20
    _segment_port: int = field(default_factory=free_port)
    _zookeeper_port: int = field(default_factory=free_port)

    @property
    def controller(self) -> str:
        """Host and port of the controller."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, empty, and wait until both ports answer.

        Raises:
            JarsMissing: See `servers.jars.fetched`.
            RuntimeError: It does not come up.
        """
        assert self.process is None, "it runs"
        configuration = self.folder / "config" / "standalone-config.properties"  # it reads this file only
        configuration.parent.mkdir(parents=True, exist_ok=True)
        configuration.write_text("".join(f"singlenode.{name}={value}\n" for name, value in self._settings().items()))
        quiet = configuration.with_name("logback.xml")
        quiet.write_text(_LOG)
        properties = [f"-Dlogback.configurationFile={quiet}"]  # else it writes a line for each message
        if self.longest_lease_ms is not None:
            properties.append(f"-Dcontroller.transaction.lease.count.max={self.longest_lease_ms}")
        call = ["java", *_OPTIONS, *properties, "-cp", classpath(PRAVEGA), _MAIN]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(call, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        self._wait("Pravega", self._log, self._answers, PATIENCE_SECONDS)

    def _settings(self) -> dict[str, int | str]:
        return {
            "zk.port": self._zookeeper_port,
            "segmentStore.port": self._segment_port,
            "controller.rpc.port": self.port,
            "controller.rest.enable": "false",
            "admin.gateway.enable": "false",
        }

    def _answers(self) -> bool:
        # Its log says that it runs even if the controller has died.
        return _listens(self.port) and _listens(self._segment_port)

    @property
    def _log(self) -> Path:
        return self.folder / "pravega.log"


@contextmanager
def pravega(folder: Path, longest_lease_ms: int | None = None) -> Iterator[PravegaServer]:
    """A server that runs, and ends with the block.

    Args:
        folder: Exists; holds its configuration and its log.
        longest_lease_ms: See `PravegaServer`.

    Raises:
        JarsMissing: See `servers.jars.fetched`.
    """
    server = PravegaServer(folder, longest_lease_ms)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def has_client() -> bool:
    """Whether there is a client for this Python on this machine."""
    here = (platform.system(), platform.machine(), sys.version_info[:2])
    return here == ("Linux", "x86_64", (3, 11))


def client_folder() -> Path:
    """Where the client is once it is installed: for `sys.path`."""
    return FOLDER / hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]


def installed() -> Path:
    """The client, installed if it is not here yet. Several processes may ask at once.

    Raises:
        PravegaClientMissing: pip cannot install it.
    """
    return made_once(client_folder(), _install)


def _install(home: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    call = [*pip, "--no-deps", "--require-hashes", "--target", str(home), "-r", str(REQUIREMENTS)]
    done = subprocess.run(call, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
    if done.returncode:
        raise PravegaClientMissing(
            f"Pravega's client, which there is for Python 3.11 on Linux, cannot be installed for"
            f" {sys.version.split()[0]}; run it again when the registry answers. {done.stderr[-2000:]}"
        )


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
