"""What a stream's processes left, as facts for the oracle: rows by DuckDB, files by their footers, a reader's looks."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from proof.keyed_table import live_rows
from proof.oracle import (
    Broken,
    Rows,
    TableFacts,
    batches_contiguous,
    facts_of,
    files_whole,
    reader_honest,
    rows_once,
    untouched,
)
from proof.processes.changed import judge_changes, reader_saw_states, states_of
from proof.processes.checkpoint import PARTITIONS
from proof.processes.harness import Stream
from proof.processes.letters import judge_documents

LOOK_SECONDS = 0.05
Identity = tuple[int, int, int]
"""Of a file: inode, size, time of its last change."""


def local(path: str) -> Path:
    """The file at a location in a table."""
    return Path(urlsplit(path).path)


def read_rows(paths: list[str], columns: tuple[str, str] = ("partition", "offset")) -> Rows:
    """How often each row is in these files, read by DuckDB."""
    if not paths:
        return Counter()
    with duckdb.connect() as connection:
        query = f'select "{columns[0]}", "{columns[1]}", count(*) from read_parquet(?) group by all'  # noqa: S608 - names of ours
        found = connection.execute(query, [[str(local(path)) for path in paths]]).fetchall()
    return Counter({(partition, offset): count for partition, offset, count in found})


def stored(path: str) -> tuple[int, int] | None:
    """Size and rows of a data file; None if it is not there."""
    file = local(path)
    if not file.exists():
        return None
    return file.stat().st_size, int(pq.read_metadata(file).num_rows)


@contextmanager
def looking(look: Callable[[], None], seconds: float, failures: list[str]) -> Iterator[None]:
    """Look all through the block, and once more at its end; looks that fail are added to the failures."""
    done = threading.Event()

    def tried() -> None:
        try:
            look()
        except Exception as error:  # noqa: BLE001 - whatever a reader meets is told
            failures.append(f"{type(error).__name__}: {error}")

    def all_the_while() -> None:
        while not done.wait(seconds):
            tried()

    thread = threading.Thread(target=all_the_while, daemon=True, name="reader")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        tried()


@dataclass(slots=True)
class Reader:
    """Looks at a table again and again while drivers come and go.

    Attributes:
        stream: Whose table.
        looks: The stream's own rows at each head that it saw.
        files: Identity of every file that it saw referenced.
        failures: Looks that failed, which no crash of a writer may cause.
    """

    stream: Stream
    looks: list[Rows] = field(default_factory=list)
    files: dict[str, Identity] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    _last: int | None = None

    def look(self) -> None:
        """Read the table if its head is another one than at the last look."""
        table = self.stream.load()
        head = None if table is None else table.current_snapshot()
        if table is None or head is None or head.snapshot_id == self._last:
            return
        self._last = head.snapshot_id
        paths = list(_live_files(table.io, head.manifests(table.io)))
        for path in paths:
            self.files.setdefault(path, _identity(path))
        rows = read_rows(paths) if self.stream.content.changing is None else live_rows(table, head.snapshot_id)
        self.looks.append(Counter({key: count for key, count in rows.items() if 0 <= key[0] < PARTITIONS}))

    @contextmanager
    def reading(self) -> Iterator["Reader"]:
        """Look all through the block, and once more at its end."""
        with looking(self.look, LOOK_SECONDS, self.failures):
            yield self

    def touched(self) -> list[str]:
        """Files that it saw referenced and that are not what they were."""
        return [path for path, seen in self.files.items() if not local(path).exists() or _identity(path) != seen]


def judge(stream: Stream, foreign: Rows, reader: Reader | None = None, batches: int | None = None) -> list[Broken]:
    """Everything that the oracle says of a stream's table.

    Args:
        stream: The stream.
        foreign: Rows that others have written.
        reader: Who looked meanwhile.
        batches: Batches that should be there; all that the source has, if None.
    """
    facts = stream.facts()
    ids = range(stream.batches if batches is None else batches)
    if stream.content.changing is not None:
        broken = judge_changes(stream, ids, foreign)
    else:
        broken = rows_once(read_rows([file.path for file in facts.files]), stream.keys(ids) + foreign)
    broken += [*batches_contiguous(facts), *files_whole(facts, stored)]
    if not stream.content.has_features:
        broken += judge_documents(stream, ids)
    if reader is not None:
        broken += _judge_looks(stream, reader)
        broken += untouched(reader.touched(), bool)  # nobody here compacts: whatever was referenced stays
    return broken


def _judge_looks(stream: Stream, reader: Reader) -> list[Broken]:
    every = range(stream.batches)
    if stream.content.changing is None:
        return reader_honest(reader.looks, [stream.keys([batch]) for batch in every])
    return reader_saw_states(reader.looks, [Counter(), *(rows for rows, _ in states_of(stream, every))])


def orphans(stream: Stream) -> int:
    """Data files of the stream's table that no retained snapshot references; -1 if there is no table."""
    table = stream.load()
    return -1 if table is None else unreferenced(table, facts_of(table, stream.sink_id))


def unreferenced(table: Table, facts: TableFacts) -> int:
    """Data files under a table's location that no retained snapshot references."""
    known = {local(file.path) for snapshot in facts.snapshots.values() for file in snapshot.files}
    return len(set(local(table.location()).rglob("*.parquet")) - known)


def _identity(path: str) -> Identity:
    status = local(path).stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _live_files(io: FileIO, manifests: list[ManifestFile]) -> Iterator[str]:
    for manifest in manifests:
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
            yield entry.data_file.file_path
