"""Iceberg's REST reference server on this machine's loopback: a real REST catalog, to be killed and started again.

It keeps its state in SQLite and its tables in a folder; or, with a `Backing`, in PostgreSQL and on S3. Servlet and
adapter are those of Iceberg's `RESTCatalogServer`, over its JDBC catalog. They are put together by
`rest_reference.xml` instead, for `RESTCatalogServer` listens on every network of the machine.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from servers.jars import HADOOP_AWS, ICEBERG_SPARK, REST_REFERENCE, classpath, fetched
from servers.ports import free_port
from servers.postgres import USER, Postgres
from servers.process import Server, answers_http
from servers.s3 import REGION, S3

PATIENCE_SECONDS = 60
_CONFIGURATION = Path(__file__).with_suffix(".xml")
_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # short runs: start fast
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


_HADOOP = """<configuration>
  <property><name>fs.s3.impl</name><value>org.apache.hadoop.fs.s3a.S3AFileSystem</value></property>
  <property><name>fs.s3a.endpoint</name><value>{endpoint}</value></property>
  <property><name>fs.s3a.endpoint.region</name><value>{region}</value></property>
  <property><name>fs.s3a.path.style.access</name><value>true</value></property>
  <property><name>fs.s3a.connection.ssl.enabled</name><value>false</value></property>
</configuration>
"""


@dataclass(frozen=True, slots=True)
class Backing:
    """Services in place of files.

    Attributes:
        database: Runs; keeps the catalog's state.
        store: Runs; its keys reach the server by the environment.
        warehouse: Where the tables are, ``s3://``.
    """

    database: Postgres
    store: S3
    warehouse: str


@dataclass(slots=True)
class RestReference(Server):
    """One server with its data; its port stays the same over restarts.

    Attributes:
        folder: Holds its database, its warehouse and its log.
        port: On 127.0.0.1.
        process: The server; None while it is down.
        backing: None for files in the folder.
    """

    folder: Path
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None
    backing: Backing | None = None
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
        return self.backing.warehouse if self.backing else f"file://{self.folder}/warehouse"

    def start(self) -> None:
        """Start the server on the data that there are, and wait until it answers.

        Raises:
            JarsMissing: See `servers.jars.fetched`.
            RuntimeError: It does not come up.
        """
        assert self.process is None, "it runs"
        own = {"port": self.port, "uri": self._jdbc_uri, "warehouse": self.warehouse}
        properties = [f"-Dreference.{name}={value}" for name, value in own.items()]
        program = ["java", *_OPTIONS, *properties, "-cp", self._classpath()]
        command = [*program, "org.eclipse.jetty.xml.XmlConfiguration", str(_CONFIGURATION)]
        log_file = self.folder / "rest-reference.log"
        with log_file.open("ab") as log:
            self.process = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._wait("The REST reference server", log_file, self._answers, PATIENCE_SECONDS)

    @property
    def _jdbc_uri(self) -> str:
        if self.backing is None:
            return f"jdbc:sqlite:{self.database}"
        database = self.backing.database
        return f"jdbc:postgresql://{database.address}?user={USER}&password={quote(database.password)}"

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, **(self.backing.store.environment if self.backing else {})}

    def _classpath(self) -> str:
        if self.backing is None:
            return classpath(REST_REFERENCE)
        hadoop = _HADOOP.format(endpoint=self.backing.store.endpoint, region=REGION)
        (self.folder / "core-site.xml").write_text(hadoop)
        [driver] = (jar for jar in fetched(ICEBERG_SPARK) if jar.name.startswith("postgresql-"))
        # Hadoop's client first: among Iceberg's tests is a class of the same name as one of this client.
        return os.pathsep.join([str(self.folder), classpath(HADOOP_AWS), classpath(REST_REFERENCE), str(driver)])

    def _answers(self) -> bool:
        return answers_http(f"{self.uri}/v1/config")


@contextmanager
def rest_reference(folder: Path, backing: Backing | None = None) -> Iterator[RestReference]:
    """A server that runs, and ends with the block.

    Args:
        folder: Exists; the data stay in it.
        backing: Services that keep the data instead.

    Raises:
        JarsMissing: See `servers.jars.fetched`.
    """
    server = RestReference(folder, backing=backing)
    try:
        server.start()
        yield server
    finally:
        server.stop()
