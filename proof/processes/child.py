"""A real driver without Spark: the product's sink, writer and catalog over a checkpoint that behaves as Spark's.

``python -m proof.processes.child ORDERS [--with MODULE]...`` runs the JSON of `Orders` until the source is used up, and
prints what it comes to, a line of JSON each. `LAKESINK_FAILPOINTS` says where it dies. The modules are imported first:
a mutant puts its bug in that way. `proof.processes.harness` forks drivers off a process that has imported everything.
"""

import importlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lakesink.rows.letters import SUFFIX
from lakesink.settings.relations import Entry
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.side.replay_loop import ReplayLoop
from lakesink_catalog.connect.catalog import CatalogConfig
from lakesink_catalog.failpoints import reached
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.outcome import Outcome
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Vote, Votes, receipts_of
from lakesink_tools.testing.stream import shipped
from proof.content import PLAIN, Content
from proof.processes.checkpoint import PARTITIONS, DiskCheckpoint, NumberedRows
from proof.replaying import append_by, repair
from testkit.tracing import trace_sinks

STOPPED = 3
"""Exit code of a driver that ended with an error."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What a driver is told.

    Attributes:
        checkpoint: Its folder.
        catalog: Properties of the catalog.
        catalog_name: Its name.
        table: Table identifier.
        sink_id: Sink id.
        batches: Batches that the source has.
        rows: Rows of each source partition in a batch.
        options: More options of the stream.
        environment: Variables to set, failpoints among them.
        modules: Imported before anything else is done.
        content: What the rows are.
        replays: True to replay the dead letters of the stream, instead of its batches.
    """

    checkpoint: str
    catalog: Mapping[str, str]
    catalog_name: str = "lake"
    table: str = "demo.numbers"
    sink_id: str = "numbers"
    batches: int = 3
    rows: int = 2
    options: Mapping[str, Any] = field(default_factory=lambda: {"create_table": True})
    environment: Mapping[str, str] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    content: Content = PLAIN
    replays: bool = False

    @property
    def source(self) -> NumberedRows:
        """What the driver reads."""
        return NumberedRows(self.batches, self.rows, self.content)


@dataclass(frozen=True, slots=True)
class Report:
    """What a driver has come to.

    Attributes:
        event: ``batch`` for a batch that is in the table, ``ended`` or ``stopped`` for the driver.
        at_ns: When, on the machine's monotonic clock.
        batch: The batch.
        outcome: The outcome's class, of a batch.
        code: Code of the error that stopped it, or the name of its class.
        text: The error.
    """

    event: str
    at_ns: int
    batch: int = -1
    outcome: str = ""
    code: str = ""
    text: str = ""


Tell = Callable[[Report], None]


def drive(orders: Orders, tell: Tell) -> None:
    """Run the stream to its end.

    Raises:
        LakesinkError: A batch was refused or could not be completed.
        ConcurrentStreamLogUpdate: Another driver runs the same query.
    """
    checkpoint = DiskCheckpoint(Path(orders.checkpoint), orders.source)
    query_id = checkpoint.begin()
    sink = open_sink(orders)
    for batch_id in checkpoint.planned():
        outcome = _run(sink, checkpoint, query_id, batch_id)
        tell(Report("batch", time.monotonic_ns(), batch_id, type(outcome).__name__))
        checkpoint.commit(batch_id)


def replay(orders: Orders) -> None:
    """Repair and replay all dead letters of the stream.

    Raises:
        LakesinkError: They were refused or could not be completed.
    """
    found, content = CatalogConfig(orders.catalog_name, orders.catalog).find(), orders.content
    settings = Settings.parse(content.of_replays, entry=Entry.REPLAY)
    append = append_by(partial(IcebergSink, open_catalog=found.open))
    names = orders.table, f"{orders.table}{SUFFIX}"
    ReplayLoop(*names, settings, found.open, found.open(), lambda letters, _: repair(letters, content)[1], append).run()


def open_sink(orders: Orders) -> IcebergSink:
    """The product, as `lakesink.stream` puts it together."""
    given = {**orders.content.options, **orders.options, "sink_id": orders.sink_id, "checkpoint": orders.checkpoint}
    settings = Settings.parse(given)
    return IcebergSink(
        table=orders.table,
        key=SinkKey(orders.sink_id, settings.branch),
        open_catalog=CatalogConfig(orders.catalog_name, orders.catalog).find().open,
        settings=settings,
        schema=orders.content.schema,
    )


def run_orders(orders: Orders, tell: Tell) -> int:
    """Obey, say how it ended, and return the exit code."""
    os.environ.update(orders.environment)
    trace_sinks()
    for module in orders.modules:
        importlib.import_module(module)
    try:
        replay(orders) if orders.replays else drive(orders, tell)
    except Exception as error:  # noqa: BLE001 - whatever stops a driver is told
        code = error.code if isinstance(error, LakesinkError) else type(error).__name__
        tell(Report("stopped", time.monotonic_ns(), code=code, text=str(error)))
        return STOPPED
    tell(Report("ended", time.monotonic_ns()))
    return 0


def forked(orders: Orders, log: str, reports: Connection) -> None:
    """`run_orders` in a process that the harness forked; what is printed goes into the log."""
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    logging.basicConfig(level=logging.INFO, format=f"%(relativeCreated)d {os.getpid()} %(message)s", stream=sys.stdout)
    code = run_orders(orders, reports.send)
    reports.close()
    logging.shutdown()
    os._exit(code)


def _run(sink: IcebergSink, checkpoint: DiskCheckpoint, query_id: str, batch_id: int) -> Outcome:
    reached("batch-start", batch_id)
    batch = checkpoint.batch(query_id, batch_id)
    job = partial(_job, checkpoint.source, batch_id)
    outcome = run_batch(batch, [sink], job)[sink.name]
    sink.maintain()
    return outcome


def _job(source: NumberedRows, batch_id: int, writers: Mapping[str, TaskWriter]) -> Votes:
    """A task for each source partition, by a writer of its own."""
    cast = []
    for task in range(PARTITIONS):
        receipts: dict[str, bytes] = {}
        for name, writer in writers.items():
            written = shipped(writer).write(task, iter([source.arrow(batch_id, task)]))
            receipts |= receipts_of(name, writer, written)
        cast.append(Vote(task, receipts))
    return Votes(PARTITIONS, cast)


def _print(report: Report) -> None:
    print(json.dumps(asdict(report)), flush=True)


def main(arguments: Sequence[str]) -> int:
    """The command line, see the module."""
    orders, *rest = arguments
    modules = tuple(rest[1::2])
    assert set(rest[::2]) <= {"--with"}, rest
    told = json.loads(orders)
    content = Content(**told.pop("content", {}))
    return run_orders(Orders(**{**told, "modules": (*told.get("modules", ()), *modules)}, content=content), _print)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
