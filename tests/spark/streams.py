"""Builders of real streams: files with distinct times, queries into a sink, and what to do to their checkpoints."""

import io
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import SparkRuntimeException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from lakesink.spark.foreach_batch import BatchFunction
from lakesink.spark.query_plan import functions_of, runs_python, sources_of
from lakesink.spark.report import Reporter
from lakesink.spark.rows.on_driver import only_drops_rows
from lakesink.spark.rows.transport import encode_for_transport
from tests.spark.directory_sink import DirectorySink

LOST_METADATA = ("[LAKESINK_NEW_CHECKPOINT]", "STREAMING_CHECKPOINT_MISSING_METADATA_FILE")
"""Who may notice that a checkpoint has lost its query id: lakesink, or Spark itself from version 4.3."""

SCHEMA = "id long, text string"
FIRST_FILE_TIME = 1_700_000_000


def write_files(folder: Path, count: int, *, first: int = 0, rows: int = 10) -> None:
    """Files `first`, `first + 1`, ... of `rows` rows each, with times that put them in this order."""
    folder.mkdir(exist_ok=True)
    for number in range(first, first + count):
        path = folder / f"{number:03}.json"
        hidden = folder / f".{path.name}"  # Spark must not see it before its time is set
        lines = [json.dumps({"id": number * rows + row, "text": f"t{row}"}) for row in range(rows)]
        hidden.write_text("\n".join(lines) + "\n")
        os.utime(hidden, (FIRST_FILE_TIME + number, FIRST_FILE_TIME + number))
        hidden.rename(path)


def file_stream(spark: SparkSession, folder: Path, *, files: int = 1) -> DataFrame:
    """The files of a folder, so many a batch."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files).json(str(folder))


def counter_stream(spark: SparkSession) -> DataFrame:
    """Ten numbered rows a batch, one second a batch apart; its offsets count its rows, as Kafka's do."""
    options = {"rowsPerBatch": 10, "startTimestamp": FIRST_FILE_TIME * 1000, "advanceMillisPerBatch": 1000}
    rows = spark.readStream.format("rate-micro-batch").options(**options).load()
    return rows.selectExpr("value as id", "timestamp as at")


def run_batches(stream: DataStreamWriter, last: int) -> None:
    """Run an endless stream until it has committed the batch `last`."""
    query = stream.trigger(processingTime="0 seconds").start()
    while query.lastProgress is None or query.lastProgress["batchId"] < last:
        assert query.isActive, query.exception()
        time.sleep(0.05)
    query.stop()
    assert query.exception() is None


def writer(
    rows: DataFrame, sink: DirectorySink, checkpoint: Path, *, wrap: Callable[[Any], Any] | None = None
) -> DataStreamWriter:
    """The stream as `lakesink.stream` builds it, into a directory sink."""
    sources = tuple(sources_of(rows))
    place, functions = str(checkpoint), functions_of(rows)
    travelling, transport = encode_for_transport(rows)
    function: Any = BatchFunction(
        rows.sparkSession,
        Reporter("lines", "lines"),
        place,
        sources,
        transport,
        functions,
        runs_python(rows),
        only_drops_rows(rows),
        lambda _session: sink,
    )
    started = travelling.writeStream.outputMode("append").option("checkpointLocation", str(checkpoint))
    return started.foreachBatch(function if wrap is None else wrap(function))


def run(stream: DataStreamWriter) -> None:
    """Run a stream over all there is."""
    query = stream.trigger(availableNow=True).start()
    query.awaitTermination()


def failure(stream: DataStreamWriter) -> str:
    """What a person reads of the error that ends a stream: lakesink's lines in the log, and Spark's exception."""
    logger, log = logging.getLogger("lakesink"), io.StringIO()
    handler = logging.StreamHandler(log)
    logger.addHandler(handler)
    try:
        run(stream)
    except (StreamingQueryException, SparkRuntimeException) as error:
        return f"{log.getvalue()}\n{error}"
    finally:
        logger.removeHandler(handler)
    raise AssertionError("the stream did not fail")


def forget_commits(checkpoint: Path, above: int, *, offsets: bool = False) -> None:
    """Make Spark run batches above one again: the newest from its offsets, with `offsets` also those below it."""
    for folder in ("commits", "offsets") if offsets else ("commits",):
        for path in (checkpoint / folder).iterdir():
            if path.name.isdigit() and int(path.name) > above:
                path.unlink()
                (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


def ids(rows: Iterable[Mapping[str, Any]]) -> list[int]:
    """The ids in rows, sorted."""
    return sorted(row["id"] for row in rows)


def stopped_at(paused: Path, query: Any) -> None:
    """Stop a query that waits at a failpoint until this file is gone: its commit may end."""
    while not paused.exists():
        assert query.isActive, query.exception()
        time.sleep(0.02)
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    while query.isActive:  # Spark says so before it interrupts the batch
        time.sleep(0.02)
    paused.unlink()
    stopping.join(60)
    assert query.exception() is None
