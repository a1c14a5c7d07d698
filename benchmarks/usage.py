"""What a run costs: seconds, processor seconds and memory of this process and all that it has started."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil

_EVERY_SECONDS = 0.2
_WORKER = "pyspark.daemon"
"""Spark's Python workers have it in their command line."""


@dataclass(slots=True)
class Usage:
    """What was used. Memory is what the kernel calls resident; pages that processes share count in each.

    Attributes:
        seconds: Wall-clock.
        cpu_seconds: Of all processes, user and system, those that have ended meanwhile among them.
        peak_bytes: Most memory of all processes at one moment, looked at five times a second.
        worker_peak_bytes: Most memory of one Python worker of Spark.
        own_peak_bytes: Most memory of this process.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    worker_peak_bytes: int = 0
    own_peak_bytes: int = 0


@contextmanager
def measured() -> Iterator[Usage]:
    """Measure what the block uses; the figures are there when it ends."""
    used = Usage()
    processor = _Processor()
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(used, processor, done), daemon=True)
    processor.look(_family())
    before, started = processor.seconds, time.perf_counter()
    watcher.start()
    try:
        yield used
    finally:
        used.seconds = time.perf_counter() - started
        done.set()
        watcher.join()
        processor.look(_family())
        used.cpu_seconds = processor.seconds - before


class _Processor:
    """Processor time of processes, each as it was last seen: what has ended keeps what it had."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, float], float] = {}

    @property
    def seconds(self) -> float:
        return sum(self._seen.values())

    def look(self, processes: list[psutil.Process]) -> None:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                self._seen[process.pid, process.create_time()] = times.user + times.system


def _family() -> list[psutil.Process]:
    own = psutil.Process()
    return [own, *own.children(recursive=True)]


def _watch(used: Usage, processor: _Processor, done: threading.Event) -> None:
    while not done.wait(_EVERY_SECONDS):
        family, total = _family(), 0
        processor.look(family)
        for process in family:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                held = process.memory_info().rss
                total += held
                if process.pid == os.getpid():
                    used.own_peak_bytes = max(used.own_peak_bytes, held)
                if _WORKER in process.cmdline():
                    used.worker_peak_bytes = max(used.worker_peak_bytes, held)
        used.peak_bytes = max(used.peak_bytes, total)
