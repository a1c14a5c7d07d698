"""What metrics cost a stream, in pairs of one run: with them, scraped every five seconds, and without them.

The rows of W1 give processor time; the scraper runs in the same process, so its own counts too. Tiny batches, which the
driver writes, give the time of a batch: every second one of a stream is counted, odd or even by turns, and neighbours
are pairs. The time in the listener is the part that a batch waits for, in processor time, which a busy machine does not
stretch.
"""

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.request import urlopen

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.history import BATCH_ROWS, WARM_UP, tiny_batches
from benchmarks.result import Cell, Goal, Ratio, Result
from benchmarks.session import catalog_properties, session
from benchmarks.sinks import LAKESINK, Sink, Target
from benchmarks.throughput import ROUNDS, Bench, workloads
from lakesink.observe.metrics import Stream
from lakesink_protocol.events import BatchStarted, Event
from servers.ports import free_port

MOST_PROCESSOR, MOST_MS = 1.02, 2.0
_SCRAPED_EVERY_SECONDS = 5.0


def measure(
    folder: Path, say: Callable[[str], None], *, rounds: int = ROUNDS, scale: float = 1.0, batches: int = 90
) -> Result:
    """Run both in turn, and in turned order."""
    (folder / "warehouse").mkdir(parents=True)
    spark = session()
    port = free_port()
    sinks = (LAKESINK, Sink("with metrics", partial(_writer, port), partial(_start, port)))
    [typed] = (one for one in workloads(scale) if one.key == "W1/13")
    processor: dict[str, list[float]] = {sink.name: [] for sink in sinks}
    for sink, run in Bench(spark, folder).measure(replace(typed, key="metrics", sinks=sinks), rounds):
        processor[sink.name].append(run.usage.cpu_seconds)
        say(f"metrics: {sink.name} {run.usage.cpu_seconds:.2f} s of processor")
    without, counted, spent = list[float](), list[float](), list[float]()
    for number in range(rounds + 1):
        target = Target(
            folder / f"tiny-{number}", f"bench.tiny_{number}", catalog_properties(folder), {"create_table": True}
        )
        with _every_second_counted(spent, left_out=number % 2):
            progress = tiny_batches(spark, sinks[1], target, batches)
        times = {one["batchId"]: float(one["durationMs"]["addBatch"]) for one in progress}
        pairs = [
            batch_id
            for batch_id in times
            if batch_id % 2 == number % 2 and batch_id > WARM_UP and batch_id + 1 in times
        ]
        if number:  # the first stream only warms what they share
            without += [times[batch_id] for batch_id in pairs]
            counted += [times[batch_id + 1] for batch_id in pairs]
        say(f"metrics: {len(without)} pairs of batches")
    spark.stop()
    raw = {"processor": processor, "without": without, "counted": counted}
    return report(list(processor.values()), (without, counted), 2 * sum(spent) / ((rounds + 1) * batches), raw)


def report(
    processor: Sequence[Sequence[float]], times: Sequence[Sequence[float]], listened: float, raw: Any = None
) -> Result:
    """Both without metrics and with them, and the bounds judged by medians of the pairs."""
    cpu = Ratio.of(processor[1], processor[0])
    more = statistics.median(after - before for before, after in zip(*times, strict=True))
    (cpu_without, cpu_with), (ms_without, ms_with) = (map(statistics.median, one) for one in (processor, times))
    rows: tuple[tuple[Cell, ...], ...] = (
        ("W1/13, processor seconds", round(cpu_without, 2), round(cpu_with, 2), str(cpu)),
        (f"a batch of {BATCH_ROWS} rows, ms", round(ms_without, 1), round(ms_with, 1), f"{more:+.1f} ms a pair"),
        (f"a batch of {BATCH_ROWS} rows, ms in the listener", 0, round(listened, 3), ""),
    )
    goals = (
        Goal("processor time of W1 with metrics", MOST_PROCESSOR, cpu.median, at_least=False),
        Goal("a small batch with metrics takes more", MOST_MS, more, at_least=False, unit=" ms"),
    )
    heads = ("what", "without", "with", "pairs")
    return Result("metrics", "what metrics cost", heads, rows, goals, raw, rounds=len(processor[0]))


@contextmanager
def _every_second_counted(spent: list[float], left_out: int) -> Iterator[None]:
    """Leave out the events of odd batches, or of even ones; append the milliseconds of each call of the listener."""
    call, counts = Stream.__call__, True

    def timed(stream: Stream, event: Event) -> None:
        nonlocal counts
        counts = event.batch_id % 2 != left_out if isinstance(event, BatchStarted) else counts
        if counts:
            started = time.thread_time()
            call(stream, event)
            spent.append((time.thread_time() - started) * 1000)

    with patch.object(Stream, "__call__", timed):
        yield


def _writer(port: int, rows: DataFrame, target: Target) -> DataStreamWriter:
    return LAKESINK.writer(rows, replace(target, options={**target.options, "metrics": port}))


def _start(port: int, writer: DataStreamWriter, target: Target) -> StreamingQuery:
    query = LAKESINK.start(writer, target)

    def scrape() -> None:
        while query.isActive:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                assert b"lakesink_batches_total" in answer.read()
            time.sleep(_SCRAPED_EVERY_SECONDS)

    threading.Thread(target=scrape, daemon=True).start()
    return query
