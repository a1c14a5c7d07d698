"""A standalone Spark cluster on this machine's loopback, from the PySpark that is installed: a master and two workers.

Executors are processes of their own here, as in production, and can be killed without the driver; in ``local`` mode
there are none.
"""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError

import pyspark

from servers.ports import free_port
from tests.processes.harness import descendants

HOME = Path(pyspark.__file__).parent
PATIENCE_SECONDS = 120.0
WORKERS = 2
_EXECUTOR = "CoarseGrainedExecutorBackend"
_PYTHON_WORKER = "pyspark.daemon"


@dataclass(slots=True)
class SparkCluster:
    """One cluster. Use `spark_cluster`.

    Attributes:
        folder: Its logs and working folders.
        port: Of the master.
        web_port: Where the master tells its state.
        processes: Master first, then the workers.
    """

    folder: Path
    port: int = field(default_factory=free_port)
    web_port: int = field(default_factory=free_port)
    processes: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    @property
    def master(self) -> str:
        """For ``SparkSession.builder.master``."""
        return f"spark://127.0.0.1:{self.port}"

    @property
    def conf(self) -> Mapping[str, str]:
        """What a session needs to run here."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.cores.max": str(WORKERS),
        }

    def start(self) -> None:
        """Start master and workers, and wait until they know each other.

        Raises:
            RuntimeError: They do not come up.
        """
        ports = ["--port", str(self.port), "--webui-port", str(self.web_port)]
        self._start("master.Master", "--host", "127.0.0.1", *ports)
        for number in range(WORKERS):
            folder = self.folder / f"worker-{number}"
            own = ["--host", "127.0.0.1", "--webui-port", "0", "-c", "1", "-m", "1g", "--work-dir", str(folder)]
            self._start("worker.Worker", *own, self.master)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._state().count('"state" : "ALIVE"') < WORKERS:
            if time.monotonic() > deadline:
                raise RuntimeError(f"The Spark cluster did not come up; its logs are in {self.folder}.")
            time.sleep(0.1)

    def stop(self) -> None:
        """End everything that was started, executors included."""
        started = [pid for process in self.processes for pid in (process.pid, *descendants(process.pid))]
        for pid in started:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            process.wait()
        self.processes.clear()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(map(command_of, started)) and time.monotonic() < deadline:
            time.sleep(0.02)

    def executors(self) -> list[int]:
        """The executors' JVMs."""
        return [pid for pid in self._started() if _EXECUTOR in command_of(pid)]

    def python_workers(self) -> list[int]:
        """The executors' Python workers: the daemons that fork them, and those that they forked."""
        return [pid for pid in self._started() if _PYTHON_WORKER in command_of(pid)]

    def _started(self) -> list[int]:
        return [pid for worker in self.processes[1:] for pid in descendants(worker.pid)]

    def _start(self, name: str, *arguments: str) -> None:
        environment = {**os.environ, "SPARK_HOME": str(HOME), "PYSPARK_PYTHON": sys.executable}
        environment |= {"SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1"}
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
        with (self.folder / "cluster.log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def _state(self) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.web_port}/json/", timeout=5) as answer:
                return str(answer.read().decode())
        except (URLError, ConnectionError, TimeoutError):
            return ""


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """A cluster that runs, and ends with the block.

    Args:
        folder: Made if it is not there.

    Raises:
        RuntimeError: It does not come up.
    """
    folder.mkdir(parents=True, exist_ok=True)
    cluster = SparkCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def command_of(pid: int) -> str:
    """What a process runs; empty if it is gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""
