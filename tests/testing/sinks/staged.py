"""What the small sinks of these tests share: staged files, sound votes, and a ledger that is a list of entries."""

import json
import uuid
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from sqlite_sink import Open, SqliteSink, StagingWriter

from lakesink import AlreadyCommitted, BatchRefused, Reason
from lakesink_protocol.identity import Batch


class Entry(NamedTuple):
    """A committed batch."""

    batch_id: int
    query_id: str
    fingerprint: str

    @classmethod
    def of(cls, batch: Batch) -> "Entry":
        return cls(batch.batch_id, batch.query_id, batch.fingerprint)


class StagedSink(SqliteSink):
    """Tasks and votes are those of the example; a subclass commits, and tells its entries and its rows."""

    def __init__(self, database: Path, table: str, sink_id: str, staging: Path) -> None:
        super().__init__(database, table, sink_id, staging)
        self.folder = database.parent

    @abstractmethod
    def entries(self) -> Sequence[Entry]:
        """The committed batches."""

    @abstractmethod
    def rows(self) -> list[tuple[int, int]]:
        """What a reader sees."""

    def begin(self, batch: Batch) -> Open | AlreadyCommitted:
        self.staging.mkdir(parents=True, exist_ok=True)
        if has(self.entries(), batch):
            return AlreadyCommitted(None)
        return Open(batch, StagingWriter(str(self.staging), self._stem(batch)), self.log)

    def staged_rows(self, names: Sequence[str]) -> list[tuple[int, int]]:
        return [row for name in names for row in rows_of(self.staging / name)]


def has(entries: Sequence[Entry], batch: Batch) -> bool:
    """Whether the batch is there or comes next; anything else is refused."""
    known = {entry.batch_id: entry for entry in entries}
    newest = max(known, default=-1)
    if batch.batch_id > newest + 1:
        raise _refused(Reason.GAP)
    near = known.get(min(batch.batch_id, newest))
    if near is not None and near.query_id != batch.query_id:
        raise _refused(Reason.NEW_CHECKPOINT)
    if batch.batch_id <= newest and known[batch.batch_id].fingerprint != batch.fingerprint:
        raise _refused(Reason.BATCH_CHANGED)
    return batch.batch_id <= newest


def rows_of(staged: Path) -> Iterator[tuple[int, int]]:
    with pa.ipc.open_stream(staged.read_bytes()) as batches:
        for batch in batches:
            columns = batch.to_pydict()
            yield from zip(columns["batch"], columns["position"], strict=True)


def put_temporary(folder: Path, content: object) -> Path:
    """A file with a name of its own, whole."""
    folder.mkdir(exist_ok=True)
    path = folder / f".{uuid.uuid4()}"
    path.write_text(json.dumps(content))
    return path


def _refused(reason: Reason) -> BatchRefused:
    return BatchRefused(reason, "It does not follow.", data="Nothing of it is in.", action="Restore the checkpoint.")
