"""Where a scenario of real processes is played, and the oracle's word on what it left."""

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.types import LongType

from lakesink_catalog.tables.tables import create_table
from proof.content import PLAIN, ROWS, Content
from proof.grid.company import FEW_RETRIES, FOREIGN_PARTITION, OneTable
from proof.keyed_table import make_keyed_table
from proof.oracle import (
    Broken,
    Promise,
    Rows,
    TableFacts,
    batches_contiguous,
    ended_well,
    facts_of,
    files_whole,
    rows_once,
    untouched,
)
from proof.processes.changed import judge_changes
from proof.processes.checkpoint import PARTITIONS
from proof.processes.evidence import Reader, local, read_rows, stored
from proof.processes.harness import Stream
from proof.processes.letters import judge_documents
from servers.fault_proxy import FaultProxy, fault_proxy
from testkit.builders import FaultyCatalog
from testkit.rest_catalog import rest_catalog

MAIN = "main"
TIMEOUT_SECONDS = 5.0
"""After which a driver gives an answer up; a busy machine is not to look like a lost one."""


@dataclass(slots=True)
class Stage:
    """One stream, its table, and all that may be done to them.

    Attributes:
        stream: The stream; its drivers reach the catalog through the proxy, if there is one.
        lake: The table, for those who work on it by hand.
        reader: Looks at the table straight.
        branch: Branch that is written.
        proxy: None where drivers open the SQLite catalog themselves.
        content: What the rows were for the first driver.
        foreign: What others have written.
        columns: Columns that others have added.
        code: How the newest driver ended, see `Driver.code`.
    """

    stream: Stream
    lake: OneTable
    reader: Reader
    branch: str
    proxy: FaultProxy | None
    content: Content = PLAIN
    foreign: Rows = field(default_factory=Counter)
    columns: list[str] = field(default_factory=list)
    code: str | None = ""

    def make_table(self) -> None:
        """An empty table; on a branch, one that has a row and the branch."""
        if self.content.changing is not None:
            make_keyed_table(self.lake.catalog, self.stream.table, FEW_RETRIES)
            return
        create_table(self.lake.catalog, self.stream.table, self.content.table, None, FEW_RETRIES)
        if self.branch != MAIN:
            self.append_foreign()
            self.lake.table().manage_snapshots().create_branch(self.lake.head().snapshot_id, self.branch).commit()

    def append_foreign(self) -> None:
        """Another writer's row."""
        row = (FOREIGN_PARTITION, sum(self.foreign.values()))
        columns = [pa.array([value], pa.int64()) for value in row]
        self.lake.table().append(pa.table(columns, schema=ROWS))
        self.foreign[row] += 1

    def add_column(self, name: str) -> None:
        """Another writer's column."""
        with self.lake.table().update_schema() as update:
            update.add_column(name, LongType())
        self.columns.append(name)

    def facts(self) -> TableFacts:
        """What the table shows."""
        return facts_of(self.lake.table(), self.stream.sink_id, self.branch)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a scenario has to end.

    Attributes:
        refuses: Code of the refusal that the protocol asks for; empty if the stream runs to its end.
        left: Where that refusal leaves every source partition: rows below this offset are in the table.
        letters: So many more batches have their dead letters by then.
    """

    refuses: str = ""
    left: int = 0
    letters: int = 0


@contextmanager
def stage(folder: Path, stream: Mapping[str, Any], *, over_http: bool = False, branch: str = MAIN) -> Iterator[Stage]:
    """A table in a catalog of its own; nothing of it is left afterwards.

    Args:
        folder: Made here and removed.
        stream: Fields of the `Stream`.
        over_http: Drivers use a REST catalog behind a proxy.
        branch: Branch that is written.
    """
    folder.mkdir(parents=True)
    try:
        with ExitStack() as stack:
            direct = Stream(folder, **stream)
            database = FaultyCatalog("lake", **{name: direct.properties[name] for name in ("uri", "warehouse")})
            database.create_namespace_if_not_exists("demo")
            stack.callback(database.engine.dispose)
            proxy = _proxy(stack, database) if over_http else None
            through = direct if proxy is None else replace(direct, catalog=_over_rest(proxy))
            lake = OneTable(folder, database, direct.table)
            found = Stage(through, lake, Reader(direct), branch, proxy, direct.content)
            found.make_table()
            yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def judge(at: Stage, ending: Ending) -> list[Broken]:
    """What the oracle says of a stage once all drivers have ended."""
    facts = at.facts()
    refused = bool(ending.refuses) and at.code == ending.refuses
    end = ending.left if refused else at.stream.batches * at.stream.rows
    if at.content.changing is not None:
        broken = judge_changes(at.stream, range(end // at.stream.rows), at.foreign)
    else:
        keys = ((partition, offset) for partition in range(PARTITIONS) for offset in range(end))
        expected = Counter(key for key in keys if not at.content.is_unfit(key))
        found = read_rows([file.path for file in facts.files if _stored(file.path) == (file.size_bytes, file.rows)])
        broken = rows_once(found, expected + at.foreign)
    broken += [*batches_contiguous(facts), *files_whole(facts, _stored), *untouched(at.reader.touched(), bool)]
    batches = range(end // at.stream.rows + ending.letters) if at.content.aside_every else ()
    broken += judge_documents(replace(at.stream, content=at.content), batches, foreign=at.columns)
    if ending.refuses and at.code is None:
        broken.append(Broken(Promise.DECISIONS_ARE_RIGHT, f"it went on where the protocol says {ending.refuses}"))
    return broken + ended_well(at.code, [ending.refuses])


def _proxy(stack: ExitStack, database: FaultyCatalog) -> FaultProxy:
    uri, _ = stack.enter_context(rest_catalog(database))
    return stack.enter_context(fault_proxy(uri))


def _over_rest(proxy: FaultProxy) -> dict[str, str]:
    return {"type": "rest", "uri": proxy.uri, "lakesink.http-timeout-seconds": str(TIMEOUT_SECONDS)}


def _stored(path: str) -> tuple[int, int] | None:
    """As `stored`; a file whose footer cannot be read has no rows."""
    try:
        return stored(path)
    except pa.ArrowInvalid:
        return local(path).stat().st_size, 0
