"""A race of many writers, each with its own connection, in several processes; they start together.

Each writer is a rival driver of one stream. It loads the table, builds the next batch on it, sends the commit once, and
loads the table again. Every commit therefore has up to as many rivals as there are writers.
"""

import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from threading import Barrier

from pyiceberg.catalog import Catalog

from lakesink_catalog.commit.batch_commit import FencedCommit
from lakesink_catalog.connect.catalog import FoundCatalog
from lakesink_catalog.connect.kinds import is_of_one_process
from lakesink_catalog.read.view import view_table
from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.redact import describe
from lakesink_tools.checks.bench import KEY, Offer, answer, fence_on, next_offers
from lakesink_tools.checks.caught import caught
from lakesink_tools.checks.certify.state import Sent

START_SECONDS = 120
_MOST_UNANSWERED = 20
_gate: Barrier | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a race."""

    writers: int = 16  # number of concurrent writers
    commits: int = 10  # acknowledged commits of each writer
    processes: int = 4
    seconds: float = 120.0  # time limit for the writers


Report = tuple[list[Sent], list[str]]
"""Result of one writer: its requests, and what kept it from sending."""


def _attempt(catalog: Catalog, fences: Sequence[FencedCommit]) -> Sent:
    offers = [next_offers(fence)[0] for fence in fences]
    sent = answer(catalog, *offers)
    if sent.refused_as:
        return sent
    return replace(sent, read_back=all(map(_shows, fences, offers)))


def _shows(fence: FencedCommit, offered: Offer) -> bool:
    """False if the table, loaded now, has neither the snapshot nor a later batch; a failed load proves nothing."""
    try:
        table = fence.load()
    except LakesinkError:
        return True
    if table.metadata.snapshot_by_id(offered.snapshot_id) is not None:
        return True
    entry = view_table(table, KEY).entry
    return entry is not None and entry.batch_id > offered.batch_id


def race(found: FoundCatalog, names: Sequence[str], size: Size, *, ledger_tag: bool) -> list[Report]:
    """Let all writers repeat one request with the next batch of each table, and return their reports."""
    drive = partial(_drive, found, names, size, ledger_tag=ledger_tag)
    if size.processes == 1 or is_of_one_process(found.properties):
        return drive(size.writers, Barrier(1))
    shares = [len(range(number, size.writers, size.processes)) for number in range(size.processes)]
    shares = [share for share in shares if share]
    context = multiprocessing.get_context("spawn")  # a fork would copy locks that threads of this process hold
    gate = context.Barrier(len(shares))
    with ProcessPoolExecutor(len(shares), context, _hold, (gate,)) as processes:
        running = [processes.submit(drive, share) for share in shares]
        return [report for process in running for report in process.result()]


def _hold(gate: Barrier) -> None:
    global _gate  # noqa: PLW0603 - how a pool hands a barrier to its processes
    _gate = gate


def _drive(
    found: FoundCatalog,
    names: Sequence[str],
    size: Size,
    writers: int,
    gate: Barrier | None = None,
    *,
    ledger_tag: bool,
) -> list[Report]:
    """Run the writers of one process."""
    gate = gate or _gate
    assert gate is not None
    catalogs = [found.open(create=False) for _ in range(writers)]
    fences = [[fence_on(catalog, name, ledger_tag=ledger_tag) for name in names] for catalog in catalogs]
    gate.wait(START_SECONDS)
    deadline = time.monotonic() + size.seconds
    with ThreadPoolExecutor(writers) as threads:
        return list(threads.map(_write, catalogs, fences, repeat(size.commits), repeat(deadline)))


def _write(catalog: Catalog, fences: Sequence[FencedCommit], commits: int, deadline: float) -> Report:
    sent: list[Sent] = []
    troubles: list[str] = []
    landed = unanswered = 0
    while landed < commits and unanswered < _MOST_UNANSWERED and time.monotonic() < deadline:
        request = caught(partial(_attempt, catalog, fences))
        if isinstance(request, Exception):
            troubles.append(describe(request, catalog.properties))
            unanswered += 1
        else:
            sent.append(request)
            landed += not request.refused_as
            unanswered += request.unknown
    return sent, troubles
