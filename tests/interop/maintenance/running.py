"""A stream that is fed while others are at work on its table."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from testkit.harness import Stream
from tests.interop.maintenance.others import Others

FEED_SECONDS = 0.75
WAITING = 10
"""Files that wait for their batch, at most."""

REFUSED_BY_ITSELF = "Retrying task after failure"
"""What Iceberg's Java library logs of a commit that came too late, before it tries again."""


@dataclass(slots=True)
class Feed:
    """A file for each batch, one after the other, as long as a stream keeps up.

    Attributes:
        stream: The stream.
        files: How many have arrived.
    """

    stream: Stream
    files: int = 0

    def until(self, enough: Callable[[], bool], seconds: float, work: Sequence["Future[None]"] = ()) -> None:
        """Feed until it is enough; others must still be at work then."""
        deadline = time.monotonic() + seconds
        while not enough():
            assert time.monotonic() < deadline, f"not enough within {seconds} s"
            for one in work:
                assert not one.done() or one.result(), "it does not end by itself"
            if self.files - done_batches(self.stream) < WAITING:
                self.stream.add_files(self.files, self.files + 1)
                self.files += 1
            time.sleep(FEED_SECONDS)


@contextmanager
def at_work(others: Sequence[Others]) -> Iterator[list["Future[None]"]]:
    """Each in a thread of its own; all have ended with the block."""
    stop = Event()
    with ThreadPoolExecutor(len(others)) as threads:
        work = [threads.submit(one.work, stop) for one in others]
        try:
            yield work
        finally:
            stop.set()
    for one in work:
        one.result()


def done_batches(stream: Stream) -> int:
    """How many batches Spark calls done."""
    commits = stream.checkpoint / "commits"
    done = [int(path.name) for path in commits.iterdir() if path.name.isdecimal()] if commits.exists() else []
    return max(done, default=-1) + 1


def steps(trace: Path) -> Counter[str]:
    """How often the drivers of a stream came to each step; answers by what they showed."""
    lines = map(json.loads, trace.read_text().splitlines())
    return Counter(line["event"] + (f" {line['shows']}" if line["event"] == "answer" else "") for line in lines)


def came_late(ours: Mapping[str, int]) -> int:
    """How many commits of a stream were not proven to have landed by their answer."""
    return ours["answer unknown"] + ours["answer not-shown"]


def tried_again(log: Path) -> int:
    """How often an engine's commit came too late and was tried again by the engine."""
    return log.read_text(errors="replace").count(REFUSED_BY_ITSELF)
