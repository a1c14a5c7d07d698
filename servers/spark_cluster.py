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
from testkit.harness import descendants

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
        environment: What the workers' machines have beside this one's variables; executors have it too.
        processes: Master first, then the workers.
    """

    folder: Path
    port: int = field(default_factory=free_port)
    web_port: int = field(default_factory=free_port)
    environment: Mapping[str, str] = field(default_factory=dict)
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
        self.processes = [self._start("master.Master", {}, "--host", "127.0.0.1", *ports)]
        self.processes += [self._start_worker(number, {}) for number in range(WORKERS)]
        self._wait()

    def kill_worker(self, number: int) -> None:
        """SIGKILL a worker and all that it runs, as if its machine were lost.

        Args:
            number: Of the worker, from 0.
        """
        worker = self.processes[1 + number]
        for pid in (worker.pid, *descendants(worker.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        worker.wait()

    def replace_worker(self, number: int, environment: Mapping[str, str] | None = None) -> None:
        """A new machine in the place of a worker, which is killed if it still runs.

        Args:
            number: Of the worker, from 0.
            environment: Variables of this machine alone.

        Raises:
            RuntimeError: It does not come up.
        """
        self.kill_worker(number)
        self.processes[1 + number] = self._start_worker(number, environment or {})
        self._wait()

    def _wait(self) -> None:
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
        return [pid for worker in range(WORKERS) for pid in self.executors_of(worker)]

    def executors_of(self, number: int) -> list[int]:
        """The JVMs of the executors on one worker."""
        return [pid for pid in descendants(self.processes[1 + number].pid) if _EXECUTOR in command_of(pid)]

    def python_workers(self) -> list[int]:
        """The executors' Python workers: the daemons that fork them, and those that they forked."""
        started = [pid for worker in self.processes[1:] for pid in descendants(worker.pid)]
        return [pid for pid in started if _PYTHON_WORKER in command_of(pid)]

    def _start_worker(self, number: int, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        host = f"127.0.0.{number + 1}"  # a host each: Spark runs no speculative twin on the host of the straggler
        own = ["--webui-port", "0", "-c", "1", "-m", "1g", "--work-dir", str(self.folder / f"worker-{number}")]
        machine = {**self.environment, **environment, "SPARK_LOCAL_IP": host}
        return self._start("worker.Worker", machine, "--host", host, *own, self.master)

    def _start(self, name: str, machine: Mapping[str, str], *arguments: str) -> "subprocess.Popen[bytes]":
        environment = {**os.environ, "SPARK_HOME": str(HOME), "PYSPARK_PYTHON": sys.executable}
        environment |= {"SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1", **machine}
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
        with (self.folder / "cluster.log").open("ab") as log:
            return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _state(self) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.web_port}/json/", timeout=5) as answer:
                return str(answer.read().decode())
        except (URLError, ConnectionError, TimeoutError):
            return ""


@contextmanager
def spark_cluster(folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[SparkCluster]:
    """A cluster that runs, and ends with the block.

    Args:
        folder: Made if it is not there.
        environment: See `SparkCluster`.

    Raises:
        RuntimeError: It does not come up.
    """
    folder.mkdir(parents=True, exist_ok=True)
    cluster = SparkCluster(folder, environment=environment or {})
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
