"""What a commit needs of the world: clock, sleep, chance, threads and listeners, injected."""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.table import Table

from lakesink_catalog.commit.clock import modified_ms
from lakesink_catalog.commit.prepared import SNAPSHOT_IDS
from lakesink_catalog.connect.turns import turn_at
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.manifests.copying import AtOnce
from lakesink_protocol import events

AT_ONCE = 16


def at_once(function: Callable[[Any], Any], things: Sequence[Any]) -> Iterator[Any]:
    """The function's results. It runs in parallel, because each call waits for the storage."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(function, things)


def beside(function: Callable[[Any], Any], things: Iterable[Any]) -> Iterator[Any]:
    """The function's results. It runs for one thing after the other, while the caller makes the next one."""
    with ThreadPoolExecutor(1) as pool:
        submitted = (pool.submit(function, thing) for thing in things)
        yield from (one.result() for one, _ in pairwise(chain(submitted, [Future()])))  # one runs, and one waits


@dataclass(frozen=True, slots=True)
class Effects:
    """Clock, sleep, randomness, threads and listeners, injected so that tests and simulators control them.

    Attributes:
        jitter: A number in [0, 1).
        new_snapshot_id: A random id of `SNAPSHOT_IDS`.
        storage_time_ms: The storage's own time of a file; None if the storage does not report one.
        turn: The turn of one attempt to commit to a table, see `turn_at`.
    """

    now_ms: Callable[[], int] = field(default=lambda: time.time_ns() // 1_000_000)
    monotonic_ms: Callable[[], int] = field(default=lambda: time.monotonic_ns() // 1_000_000)
    sleep_ms: Callable[[float], None] = field(default=lambda wait: time.sleep(wait / 1000))
    jitter: Callable[[], float] = field(default=lambda: secrets.randbelow(1000) / 1000)
    new_snapshot_id: Callable[[], int] = lambda: SNAPSHOT_IDS.start + secrets.randbelow(len(SNAPSHOT_IDS))
    beside: Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]] = field(default=beside)
    at_once: AtOnce = field(default=at_once)
    storage_time_ms: Callable[[FileIO, str], int | None] = field(default=modified_ms)
    turn: Callable[[Table, events.Listener], AbstractContextManager[None]] = field(default=turn_at)
    emit: events.Listeners = LISTENERS
