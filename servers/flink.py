"""Flink on this machine's loopback: its SQL gateway with everything that runs queries in one process, and a client."""

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

from servers.jars import FLINK, ICEBERG_AWS_FLINK, ICEBERG_FLINK, JarSet, classpath
from servers.ports import free_port
from servers.process import end, why_not_up

PATIENCE_SECONDS, GRACE_SECONDS = 120, 10
_LONGEST_CAUSE = 400
_GATEWAY = "org.apache.flink.table.gateway.SqlGateway"
SHORT_RUNS = (
    "-Xmx1g",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # short runs: start fast
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
_CONFIG = {
    "execution.target": "local",
    "execution.runtime-mode": "batch",
    "parallelism.default": "1",
    "table.local-time-zone": "UTC",
    "rest.bind-address": "127.0.0.1",
    "sql-gateway.endpoint.rest.address": "127.0.0.1",
    "sql-gateway.endpoint.rest.bind-address": "127.0.0.1",
}


class FlinkFailed(Exception):
    """Flink refused or failed; its own words."""


@dataclass(slots=True)
class Flink:
    """One gateway, and one session in it. Use `flink`.

    Attributes:
        folder: Its configuration and log.
        java_options: For the process.
        config: Flink's, beside its own or above it.
        more_jars: For its ``lib``.
        port: On 127.0.0.1.
        process: The gateway; None while it is down.
        session: Handle of the session.
    """

    folder: Path
    java_options: Sequence[str] = SHORT_RUNS
    config: Mapping[str, str] = field(default_factory=dict)
    more_jars: tuple[JarSet, ...] = ()
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None
    session: str = ""

    def start(self) -> None:
        """Start it, and wait until it gives a session.

        Raises:
            JarsMissing: See `servers.jars.fetched`.
            FlinkFailed: It does not come up, with the end of its log.
        """
        assert self.process is None, "it runs"
        config = {**_CONFIG, "sql-gateway.endpoint.rest.port": self.port, **self.config}
        (self.folder / "config.yaml").write_text("".join(f"{name}: {value}\n" for name, value in config.items()))
        jars = os.pathsep.join(map(classpath, (FLINK, ICEBERG_FLINK, ICEBERG_AWS_FLINK, *self.more_jars)))
        call = ["java", *self.java_options, f"-Djava.io.tmpdir={self.folder}", "-cp", jars, _GATEWAY]
        environment = {**os.environ, "FLINK_CONF_DIR": str(self.folder)}
        with (self.folder / "flink.log").open("ab") as log:
            self.process = subprocess.Popen(call, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._wait()

    def stop(self) -> None:
        """End it; nothing if it is down."""
        if self.process is not None:
            end(self.process, GRACE_SECONDS)
            self.process = None

    def sql(self, statement: str) -> list[list[Any]]:
        """Run one statement to its end, in the session: catalogs that it makes stay.

        Args:
            statement: Without a semicolon.

        Returns:
            Rows as Flink's JSON has them, with decimals for floating point numbers: maps must have keys of text.

        Raises:
            FlinkFailed: Flink's error.
        """
        return self.result(self.begin(statement))

    def begin(self, statement: str) -> str:
        """Start a statement, and return the handle of its operation.

        Args:
            statement: Without a semicolon.
        """
        begun = self._ask(f"/v3/sessions/{self.session}/statements", {"statement": statement})
        return str(begun["operationHandle"])

    def status(self, operation: str) -> str:
        """``RUNNING``, ``FINISHED``, ``ERROR``, ...: how it is with an operation."""
        return str(self._ask(f"/v3/sessions/{self.session}/operations/{operation}/status")["status"])

    def cancel(self, operation: str) -> None:
        """End an operation that would go on."""
        self._ask(f"/v3/sessions/{self.session}/operations/{operation}/cancel", {})

    def result(self, operation: str) -> list[list[Any]]:
        """Rows of an operation, waited for; see `sql`."""
        path = f"/v3/sessions/{self.session}/operations/{operation}/result/0?rowFormat=JSON"
        rows: list[list[Any]] = []
        while True:
            said = self._ask(path)
            if said["resultType"] == "NOT_READY":
                time.sleep(0.05)
                continue
            rows += [row["fields"] for row in said["results"]["data"]]
            if said["resultType"] == "EOS":
                return rows
            path = said["nextResultUri"]

    def _wait(self) -> None:
        assert self.process is not None
        said = why_not_up(self.process, self.folder / "flink.log", self._answers, PATIENCE_SECONDS)
        if said is not None:
            self.stop()
            raise FlinkFailed(f"Flink did not come up: {said}")

    def _answers(self) -> bool:
        with suppress(URLError, ConnectionError, TimeoutError):
            self.session = str(self._ask("/v3/sessions", {})["sessionHandle"])
            return True
        return False

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:  # noqa: S310 - as above
                said: dict[str, Any] = json.load(answer, parse_float=Decimal)
                return said
        except HTTPError as error:
            raise FlinkFailed(_causes(error.read())) from None


@contextmanager
def flink(folder: Path) -> Iterator[Flink]:
    """A gateway that runs, and ends with the block.

    Args:
        folder: Made if it is not there.

    Raises:
        JarsMissing: See `servers.jars.fetched`.
        FlinkFailed: It does not come up.
    """
    folder.mkdir(parents=True, exist_ok=True)
    server = Flink(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _causes(body: bytes) -> str:
    """The lines that say why, of a page of stack trace."""
    lines = "\n".join(json.loads(body).get("errors", [])).splitlines()
    causes = [line.strip() for line in lines if line.startswith("Caused by:")]
    return "\n".join(line[:_LONGEST_CAUSE] for line in causes or lines)
