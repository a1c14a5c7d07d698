"""Many writers at once, each with a connection of its own, spread over processes; they start together.

Each writer is a rival driver of one stream: it loads the table, builds the next batch on what it sees, sends it once,
and looks again. So every commit has up to as many rivals as there are writers.
"""

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from threading import Barrier
from typing import Protocol

from pyiceberg.catalog import Catalog

from lakesink.checks.certify.bench import KEY, next_batch
from lakesink.checks.certify.state import Sent
from lakesink.checks.offer import answer, fence_on, offer
from lakesink_catalog.commit.fence import FencedCommit
from lakesink_catalog.connect.catalog import FoundCatalog
from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.redact import describe

START_SECONDS = 120
_MOST_UNANSWERED = 20
_gate: Barrier | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """How large a race is.

    Attributes:
        writers: How many at once.
        commits: How many acknowledged commits each writer makes.
        processes: Over how many processes the writers are spread.
        seconds: When writers stop at the latest.
    """

    writers: int = 16
    commits: int = 10
    processes: int = 4
    seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class Report:
    """What a writer did.

    Attributes:
        sent: Its requests.
        troubles: What kept it from sending.
    """

    sent: tuple[Sent, ...]
    troubles: tuple[str, ...] = ()


Attempt = Callable[[], Sent]
"""Looks, builds, sends once."""


class Step(Protocol):
    """What a writer does again and again. It travels to other processes."""

    def __call__(self, catalog: Catalog) -> Attempt:
        """The attempt of one writer, on its own connection."""


@dataclass(frozen=True, slots=True)
class OneTable:
    """Commits the next batch to a table.

    Attributes:
        name: Identifier of the table.
        ledger_tag: Whether commits set lakesink's tag.
    """

    name: str
    ledger_tag: bool

    def __call__(self, catalog: Catalog) -> Attempt:
        """See `Step`."""
        return partial(_attempt, catalog, fence_on(catalog, self.name, KEY, ledger_tag=self.ledger_tag))


def _attempt(catalog: Catalog, fence: FencedCommit) -> Sent:
    offered = offer(fence, *next_batch(fence))
    answered = answer(catalog, offered)
    shown = bool(answered.refused_as) or shows(fence, offered.snapshot_id)
    return Sent((offered.snapshot_id,), answered.refused_as, answered.unknown, shown)


def shows(fence: FencedCommit, snapshot_id: int) -> bool:
    """False if the table, loaded now, does not have the snapshot; a load that fails shows nothing."""
    try:
        table = fence.load()
    except LakesinkError:
        return True
    return table.metadata.snapshot_by_id(snapshot_id) is not None


def race(found: FoundCatalog, step: Step, size: Size, *, within_process: bool) -> list[Report]:
    """Let the writers loose; their reports.

    Args:
        found: The catalog; every writer opens it.
        step: What a writer does again and again.
        size: How large the race is.
        within_process: True if other processes do not see the catalog.
    """
    if within_process or size.processes == 1:
        return _drive(found, step, size, size.writers, Barrier(1))
    shares = [len(range(number, size.writers, size.processes)) for number in range(size.processes)]
    shares = [share for share in shares if share]
    context = multiprocessing.get_context("spawn")  # a fork would take locks along that threads of ours hold
    gate = context.Barrier(len(shares))
    with ProcessPoolExecutor(len(shares), context, _hold, (gate,)) as processes:
        running = [processes.submit(_drive, found, step, size, share) for share in shares]
        return [report for process in running for report in process.result()]


def _hold(gate: Barrier) -> None:
    global _gate  # noqa: PLW0603 - how a pool hands a barrier to its processes
    _gate = gate


def _drive(found: FoundCatalog, step: Step, size: Size, writers: int, gate: Barrier | None = None) -> list[Report]:
    """The writers of one process."""
    gate = gate or _gate
    assert gate is not None
    catalogs = [found.open(create=False) for _ in range(writers)]
    attempts = [step(catalog) for catalog in catalogs]
    gate.wait(START_SECONDS)
    deadline = time.monotonic() + size.seconds
    with ThreadPoolExecutor(writers) as threads:
        return list(threads.map(_write, catalogs, attempts, repeat(size.commits), repeat(deadline)))


def _write(catalog: Catalog, attempt: Attempt, commits: int, deadline: float) -> Report:
    sent: list[Sent] = []
    troubles: list[str] = []
    landed = unanswered = 0
    while landed < commits and unanswered < _MOST_UNANSWERED and time.monotonic() < deadline:
        try:
            sent.append(attempt())
        except Exception as error:  # noqa: BLE001 - whatever keeps a writer from sending is told
            troubles.append(describe(error, catalog.properties))
            unanswered += 1
        else:
            landed += not sent[-1].refused_as
            unanswered += sent[-1].unknown
    return Report(tuple(sent), tuple(troubles))
