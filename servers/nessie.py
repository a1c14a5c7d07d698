"""Nessie on this machine's loopback: its Iceberg REST service, with its state in RocksDB and its tables on S3.

It runs on the Java that Trino needs; 21 would do.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from servers.jars import NESSIE, fetched
from servers.java import java_home
from servers.ports import free_port
from servers.process import Server, answers_http
from servers.s3 import REGION, S3
from servers.trino import JAVA

PATIENCE_SECONDS = 120
_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # short runs: start fast
_S3 = "nessie.catalog.service.s3.default-options"


@dataclass(slots=True)
class Nessie(Server):
    """One server with its data; its port stays the same over restarts. Use `nessie`.

    Attributes:
        folder: Its database and its log.
        store: Runs; keeps the tables.
        warehouse: Where they are, ``s3://``.
        port: On 127.0.0.1.
        process: The server; None while it is down.
    """

    folder: Path
    store: S3
    warehouse: str
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None
    grace_seconds: ClassVar[float] = 20
    _management_port: int = field(default_factory=free_port)

    @property
    def properties(self) -> dict[str, str]:
        """For a catalog of PyIceberg; keys for S3 come from `S3.environment`."""
        return {"type": "rest", "uri": f"http://127.0.0.1:{self.port}/iceberg", **self.store.properties}

    def start(self) -> None:
        """Start it on the data that there are, and wait until it answers.

        Raises:
            JarsMissing: See `servers.jars.fetched`.
            JavaMissing: See `servers.java.java_home`.
            RuntimeError: It does not come up.
        """
        assert self.process is None, "it runs"
        [jar] = fetched(NESSIE)
        properties = [f"-D{name}={value}" for name, value in self._settings().items()]
        call = [str(java_home(JAVA) / "bin" / "java"), *_OPTIONS, *properties, "-jar", str(jar)]
        log_file = self.folder / "nessie.log"
        with log_file.open("ab") as log:
            self.process = subprocess.Popen(call, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        self._wait("Nessie", log_file, self._answers, PATIENCE_SECONDS)

    def _settings(self) -> dict[str, int | str]:
        return {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self.port,
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": self._management_port,
            "quarkus.log.level": "WARN",
            "nessie.version.store.type": "ROCKSDB",
            "nessie.version.store.persist.rocks.database-path": str(self.folder / "rocksdb"),
            "nessie.catalog.default-warehouse": "lake",
            "nessie.catalog.warehouses.lake.location": self.warehouse,
            f"{_S3}.endpoint": self.store.endpoint,
            f"{_S3}.path-style-access": "true",
            f"{_S3}.region": REGION,
            f"{_S3}.access-key": "urn:nessie-secret:quarkus:lake.s3",
            "lake.s3.name": self.store.access_key,
            "lake.s3.secret": self.store.secret_key,
            f"{_S3}.request-signing-enabled": "false",  # else it asks clients to let it sign their requests
        }

    def _answers(self) -> bool:
        return answers_http(f"http://127.0.0.1:{self.port}/iceberg/v1/config")


@contextmanager
def nessie(folder: Path, store: S3, warehouse: str) -> Iterator[Nessie]:
    """A server that runs, and ends with the block.

    Args:
        folder: Made if it is not there; its state stays in it.
        store: Runs.
        warehouse: In a bucket of the store, ``s3://``.

    Raises:
        JarsMissing: See `servers.jars.fetched`.
        JavaMissing: See `servers.java.java_home`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    server = Nessie(folder, store, warehouse)
    try:
        server.start()
        yield server
    finally:
        server.stop()
