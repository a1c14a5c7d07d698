"""Trino on this machine's loopback: one coordinator that reads and writes Iceberg tables, and a client for its answers.

Of Trino's 900 MB only the engine and the plugin for Iceberg are unpacked, without what only other catalogs and caches
need, into ``.tools/trino``. It runs on Java 25, see `servers.java`.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import URLError

from servers.jars import CHECKSUMS, ROOT, TRINO, TRINO_VERSION, verified
from servers.java import java_home
from servers.once import made_once
from servers.ports import free_port
from servers.process import end, why_not_up

FOLDER = ROOT / ".tools" / "trino"
JAVA = 25
PATIENCE_SECONDS, GRACE_SECONDS = 180, 10
_NO_NODES = "No nodes available to run query"
_LEFT_OUT = ("hdfs/", "net.snowflake", "org.rocksdb", "org.alluxio")
_JVM = """-Xmx1500M
-XX:+UseSerialGC
-XX:TieredStopAtLevel=1
-XX:+ExitOnOutOfMemoryError
-XX:+EnableDynamicAgentLoading
-Djdk.attach.allowAttachSelf=true
-Djdk.nio.maxCachedBufferSize=2000000
"""
_CONFIG = """coordinator=true
node-scheduler.include-coordinator=true
http-server.http.port={port}
discovery.uri=http://127.0.0.1:{port}
node.internal-address=127.0.0.1
query.max-memory=512MB
query.max-memory-per-node=512MB
memory.heap-headroom-per-node=256MB
"""


class TrinoFailed(Exception):
    """Trino refused or failed; its own words."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a statement came to.

    Attributes:
        columns: Names.
        types: As Trino spells them.
        rows: Values as JSON has them.
    """

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]


@dataclass(slots=True)
class Trino:
    """One server. Use `trino`.

    Attributes:
        folder: Its configuration, data and log.
        catalogs: Properties files of its catalogs, by name.
        environment: Added to its environment: what the catalogs name by ``${ENV:...}``.
        port: On 127.0.0.1.
        process: The server; None while it is down.
    """

    folder: Path
    catalogs: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Start it, and wait until it answers a query.

        Raises:
            JarsMissing: See `servers.jars.verified`.
            JavaMissing: See `servers.java.java_home`.
            TrinoFailed: It does not come up, with the end of its log.
        """
        assert self.process is None, "it runs"
        home, java = installed(), java_home(JAVA)
        self._configure()
        environment = {**os.environ, **self.environment, "JAVA_HOME": str(java)}
        environment["PATH"] = f"{java / 'bin'}{os.pathsep}{environment['PATH']}"
        call = [str(home / "bin" / "launcher"), "run", "--etc-dir", str(self.folder / "etc")]
        with (self.folder / "trino.log").open("ab") as log:
            self.process = subprocess.Popen(call, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._wait()

    def stop(self) -> None:
        """End it; nothing if it is down."""
        if self.process is not None:
            end(self.process, GRACE_SECONDS)
            self.process = None

    def sql(self, statement: str, session: Mapping[str, str] | None = None) -> Answer:
        """Run one statement to its end.

        Args:
            statement: Without a semicolon.
            session: Session properties, ``catalog.name`` to value.

        Raises:
            TrinoFailed: Trino's error.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self._run(statement, session)
            except TrinoFailed as error:
                # Said for some seconds after the start, when other queries run already.
                if _NO_NODES not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.3)

    def _run(self, statement: str, session: Mapping[str, str] | None) -> Answer:
        headers = {"X-Trino-User": "lakesink", "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME"}
        headers |= {"X-Trino-Session": ",".join(f"{key}={value}" for key, value in session.items())} if session else {}
        said = self._ask(f"http://127.0.0.1:{self.port}/v1/statement", headers, statement.encode())
        columns: list[dict[str, Any]] = []
        rows: list[list[Any]] = []
        while True:
            columns = said.get("columns") or columns
            rows += said.get("data") or []
            if "error" in said:
                raise TrinoFailed(_causes(said["error"].get("failureInfo") or said["error"]))
            if "nextUri" not in said:
                return Answer([column["name"] for column in columns], [column["type"] for column in columns], rows)
            said = self._ask(said["nextUri"], headers)

    def _configure(self) -> None:
        etc, data = self.folder / "etc", self.folder / "data"
        (etc / "catalog").mkdir(parents=True, exist_ok=True)
        (etc / "jvm.config").write_text(_JVM)
        (etc / "config.properties").write_text(_CONFIG.format(port=self.port))
        (etc / "node.properties").write_text(f"node.environment=test\nnode.id=n1\nnode.data-dir={data}\n")
        (etc / "log.properties").write_text("io.trino=WARN\n")
        for name, properties in self.catalogs.items():
            (etc / "catalog" / f"{name}.properties").write_text(properties)

    def _wait(self) -> None:
        assert self.process is not None
        said = why_not_up(self.process, self.folder / "trino.log", self._answers, PATIENCE_SECONDS)
        if said is not None:
            self.stop()
            raise TrinoFailed(f"Trino did not come up: {said}")

    def _answers(self) -> bool:
        """A query runs: Trino says that it has started a moment before it has a node to run one on."""
        with suppress(TrinoFailed, URLError, ConnectionError, TimeoutError):
            self.sql("SELECT node_id FROM system.runtime.nodes")
            return True
        return False

    @staticmethod
    def _ask(uri: str, headers: Mapping[str, str], body: bytes | None = None) -> dict[str, Any]:
        request = urllib.request.Request(uri, data=body, headers=dict(headers))  # noqa: S310 - our own loopback
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:  # noqa: S310 - as above
            said: dict[str, Any] = json.load(answer)
            return said


@contextmanager
def trino(folder: Path, catalogs: Mapping[str, str], environment: Mapping[str, str] | None = None) -> Iterator[Trino]:
    """A server that runs, and ends with the block.

    Args:
        folder: Made if it is not there.
        catalogs: Properties files of its catalogs, by name.
        environment: See `Trino`.

    Raises:
        JarsMissing: See `servers.jars.verified`.
        JavaMissing: See `servers.java.java_home`.
        TrinoFailed: It does not come up.
    """
    folder.mkdir(parents=True, exist_ok=True)
    server = Trino(folder, catalogs, environment or {})
    try:
        server.start()
        yield server
    finally:
        server.stop()


def installed() -> Path:
    """Trino's home, unpacked if this version is not here yet. Several processes may ask at once.

    Raises:
        JarsMissing: See `servers.jars.verified`.
    """
    home = FOLDER / f"{TRINO_VERSION}-{hashlib.sha256(_checksums().encode()).hexdigest()[:12]}"
    return made_once(home, _unpack)


def _causes(failure: Mapping[str, Any]) -> str:
    """What went wrong, and why, down to the first cause."""
    cause = failure.get("cause")
    return f"{failure.get('message')}" + (f"\nCaused by: {_causes(cause)}" if cause else "")


def _checksums() -> str:
    return "\n".join(line for line in CHECKSUMS.read_text().splitlines() if f"  {TRINO.name}/" in line)


def _unpack(home: Path) -> None:
    with verified(TRINO) as came:
        [engine], [plugin], drivers = came.glob("*.tar.gz"), came.glob("*.zip"), list(came.glob("*.jar"))
        with tarfile.open(engine) as archive:
            kept = [member for member in archive if _inside(member.name).startswith(("bin/", "lib/"))]
            for member in kept:
                archive.extract(member.replace(name=_inside(member.name)), home, filter="data")
        place = home / "plugin" / "iceberg"
        with zipfile.ZipFile(plugin) as packed:
            for name in packed.namelist():
                if not name.endswith("/") and not _inside(name).startswith(_LEFT_OUT):
                    _copy(packed, name, place / _inside(name))
        for driver in drivers:
            shutil.copy(driver, place)
        (home / "secrets-plugin").mkdir()


def _copy(packed: zipfile.ZipFile, name: str, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with packed.open(name) as source, place.open("wb") as target:
        shutil.copyfileobj(source, target)


def _inside(name: str) -> str:
    return name.partition("/")[2]
