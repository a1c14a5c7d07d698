"""Many processes that commit to one table, each with a sink of its own: what they reach together, and who waits.

Each process writes a small data file and its manifest, and then commits. Only the commit is timed, from its first look
at the table to the catalog's answer; the rate counts everything. Every batch must be there once in the end.
"""

import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.commit_latency import ROWS, fenced, files_of
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table
from lakesink_protocol.errors import CommitUnresolved
from lakesink_protocol.identity import SinkKey, stream_batch
from servers.postgres import USER, postgres_server

TABLE = "bench.crowd"
_PASSWORD = "crowd"  # noqa: S105 - of a server on the loopback that ends with the benchmark
_START_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Share:
    """What one process did.

    Attributes:
        milliseconds: Of each commit.
        failed: Attempts that were not the last of a batch.
        given_up: Batches that ended without a commit.
        began: When it began, of the clock that all processes share, seconds.
        ended: When it was done.
        cpu_seconds: Of the process, while it committed.
    """

    milliseconds: Sequence[float]
    failed: int
    given_up: int
    began: float
    ended: float
    cpu_seconds: float


def commit_all(sink: int, commits: int, properties: Mapping[str, Any]) -> Share:
    """Commit so many batches of one sink, as soon as all processes are ready."""
    fence = replace(fenced(connect("bench", properties), TABLE), key=SinkKey(f"sink-{sink}"))
    times, failed, given_up = [], 0, 0
    _BARRIER[0].wait(_START_SECONDS)
    began, cpu = time.monotonic(), time.process_time()
    for number in range(commits):
        batch = stream_batch(number, f"query-{sink}", start=[number] if number else None, end=[number + 1])
        decision = fence.decide(batch)
        prepared = fence.prepare(decision, files_of(decision.table, batch), schema=decision.table.schema())
        started = time.perf_counter()
        try:
            outcome = fence.commit(batch, prepared)
        except CommitUnresolved:
            given_up += 1
            break
        times.append((time.perf_counter() - started) * 1000)
        failed += getattr(outcome, "attempts", 1) - 1
    return Share(times, failed, given_up, began, time.monotonic(), time.process_time() - cpu)


def run(processes: int, commits: int, properties: Mapping[str, Any]) -> list[Share]:
    """One crowd on a fresh table."""
    catalog = connect("bench", properties)
    create_table(catalog, TABLE, ROWS.schema)
    forks = multiprocessing.get_context("forkserver")  # what all import is imported once
    forks.set_forkserver_preload(["benchmarks.commit_latency"])
    barrier = forks.Barrier(processes)
    with ProcessPoolExecutor(processes, mp_context=forks, initializer=_meet, initargs=(barrier,)) as pool:
        waiting = [pool.submit(commit_all, sink, commits // processes, properties) for sink in range(processes)]
        shares = [one.result() for one in waiting]
    snapshots = catalog.load_table(TABLE).metadata.snapshots
    assert len(snapshots) == sum(len(share.milliseconds) for share in shares), "a batch is missing, or there twice"
    catalog.drop_table(TABLE)
    return shares


_BARRIER: list[Any] = []
"""Of this process, which the pool started."""


def _meet(barrier: Any) -> None:
    _BARRIER.append(barrier)


@contextmanager
def catalog_of(kind: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Properties of a fresh catalog on SQLite or PostgreSQL."""
    own = {"type": "sql", "warehouse": f"file://{folder}"}
    if kind == "sqlite":
        yield {**own, "uri": f"sqlite:///{folder / 'catalog.db'}"}
        return
    with postgres_server(_PASSWORD) as server:
        yield {**own, "uri": f"postgresql+psycopg2://{USER}:{_PASSWORD}@{server.address}"}
