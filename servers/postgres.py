"""A PostgreSQL of this machine's own programs on its loopback, with data that stay over restarts and kills."""

import importlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from servers.missing import Missing
from servers.ports import free_port
from servers.process import end

USER = "lake"
PATIENCE_SECONDS = 60
_INSTALLED = Path("/usr/lib/postgresql")


class PostgresMissing(Missing):
    """PostgreSQL or its driver is not on this machine, in one sentence with what to do."""


@dataclass(slots=True)
class Postgres:
    """One server with its data; its port stays the same over restarts. Use `postgres_server`.

    Attributes:
        folder: Its data and its log; the account that runs it may enter.
        password: Of `USER`, who owns it.
        port: On 127.0.0.1.
        process: The server; None while it is down.
    """

    folder: Path
    password: str
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def address(self) -> str:
        """Host, port and database as in a URI."""
        return f"127.0.0.1:{self.port}/postgres"

    def make(self) -> None:
        """Make the data folder.

        Raises:
            PostgresMissing: No PostgreSQL.
        """
        program, secret = _program("initdb"), self.folder / "password"
        secret.write_text(self.password)
        account = _account(self.folder, secret)
        call = [program, "-D", str(self.folder / "data"), "-U", USER, "-A", "scram-sha-256", "--pwfile", str(secret)]
        subprocess.run(call, check=True, capture_output=True, cwd=self.folder, **account)

    def start(self) -> None:
        """Start the server on the data that there are, and wait until it lets somebody in.

        Raises:
            PostgresMissing: No PostgreSQL, or no driver for it.
        """
        assert self.process is None, "it runs"
        where = ["-D", str(self.folder / "data"), "-k", str(self.folder)]
        call = [_program("postgres"), *where, "-p", str(self.port), "-h", "127.0.0.1", "-F"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(call, stdout=log, stderr=log, cwd=self.folder, **_account(self.folder))
        self._wait()

    def stop(self) -> None:
        """End it at once: idle connections of open catalogs do not count. Nothing if it is down."""
        self._end(signal.SIGQUIT)

    def kill(self) -> None:
        """SIGKILL, to its sessions too; it recovers when it is started again."""
        self._signal_sessions(signal.SIGKILL)
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP, to its sessions too: connections stay, and nothing answers until `resume`."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        self._signal_sessions(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        self._signal_sessions(signal.SIGCONT)
        self.process.send_signal(signal.SIGCONT)

    def _signal_sessions(self, number: signal.Signals) -> None:
        for pid in _children(self.process.pid) if self.process else []:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, number)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            end(self.process, PATIENCE_SECONDS, how)
            self.process = None

    def _wait(self) -> None:
        """It listens a moment before it lets anybody in, and longer on a busy machine."""
        driver, deadline = _driver(), time.monotonic() + PATIENCE_SECONDS
        where = {"host": "127.0.0.1", "port": self.port, "user": USER, "dbname": "postgres"}
        while True:
            try:
                driver.connect(**where, password=self.password).close()
                return
            except driver.OperationalError:
                if time.monotonic() > deadline:
                    self.stop()
                    raise
                time.sleep(0.05)


@contextmanager
def postgres_server(password: str) -> Iterator[Postgres]:
    """A fresh server that runs, and ends with the block, its data too.

    Args:
        password: Of its user `USER`.

    Raises:
        PostgresMissing: No PostgreSQL, or no driver for it.
    """
    _driver()
    folder = Path(tempfile.mkdtemp(prefix="lakesink-pg-"))
    server = Postgres(folder, password)
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def installed() -> Path:
    """The server's program; root installs the Debian package if there is none.

    Raises:
        PostgresMissing: No PostgreSQL.
    """
    apt = shutil.which("apt-get")
    if os.getuid() == 0 and apt and _found("postgres") is None:
        call = [apt, "install", "-y", "-qq", "--no-install-recommends", "postgresql"]
        subprocess.run(call, check=False, capture_output=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    return Path(_program("postgres"))


def _driver() -> Any:
    try:
        return importlib.import_module("psycopg2")
    except ModuleNotFoundError:
        raise PostgresMissing("PostgreSQL's driver is not installed: pip install psycopg2-binary.") from None


def _program(name: str) -> str:
    found = _found(name)
    if found is None:
        raise PostgresMissing(f"{name} is not installed (Debian, Ubuntu: apt-get update; apt-get install postgresql).")
    return found


def _found(name: str) -> str | None:
    packaged = sorted(_INSTALLED.glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(packaged[-1]) if packaged else None)


def _account(*paths: Path) -> dict[str, Any]:
    """PostgreSQL refuses to run as root: lend it to nobody."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    for path in paths:
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
