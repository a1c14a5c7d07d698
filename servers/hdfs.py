"""HDFS on this machine's loopback: a NameNode and a DataNode in one process, with data that stay, and libhdfs.

Arrow reaches HDFS through ``libhdfs.so``, which comes with a Hadoop distribution. None is needed here: its C sources
are fetched by cargo, in the crate that carries them, as ``requirements/libhdfs.lock`` has it, and gcc makes it.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import pyspark

from servers.jars import HDFS, ROOT, classpath
from servers.missing import Missing
from servers.once import made_once
from servers.ports import free_port
from servers.process import Server

LOCK = ROOT / "requirements" / "libhdfs.lock"
FOLDER = ROOT / ".tools" / "libhdfs"
CRATE, VERSION, SOURCES = "hdfs-sys", "0.3.1", "hdfs_3_3"
LONGEST_SECONDS = 600
PATIENCE_SECONDS = 120
_MAIN = Path(__file__).with_name("MiniDfs.java")
_OPTIONS = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # short runs: start fast
_MANIFEST = f"""[package]
name = "libhdfs"
version = "0.0.0"
edition = "2021"
[dependencies]
{CRATE} = {{ version = "={VERSION}", features = ["vendored"] }}
"""


class HDFSMissing(Missing):
    """HDFS or libhdfs cannot be had on this machine, in one sentence with what to do."""


@dataclass(slots=True)
class HDFSCluster(Server):
    """One cluster with its data; its port stays the same over restarts. Use `hdfs`.

    Attributes:
        folder: Its data and its log.
        port: Of the NameNode, on 127.0.0.1.
        process: The cluster; None while it is down.
    """

    folder: Path
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None
    grace_seconds: ClassVar[float] = 20

    @property
    def uri(self) -> str:
        """Its root."""
        return f"hdfs://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it on the data that there are, and wait until it answers.

        Raises:
            JarsMissing: See `servers.jars.fetched`.
            RuntimeError: It does not come up.
        """
        assert self.process is None, "it runs"
        call = ["java", *_OPTIONS, "-cp", classpath(HDFS), str(_MAIN), str(self.folder / "data"), str(self.port)]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(call, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        self._wait("HDFS", self._log, lambda: b"up\n" in self._log.read_bytes(), PATIENCE_SECONDS)

    @property
    def _log(self) -> Path:
        return self.folder / "hdfs.log"


@contextmanager
def hdfs(folder: Path) -> Iterator[HDFSCluster]:
    """A cluster that runs, and ends with the block.

    Args:
        folder: Made if it is not there; the data stay in it.

    Raises:
        JarsMissing: See `servers.jars.fetched`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    cluster = HDFSCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def client_environment() -> dict[str, str]:
    """What Arrow finds HDFS by: its library, and Hadoop's Java client, which Spark brings.

    Raises:
        HDFSMissing: See `installed`.
    """
    jars = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    return {
        "ARROW_LIBHDFS_DIR": str(installed()),
        "CLASSPATH": os.pathsep.join(map(str, jars)),
        "JAVA_HOME": str(_java_home()),
    }


def installed() -> Path:
    """The folder of libhdfs, made if this version is not here yet. Several processes may ask at once.

    Raises:
        HDFSMissing: No cargo, gcc or JDK, or no registry.
    """
    return made_once(FOLDER / f"{VERSION}-{SOURCES}", _build)


def _build(home: Path) -> None:
    with TemporaryDirectory(prefix="lakesink-libhdfs-") as folder:
        place = Path(folder)
        (place / "Cargo.toml").write_text(_MANIFEST)
        (place / "src").mkdir()
        (place / "src" / "lib.rs").touch()
        shutil.copy(LOCK, place / "Cargo.lock")
        _run([_program("cargo"), "vendor", "--locked", "--quiet", "crates"], place)
        common = place / "crates" / CRATE / "libhdfs"
        _run(_compile(common, common / SOURCES, home / "libhdfs.so"), place)


def _compile(common: Path, sources: Path, to: Path) -> list[str]:
    java = _java_home()
    folders = [common, sources, sources / "include", sources / "os", sources / "os" / "posix"]
    folders += [java / "include", java / "include" / "linux"]
    files = [*sources.glob("*.c"), *(sources / "os" / "posix").glob("*.c")]
    machine = java / "lib" / "server"
    flags = ["-w", "-O1", "-shared", "-fPIC", "-fcommon", *(f"-I{folder}" for folder in folders)]
    linked = [f"-L{machine}", "-ljvm", f"-Wl,-rpath,{machine}", "-o", str(to)]
    return [_program("gcc"), *flags, *map(str, sorted(files)), *linked]


def _java_home() -> Path:
    return Path(_program("javac")).resolve().parents[1]


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise HDFSMissing(f"{name}, which making libhdfs needs, is not here (Debian: cargo, gcc, openjdk-17-jdk).")
    return found


def _run(call: list[str], folder: Path) -> None:
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
    if done.returncode:
        raise HDFSMissing(f"libhdfs cannot be made; run it again when the registry answers. {done.stderr[-2000:]}")
