"""Which functions of the product run in one batch, and which files until the commit in the catalog.

The batch is the second of its stream, and the first of its run: the target has a history, and everything is opened. Its
task runs in this process. A file counts if a function of it is called; what imports run does not count.
"""

import inspect
import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any
from unittest.mock import patch

from pyspark import TaskContext
from pyspark.core.rdd import RDD, PipelinedRDD
from pyspark.sql import SparkSession

import lakesink
from lakesink.spark.foreach_batch import BatchFunction
from lakesink.spark.rows import batch_rows
from lakesink.spark.rows.task import RawBytes, read_messages
from lakesink_catalog.connect.catalog import HOME_VARIABLE
from testkit import jvm
from testkit.house import Found, House, counted, largest

BATCHES: Mapping[str, Mapping[str, Any]] = {
    "append": {},
    "upsert": {"mode": "upsert", "keys": "id", "sequence_by": "version"},
}


def executed_in(session: SparkSession, folder: Path) -> "dict[str, Calls]":
    """What runs in an append and in an upsert; the tables are in the embedded catalog."""
    return {name: executed(session, folder, name, options) for name, options in BATCHES.items()}


def measured(ran: "Mapping[str, Calls]", house: House) -> dict[str, Found]:
    """Files that run in each batch until it is committed, and their lines."""
    found: dict[str, Found] = {}
    for name, calls in ran.items():
        lines = {path: count for path, count in house.lines.items() if str(house.root / path) in calls.files}
        found[f"{name}-files"] = counted(lines)
        found[f"{name}-lines"] = sum(lines.values()), largest(lines)
    return found


def measured_by_running(house: House) -> dict[str, Found]:
    """See `measured`; in a session of its own."""
    with TemporaryDirectory() as name, session_of(Path(name)) as session:
        return measured(executed_in(session, Path(name)), house)


def executed(session: SparkSession, folder: Path, name: str, options: Mapping[str, Any]) -> "Calls":
    """What the second batch of a stream calls."""
    source, found = folder / name, list[Calls]()
    source.mkdir()
    process = BatchFunction.__call__

    def profiled(function: BatchFunction, *batch: Any) -> None:
        found.append(Calls())
        with found[-1].seen_from_here():
            process(function, *batch)

    with patch.object(BatchFunction, "__call__", profiled), tasks_run_here():
        for number in range(2):
            rows = [{"id": number + one, "version": number} for one in range(9)]
            (source / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))
            stream = session.readStream.schema("id long, version long").json(str(source))
            place = folder / f"{name}-checkpoint"
            query = lakesink.stream(
                stream, f"demo.{name}", sink_id=name, checkpoint=place, create_table=True, verbose=False, **options
            )
            query.trigger(availableNow=True).start().awaitTermination()
    assert read_messages.__code__.co_filename in found[-1].files, "the task ran in another process"
    return found[-1]


class Calls:
    """The functions that a thread, and those that it starts, call.

    Attributes:
        functions: File and qualified name of each, in the order of their first calls.
        files: Those of the functions that are called until a catalog has committed.
    """

    def __init__(self) -> None:
        self.functions: dict[tuple[str, str], None] = {}
        self.files: set[str] = set()
        self.committed = False

    @contextmanager
    def seen_from_here(self) -> Iterator[None]:
        threading.setprofile(self._look)
        sys.setprofile(self._look)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _look(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "return" and code.co_name == "commit_table":
            self.committed = True
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED:  # no module, and no class
            self.functions.setdefault((code.co_filename, code.co_qualname))
            if not self.committed:
                self.files.add(code.co_filename)


@contextmanager
def tasks_run_here() -> Iterator[None]:
    """A job sends its rows to this process, where its tasks run."""
    collected = batch_rows.collected

    def collected_here(encoded: Any) -> list[bytes]:
        if not isinstance(encoded, PipelinedRDD):
            return collected(encoded)
        messages: RDD[bytes] = RDD(encoded._prev_jrdd, encoded.ctx, RawBytes())  # noqa: SLF001 - what the task reads
        rows = collected(messages)
        with patch.object(TaskContext, "_taskContext", None):
            TaskContext._getOrCreate()._partitionId = 0  # noqa: SLF001 - as a worker does
            return list(encoded.func(0, rows))

    with patch.object(batch_rows, "collected", collected_here):
        yield


@contextmanager
def session_of(folder: Path) -> Iterator[SparkSession]:
    """A session with one core; it and the embedded catalog write below a folder."""
    os.environ.setdefault(jvm.VARIABLE, jvm.options())
    conf: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
    }
    session = SparkSession.builder.master("local[1]").config(map=conf).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        with patch.dict(os.environ, {HOME_VARIABLE: str(folder / "home")}):
            yield session
    finally:
        session.stop()
