"""Starts real drivers, kills, stops and continues them, and hands what they leave to the oracle.

Drivers are forked off one process that has imported everything, so that a start takes a few hundredths of a second; the
processes are as real as any other, and die as such.
"""

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from pyiceberg.table import Table

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.failpoints import VARIABLE
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.errors import CatalogError
from proof.content import PLAIN, Content
from proof.oracle import Rows, TableFacts, facts_of
from proof.processes.child import Orders, Report, forked

PATIENCE_SECONDS = 60.0
PRELOADED = ["__main__", "proof.processes.child"]
PRELOADED += ["pyiceberg.catalog.sql", "pyiceberg.catalog.rest", "pyiceberg.io.pyarrow"]

_starts = multiprocessing.get_context("forkserver")
_starts.set_forkserver_preload(PRELOADED)


@dataclass(slots=True)
class Driver:
    """A driver under way. Use `Stream.driver`, which leaves none behind.

    Attributes:
        process: The process.
        reports: What it has come to, so far as was asked for by `wait`, `landed` or `report`.
    """

    process: BaseProcess
    _inbox: Connection
    reports: list[Report] = field(default_factory=list)

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self.process.pid is not None
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing if it is gone."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> int:
        """SIGKILL, now; the moment, on the machine's monotonic clock."""
        at_ns = time.monotonic_ns()
        self.signal(signal.SIGKILL)
        self.process.join(PATIENCE_SECONDS)
        return at_ns

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int | None:
        """Its exit code, negative if a signal ended it; None if it does not end in time."""
        self.process.join(seconds)
        self._read()
        return self.process.exitcode

    def go_on(self, seconds: float = PATIENCE_SECONDS) -> int | None:
        """SIGCONT, as often as a failpoint stops it, until it has ended; its exit code as in `wait`."""
        deadline = time.monotonic() + seconds
        while self.process.exitcode is None and time.monotonic() < deadline:
            if self.is_stopped():
                self.signal(signal.SIGCONT)
            self.process.join(0.01)
        return self.wait(0)

    def is_stopped(self) -> bool:
        """True if it has got a SIGSTOP, and no SIGCONT since."""
        with suppress(FileNotFoundError, ProcessLookupError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        return False

    def wait_until_stopped(self, seconds: float = PATIENCE_SECONDS) -> bool:
        """Wait for a failpoint's SIGSTOP; False if it ended without one, or does not come to it."""
        deadline = time.monotonic() + seconds
        while self.process.exitcode is None and time.monotonic() < deadline:
            if self.is_stopped():
                return True
            time.sleep(0.005)
        return False

    def wait_for(self, path: Path, seconds: float = PATIENCE_SECONDS) -> bool:
        """Wait for the file of a failpoint's pause; False if it ended without, or does not come to it."""
        deadline = time.monotonic() + seconds
        while self.process.exitcode is None and time.monotonic() < deadline:
            if path.exists():
                return True
            time.sleep(0.005)
        return False

    @property
    def code(self) -> str | None:
        """Code of the error that stopped it; None if it ended well; empty if it did not come to say."""
        self._read()
        last = self.reports[-1] if self.reports else None
        if last is None or last.event == "batch":
            return ""
        return last.code if last.event == "stopped" else None

    def _read(self) -> None:
        with suppress(EOFError, ConnectionResetError):
            while not self._inbox.closed and self._inbox.poll():
                self.reports.append(self._inbox.recv())


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream of numbered rows into one table.

    Attributes:
        root: A folder of its own: checkpoint, log, and a catalog if none is given.
        catalog: Properties of the catalog; None for a SQLite file under `root`.
        batches: Batches that the source has.
        rows: Rows of each source partition in a batch.
        sink_id: Sink id.
        table: Table identifier.
        options: More options of the stream.
        environment: Variables of its drivers.
        modules: Imported by its drivers first, for mutants.
        content: What the rows are.
        replays: True if its drivers replay the dead letters of its batches.
    """

    root: Path
    catalog: Mapping[str, str] | None = None
    batches: int = 3
    rows: int = 2
    sink_id: str = "numbers"
    table: str = "demo.numbers"
    options: Mapping[str, Any] = field(default_factory=lambda: {"create_table": True})
    environment: Mapping[str, str] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    content: Content = PLAIN
    replays: bool = False

    @property
    def orders(self) -> Orders:
        """What its drivers are told."""
        return Orders(
            checkpoint=str(self.root / "checkpoint"),
            catalog=self.properties,
            table=self.table,
            sink_id=self.sink_id,
            batches=self.batches,
            rows=self.rows,
            options=self.options,
            environment=self.environment,
            modules=self.modules,
            content=self.content,
            replays=self.replays,
        )

    @property
    def properties(self) -> Mapping[str, str]:
        """Properties of its catalog."""
        own = {"uri": f"sqlite:///{self.root}/catalog.db", "warehouse": f"file://{self.root}/warehouse"}
        return {"type": "sql", **own} if self.catalog is None else self.catalog

    @property
    def log(self) -> Path:
        """What its drivers printed."""
        return self.root / "driver.log"

    @contextmanager
    def driver(self, failpoints: str = "", **environment: str) -> Iterator[Driver]:
        """A driver under way; it does not outlive the block.

        Args:
            failpoints: As in `LAKESINK_FAILPOINTS`.
            environment: More variables.
        """
        (self.root / "warehouse").mkdir(parents=True, exist_ok=True)
        variables = {**self.environment, VARIABLE: failpoints, **environment}
        inbox, outbox = _starts.Pipe(duplex=False)
        told = replace(self.orders, environment=variables)
        process = _starts.Process(target=forked, args=(told, str(self.log), outbox), daemon=True)
        process.start()
        outbox.close()
        driver = Driver(process, inbox)
        try:
            yield driver
        finally:
            driver.kill()
            driver.wait()
            inbox.close()

    def run(self, failpoints: str = "", **environment: str) -> Driver:
        """A driver from its start to its end, or death, or the end of patience; `Driver.code` says which."""
        with self.driver(failpoints, **environment) as driver:
            driver.wait()
            return driver

    def load(self) -> Table | None:
        """The table; None if there is none yet."""
        try:
            return load_table(connect("lake", self.properties), self.table)
        except CatalogError as error:
            if error.code != "LAKESINK_TABLE_MISSING":
                raise
            return None

    def facts(self) -> TableFacts:
        """What the table shows."""
        table = self.load()
        return TableFacts(None, {}) if table is None else facts_of(table, self.sink_id)

    def keys(self, batches: Iterable[int] | None = None) -> Rows:
        """Rows of these batches that fit the table, else of all that the source has."""
        found: Rows = Counter()
        for batch_id in range(self.batches) if batches is None else batches:
            found += self.orders.source.keys(batch_id)
        return found
