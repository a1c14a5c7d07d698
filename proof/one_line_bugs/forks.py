"""Functions run in forks of this process, some at a time.

pytest and the libraries are imported once, before; lakesink is not, so that each fork imports its own. Each test module
and each module of lakesink must still be new here.
"""

import atexit
import gc
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

LIBRARIES = (
    "coverage",
    "duckdb",
    "hypothesis.strategies",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
    "pytest",
)
PRODUCT = ("lakesink", "lakesink_catalog", "lakesink_protocol", "lakesink_tools")
POLL_SECONDS = 0.02
CRASHED = 70


@dataclass(frozen=True, slots=True)
class Job:
    """A function for a fork, which returns the fork's exit code.

    Attributes:
        run: The function.
        output: The file of its output.
        seconds: The longest wall time.
    """

    run: Callable[[], int]
    output: Path
    seconds: float


@dataclass(frozen=True, slots=True)
class Ended:
    """A fork that has ended.

    Attributes:
        name: The name of the job.
        code: Its exit code; negative, the signal.
        cpu: Seconds of processor time.
        wall: Seconds.
    """

    name: str
    code: int
    cpu: float
    wall: float


def load_libraries() -> None:
    """Import what all forks need."""
    for library in LIBRARIES:
        import_module(library)
    assert not sys.modules.keys() & set(PRODUCT), "each fork imports its own lakesink"
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # else DuckDB reports leaks


def in_forks(jobs: Mapping[str, Job], at_once: int) -> Iterator[Ended]:
    """Run the jobs, as many at once, and tell each end."""
    waiting, running = list(jobs.items()), dict[int, tuple[str, float]]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                name, job = waiting.pop(0)
                running[_start(job)] = name, time.monotonic()
            for pid, (name, begun) in list(running.items()):
                ended, status, used = os.wait4(pid, os.WNOHANG)
                wall = time.monotonic() - begun
                if ended or wall > jobs[name].seconds:
                    _kill(pid)
                if ended:
                    del running[pid]
                    yield Ended(name, os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, wall)
            time.sleep(POLL_SECONDS)
    finally:
        for pid in running:  # each is a session of its own, which no Ctrl-C of the terminal reaches
            _kill(pid)


def limit_cpu(more: float) -> None:
    """End this process by SIGXCPU after so many more seconds of processor time."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + more) + 1, hard))


def _start(job: Job) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = CRASHED
    gc.freeze()  # a collection that looked through all of the parent would use up the time of a test
    try:
        os.setsid()
        output = os.open(job.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = job.run()
    except BaseException:  # noqa: BLE001 - the parent reads it in the output
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _kill(group: int) -> None:
    """Kill the fork, and what its tests have left."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
