"""Where a cell happens: a SQLite catalog of its own, or a table of a REST server behind a proxy of its own."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

from lakesink_catalog.connect.catalog import connect
from proof import content
from proof.grid import cells
from proof.grid.cells import BATCHES, Blow, Cell, Company, Position
from proof.grid.company import Others
from proof.grid.trace_log import TraceLog
from proof.processes.harness import Stream
from servers.fault_proxy import FaultProxy, fault_proxy
from servers.jars import JarsMissing
from servers.rest_reference import rest_reference
from testkit.builders import FaultyCatalog
from testkit.rest_catalog import rest_catalog
from testkit.tracing import VARIABLE as TRACE

SHORT_SECONDS, LONG_SECONDS = "5", "20"


@dataclass(frozen=True, slots=True)
class Server:
    """A REST catalog that runs.

    Attributes:
        kind: What it is, for the figures.
        uri: Where.
        database: The SQLite file under it.
        warehouse: Its warehouse, as a URI.
        is_java: True for Iceberg's own.
    """

    kind: str
    uri: str
    database: Path
    warehouse: str
    is_java: bool


@dataclass(slots=True)
class Place:
    """Where one cell happens.

    Attributes:
        stream: The stream; its drivers reach the catalog through the proxy, if there is one.
        others: Who else is there.
        proxy: None for a SQLite catalog.
        trace: What its drivers did.
        killed_ns: When a driver got its SIGKILL, on the machine's monotonic clock; 0 if none has.
    """

    stream: Stream
    others: Others
    proxy: FaultProxy | None
    trace: TraceLog
    killed_ns: int = 0


@contextmanager
def server(folder: Path) -> Iterator[Server]:
    """Iceberg's reference server; where its jars cannot be had, the same protocol over PyIceberg's SQL catalog."""
    folder.mkdir(parents=True)
    database, warehouse = folder / "catalog.db", f"file://{folder}/warehouse"
    try:
        with rest_reference(folder) as java:
            connect("lake", {"type": "rest", "uri": java.uri}).create_namespace("demo")
            yield Server("Iceberg REST reference server", java.uri, java.database, java.warehouse, is_java=True)
        return
    except JarsMissing:
        backing = SqlCatalog("lake", uri=f"sqlite:///{database}", warehouse=warehouse)
    backing.create_namespace("demo")
    with rest_catalog(backing) as (uri, _):
        yield Server("Python REST service", uri, database, warehouse, is_java=False)


SHORT_TURNS = "proof.processes.short_turns"


@contextmanager
def place(cell: Cell, folder: Path, rest: Callable[[], Server], modules: tuple[str, ...] = ()) -> Iterator[Place]:
    """A table that is not made yet, in a catalog that is; nothing of it is left afterwards.

    Args:
        cell: The cell.
        folder: Made here and removed.
        rest: The REST server; asked for only if the cell needs it.
        modules: For the drivers, see `Stream.modules`.
    """
    folder.mkdir(parents=True)
    trace = TraceLog(folder / "trace")
    environment = {TRACE: str(folder / "trace")}
    try:
        if cell.over_http:
            with fault_proxy(rest().uri) as proxy:
                stream, others = _over_rest(cell, folder, rest(), proxy)
                yield Place(
                    replace(stream, modules=(SHORT_TURNS, *modules), environment=environment), others, proxy, trace
                )
        else:
            stream, others = _over_sqlite(cell, folder)
            yield Place(replace(stream, modules=(SHORT_TURNS, *modules), environment=environment), others, None, trace)
    finally:
        trace.close()
        shutil.rmtree(folder, ignore_errors=True)


def _over_sqlite(cell: Cell, folder: Path) -> tuple[Stream, Others]:
    stream = _with_content(Stream(folder, batches=BATCHES), cell)
    (folder / "warehouse").mkdir()
    database = FaultyCatalog("lake", **{name: stream.properties[name] for name in ("uri", "warehouse")})
    others = Others(cell.company, database, database, stream.table, over_rest=False, content=stream.content)
    return stream, others


def _over_rest(cell: Cell, folder: Path, rest: Server, proxy: FaultProxy) -> tuple[Stream, Others]:
    seconds = SHORT_SECONDS if cell.mostly_waits else LONG_SECONDS
    through = {"type": "rest", "uri": proxy.uri, "lakesink.http-timeout-seconds": seconds}
    table = f"demo.t{folder.name}"
    database = FaultyCatalog("lake", uri=f"sqlite:///{rest.database}", warehouse=rest.warehouse)
    direct = connect("lake", {"type": "rest", "uri": rest.uri})
    stream = _with_content(Stream(folder, through, batches=BATCHES, table=table), cell)
    others = Others(cell.company, direct, database, table, over_rest=rest.is_java, content=stream.content)
    return stream, others


def _with_content(stream: Stream, cell: Cell) -> Stream:
    """The table of all but plain rows has to be there, with its key, and the columns to begin with."""
    if cell.kind == cells.ROWS:
        return stream
    of_kind, rows = _CONTENTS[cell.kind]
    options = {"maintenance": {"min_input_files": 2}} if cell.kind in cells.MAINTAINED else {}
    return replace(stream, content=of_kind, rows=rows, options=options)


_CONTENTS = {
    cells.DOCUMENTS: (content.EVERYTHING, content.ROWS_OF_EVERYTHING),
    cells.UPSERTS: (content.UPSERTED, content.ROWS_OF_UPSERTED),
    cells.MAINTAINED_ROWS: (content.PLAIN, 2),
    cells.MAINTAINED_UPSERTS: (content.UPSERTED, content.ROWS_OF_UPSERTED),
    cells.KEYED_DOCUMENTS: (content.KEYED_DOCUMENTS, content.ROWS_OF_UPSERTED),
    cells.EVENTS: (content.EVENTS, content.ROWS_OF_UPSERTED),
}
"""What the rows of a stream of each kind are, and how many a batch has in a partition of the source."""


def stream_makes_the_table(cell: Cell) -> bool:
    """True where the stream's first batch creates the table; not where a driver fails until its attempts run out."""
    alone = cell.position is Position.FIRST and cell.company is Company.ALONE
    return alone and not cell.kind and cell.fault not in (Blow.EXCEPTION, Blow.DISK_FULL, Blow.DISK_FULL_LATER)
