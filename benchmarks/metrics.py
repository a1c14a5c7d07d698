"""What metrics cost a stream, in pairs of one run: with them, scraped every five seconds, and without them.

The rows of W1 give processor time, and tiny batches, which the driver writes, the time of a batch. The scraper runs in
the same process, so its own time counts as that of the metrics. The time in the listener is the part that a batch waits
for; it is processor time of the thread, which a busy machine does not stretch.
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

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.history import BATCH_ROWS, WARM_UP, tiny_batches
from benchmarks.result import Cell, Goal, Ratio, Result
from benchmarks.session import catalog_properties, session
from benchmarks.sinks import LAKESINK, Sink, Target
from benchmarks.throughput import ROUNDS, Bench, workloads
from lakesink.observe.metrics import Stream
from lakesink_protocol.events import Event
from servers.ports import free_port

MOST_PROCESSOR, MOST_MS = 1.02, 2.0
_SCRAPED_EVERY_SECONDS = 5.0


def measure(
    folder: Path, say: Callable[[str], None], *, rounds: int = ROUNDS, scale: float = 1.0, batches: int = 60
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
    times: dict[str, list[float]] = {sink.name: [] for sink in sinks}
    spent: list[float] = []
    for number in range(rounds + 1):
        for sink in sinks if number % 2 else sinks[::-1]:
            with _listener_timed(spent):
                milliseconds = _tiny(spark, folder, sink, f"tiny_{number}_{sinks.index(sink)}", batches)
            say(f"metrics: {sink.name} {milliseconds:.1f} ms a batch")
            times[sink.name] += [milliseconds] if number else []  # the first round only warms what they share
    spark.stop()
    listened = sum(spent) / ((rounds + 1) * batches)
    return report(list(processor.values()), list(times.values()), listened, {"processor": processor, "ms": times})


def report(
    processor: Sequence[Sequence[float]], times: Sequence[Sequence[float]], listened: float, raw: Any = None
) -> Result:
    """Both without metrics and with them, and the bounds judged by medians of the pairs."""
    cpu, batch = (Ratio.of(one[1], one[0]) for one in (processor, times))
    more = statistics.median(after - before for before, after in zip(*times, strict=True))
    (cpu_without, cpu_with), (ms_without, ms_with) = (map(statistics.median, one) for one in (processor, times))
    rows: tuple[tuple[Cell, ...], ...] = (
        ("W1/13, processor seconds", round(cpu_without, 2), round(cpu_with, 2), str(cpu)),
        (f"a batch of {BATCH_ROWS} rows, ms", round(ms_without, 1), round(ms_with, 1), str(batch)),
        (f"a batch of {BATCH_ROWS} rows, ms in the listener", 0, round(listened, 3), ""),
    )
    goals = (
        Goal("processor time of W1 with metrics", MOST_PROCESSOR, cpu.median, at_least=False),
        Goal("a small batch with metrics takes more", MOST_MS, more, at_least=False, unit=" ms"),
    )
    heads = ("what", "without", "with", "ratio")
    return Result("metrics", "what metrics cost", heads, rows, goals, raw, rounds=len(processor[0]))


@contextmanager
def _listener_timed(spent: list[float]) -> Iterator[None]:
    """Append the milliseconds of each call of the listener."""
    call = Stream.__call__

    def timed(stream: Stream, event: Event) -> None:
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


def _tiny(spark: SparkSession, folder: Path, sink: Sink, name: str, batches: int) -> float:
    """Milliseconds in the sink of the median batch after the first few."""
    target = Target(folder / name, f"bench.{name}", catalog_properties(folder), {"sink_id": name, "create_table": True})
    progress = tiny_batches(spark, sink, target, batches)[WARM_UP:]
    return float(statistics.median(one["durationMs"]["addBatch"] for one in progress))
