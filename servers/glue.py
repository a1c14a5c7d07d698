"""AWS Glue on this machine's loopback: moto, an emulator, in a Python environment of its own.

moto ignores the `VersionId` of an update, which Glue compares. Here it compares it: without this, of two commits that
start from one version the second would replace the first. What it knows is in its memory, and ends with it.
"""

import hashlib
import re
import subprocess
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from servers.jars import ROOT
from servers.missing import Missing
from servers.once import made_once
from servers.ports import free_port
from servers.process import Server, answers_http
from servers.s3 import REGION, S3

REQUIREMENTS = ROOT / "requirements" / "moto.txt"
FOLDER = ROOT / ".tools" / "moto"
[MOTO_VERSION] = re.findall(r"^moto==(.+)", REQUIREMENTS.read_text(), re.MULTILINE)
LONGEST_SECONDS = 600
PATIENCE_SECONDS = 60
_SERVE = """
import sys, threading
from moto.glue.exceptions import GlueClientError
from moto.glue.responses import EmptyResult, GlueResponse
from moto.server import main

one_at_a_time = threading.Lock()
create_table = GlueResponse.create_table

def create(self):
    with one_at_a_time:
        return create_table(self)

def update(self):
    database, table = self.parameters["DatabaseName"], self.parameters["TableInput"]
    expected = self.parameters.get("VersionId")
    with one_at_a_time:
        current = str(self.glue_backend.get_table(database, table["Name"]).as_dict()["VersionId"])
        if expected is not None and str(expected) != current:
            raise GlueClientError("ConcurrentModificationException", f"Version {expected} is not the current {current}")
        self.glue_backend.update_table(database, table["Name"], table)
    return EmptyResult()

GlueResponse.create_table, GlueResponse.update_table = create, update
main(sys.argv[1:])
"""


class GlueMissing(Missing):
    """The emulator cannot be had on this machine, in one sentence with what to do."""


@dataclass(slots=True)
class Glue(Server):
    """One emulator; its port stays the same over restarts, and nothing else does. Use `glue`.

    Attributes:
        folder: Its log.
        store: Runs; keeps the tables.
        warehouse: Where they are, ``s3://``.
        port: On 127.0.0.1.
        process: The emulator; None while it is down.
    """

    folder: Path
    store: S3
    warehouse: str
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None
    grace_seconds: ClassVar[float] = 10

    @property
    def endpoint(self) -> str:
        """For ``glue.endpoint``."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def properties(self) -> dict[str, str]:
        """For a catalog of PyIceberg, with `catalog_clients`; keys come from `S3.environment`."""
        own = {"type": "glue", "glue.endpoint": self.endpoint, "glue.region": REGION, "warehouse": self.warehouse}
        return {**own, **self.store.properties}

    def start(self) -> None:
        """Start it, empty, and wait until it answers.

        Raises:
            GlueMissing: See `installed`.
            RuntimeError: It does not come up.
        """
        assert self.process is None, "it runs"
        call = [str(installed() / "bin" / "python"), "-c", _SERVE, "-H", "127.0.0.1", "-p", str(self.port)]
        log_file = self.folder / "glue.log"
        with log_file.open("ab") as log:
            self.process = subprocess.Popen(call, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        self._wait("The emulator of Glue", log_file, self._answers, PATIENCE_SECONDS)

    def _answers(self) -> bool:
        return answers_http(f"http://127.0.0.1:{self.port}/moto-api/data.json")


@contextmanager
def glue(folder: Path, store: S3, warehouse: str) -> Iterator[Glue]:
    """An emulator that runs, and ends with the block.

    Args:
        folder: Made if it is not there.
        store: Runs.
        warehouse: In a bucket of the store, ``s3://``.

    Raises:
        GlueMissing: See `installed`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    server = Glue(folder, store, warehouse)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def installed() -> Path:
    """The environment of the emulator, made if this version is not here yet. Several processes may ask at once.

    Raises:
        GlueMissing: pip cannot install it.
    """
    return made_once(FOLDER / hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12], _install)


def _install(home: Path) -> None:
    venv.create(home, with_pip=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    call = [*pip, "-r", str(REQUIREMENTS)]
    done = subprocess.run(call, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
    if done.returncode:
        raise GlueMissing(f"moto cannot be installed; run it again when the index answers. {done.stderr[-2000:]}")
