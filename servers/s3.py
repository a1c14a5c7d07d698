"""An S3 server on this machine's loopback: versitygw, whose objects are files of a folder and stay over restarts.

It is built once by Go's own client, at a pinned version, into ``.tools/versitygw``. Its module and every module in it
are those of `MODULES`, with their checksums, or it is not run. ``python -m servers.s3 lock`` writes that list anew.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from servers.jars import ROOT
from servers.missing import Missing
from servers.once import made_once
from servers.ports import free_port
from servers.process import Server

MODULE, VERSION = "github.com/versity/versitygw", "v1.8.0"
MODULES = ROOT / "requirements" / "versitygw.sum"
FOLDER = ROOT / ".tools" / "versitygw"
REGION = "us-east-1"
LONGEST_SECONDS = 1200
PATIENCE_SECONDS = 30


class S3Missing(Missing):
    """The server cannot be had on this machine, in one sentence with what to do."""


@dataclass(slots=True)
class S3(Server):
    """One server with its buckets; its port stays the same over restarts. Use `s3`.

    Attributes:
        folder: Holds its buckets and its log.
        access_key: Of the one account that there is.
        secret_key: Of the same; a server that is started again takes the one that stands here then.
        port: On 127.0.0.1.
        process: The server; None while it is down.
    """

    folder: Path
    access_key: str = "lakesink-access"
    secret_key: str = "lakesink-secret"  # noqa: S105 - of a server that lives for one test
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None
    grace_seconds: ClassVar[float] = 10

    @property
    def endpoint(self) -> str:
        """For ``s3.endpoint`` and ``AWS_ENDPOINT_URL``."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What every client of AWS's finds its way by: PyArrow, fsspec, the Java libraries."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def properties(self) -> dict[str, str]:
        """For a catalog of PyIceberg; without keys, which come from `environment`."""
        return {"s3.endpoint": self.endpoint, "s3.region": REGION}

    @property
    def hadoop(self) -> dict[str, str]:
        """For ``spark.hadoop.``: where ``s3a://`` is; without keys, which Hadoop too finds in `environment`."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": REGION,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        }

    def start(self) -> None:
        """Start the server on the buckets that there are, and wait until it answers.

        Raises:
            S3Missing: See `installed`.
            RuntimeError: It does not come up.
        """
        assert self.process is None, "it runs"
        self._buckets.mkdir(parents=True, exist_ok=True)
        call = [str(installed()), "--port", f"127.0.0.1:{self.port}", "--region", REGION, "posix", str(self._buckets)]
        account = {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}
        with (self.folder / "s3.log").open("ab") as log:
            self.process = subprocess.Popen(
                call, env={**os.environ, **account}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._wait("The S3 server", self.folder / "s3.log", self._answers, PATIENCE_SECONDS)

    def make_bucket(self, name: str) -> Path:
        """Make a bucket.

        Returns:
            Its folder: objects lie there under their keys.
        """
        bucket = self._buckets / name
        bucket.mkdir(parents=True)
        return bucket

    def client(self) -> Any:
        """A client of botocore's, for what tests ask of S3 itself."""
        from botocore.session import Session  # noqa: PLC0415 - costs a second that few need

        keys = {"aws_access_key_id": self.access_key, "aws_secret_access_key": self.secret_key}
        return Session().create_client("s3", endpoint_url=self.endpoint, region_name=REGION, **keys)

    @property
    def _buckets(self) -> Path:
        return self.folder / "buckets"

    def _answers(self) -> bool:
        with suppress(URLError, ConnectionError, TimeoutError):
            try:
                urlopen(self.endpoint, timeout=5).close()  # noqa: S310 - our own loopback
            except HTTPError as refused:  # who bears no key is refused: it is up
                refused.close()
            return True
        return False


@contextmanager
def s3(folder: Path, *buckets: str) -> Iterator[S3]:
    """A server that runs, and ends with the block.

    Args:
        folder: Made if it is not there; the buckets stay in it.
        buckets: Made before it starts.

    Raises:
        S3Missing: See `installed`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    server = S3(folder)
    try:
        server.start()
        for name in buckets:
            server.make_bucket(name)
        yield server
    finally:
        server.stop()


def installed() -> Path:
    """The server's program, built if this version is not here yet. Several processes may ask at once.

    Raises:
        S3Missing: No Go, no module proxy, or what was built is not what the list has.
    """
    name = f"{VERSION}-{hashlib.sha256(MODULES.read_bytes()).hexdigest()[:12]}"
    return made_once(FOLDER / name, _build) / "versitygw"


def lock() -> None:
    """Write the list of modules anew, from what Go brings now and its checksum database vouches for."""
    with TemporaryDirectory(prefix="lakesink-s3-") as folder:
        MODULES.write_text(_built(Path(folder)))


def _build(home: Path) -> None:
    if _built(home) != MODULES.read_text():
        raise S3Missing(f"Go brought other modules for {MODULE} than {MODULES.name} has: python -m servers.s3 lock.")


def _built(folder: Path) -> str:
    """Build the program into a folder; the modules in it, one a line with its checksum."""
    go = shutil.which("go")
    if go is None:
        raise S3Missing("Go, which builds the S3 server, is not here (https://go.dev/dl, 1.24 or later).")
    _run([go, "install", f"{MODULE}/cmd/versitygw@{VERSION}"], {"GOBIN": str(folder)})
    lines = _run([go, "version", "-m", str(folder / "versitygw")], {}).splitlines()
    return "".join(f"{' '.join(line.split()[1:])}\n" for line in lines if line.split()[:1] in (["mod"], ["dep"]))


def _run(call: list[str], own: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            call, env={**os.environ, **own}, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise S3Missing(f"{MODULE} was not built within {LONGEST_SECONDS} s; run it again.") from None
    if done.returncode:
        raise S3Missing(f"{MODULE} cannot be built; run it again when the registry answers. {done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    if sys.argv[1:] != ["lock"]:
        sys.exit("python -m servers.s3 lock")
    try:
        lock()
    except S3Missing as error:
        sys.exit(str(error))
