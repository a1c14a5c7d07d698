"""Two-phase commit with nothing but a file system: a batch is a folder, and ONE rename shows it.

Tasks write files into a pending folder that no reader looks at. A list of the files that were voted for is put beside
them: from there on the batch can be committed by anybody. The commit renames the folder. That is one atomic step, and
the name that it gives is the batch's own: who comes second finds it taken. This needs a POSIX file system: object
stores have no rename, and for those there is `lakesink.stream_files`.
"""

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakesink import AlreadyCommitted, BatchRefused, Committed, Outcome, Reason, WriteError
from lakesink.sinks.record_folder import PreparedDirectory
from lakesink.testing import reached
from lakesink.two_phase import Durability, Payload, TwoPhaseCommitSink
from lakesink_catalog.identity import Batch

LIST = "files.json"


@dataclass(frozen=True)
class FileWriter:
    """Runs in executors. Plain data: it is pickled."""

    folder: str

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        """Write one task's rows into a file of a new name; the receipt names it."""
        rows = [row for batch in batches for row in batch.to_pylist()]
        folder, name = Path(self.folder), f"{task}-{uuid.uuid4()}.json"
        folder.mkdir(parents=True, exist_ok=True)  # an attempt that comes after the commit finds it renamed
        with (folder / name).open("x") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
            file.flush()
            os.fsync(file.fileno())  # durable before it is voted for
        return json.dumps({"task": task, "file": name, "rows": len(rows)}).encode()


@dataclass(frozen=True)
class Open:
    """A batch that may be written, and its pending folder."""

    batch: Batch
    writer: FileWriter
    prepared_log: PreparedDirectory


@dataclass(frozen=True)
class Pending:
    """A pending folder that is complete."""

    folder: str
    rows: int
    recovered: bool = False

    @property
    def payload(self) -> Payload:
        """For the prepared record."""
        return {"folder": self.folder, "rows": self.rows}


class FolderSink(TwoPhaseCommitSink[Open, Pending]):
    """Writes every batch of a stream into a folder of its own, once and whole.

    Args:
        root: Folder on the machine's own file system, for one stream.
    """

    name = "folders"
    durability = Durability.PREPARED_SURVIVES

    def __init__(self, root: Path) -> None:
        self.pending, self.committed = root / "pending", root / "committed"
        self.log = PreparedDirectory(f"{root}/prepared")  # records which folder is complete

    def begin(self, batch: Batch) -> Open | AlreadyCommitted:
        """Ask the committed folders before a row is read."""
        if self._has(batch):
            return AlreadyCommitted(None)
        return Open(batch, FileWriter(str(self.pending / f"{batch.batch_id}-{uuid.uuid4()}")), self.log)

    def pre_commit(self, transaction: Open, receipts: Sequence[bytes]) -> Pending:
        """List the files that were voted for; others in the folder are of attempts that do not count."""
        folder, batch = Path(transaction.writer.folder), transaction.batch
        folder.mkdir(parents=True, exist_ok=True)  # also where no task had a row
        votes = _votes(receipts, folder)
        told = {"query_id": batch.query_id, "fingerprint": batch.fingerprint, "files": [vote["file"] for vote in votes]}
        with (folder / LIST).open("x") as file:
            json.dump(told, file)
            file.flush()
            os.fsync(file.fileno())
        return Pending(folder.name, sum(vote["rows"] for vote in votes))

    def recover(self, transaction: Open, payload: Payload) -> Pending | None:
        """What an earlier run prepared, if it is still there."""
        folder, rows = payload.get("folder"), payload.get("rows")
        if not isinstance(folder, str) or not isinstance(rows, int) or "/" in folder:
            return None
        own = folder.startswith(f"{transaction.batch.batch_id}-")
        return Pending(folder, rows, recovered=True) if own and (self.pending / folder / LIST).exists() else None

    def commit(self, transaction: Open, prepared: Pending) -> Outcome:
        """One rename. A name that is taken says that the batch is in, whoever did it."""
        batch = transaction.batch
        self.committed.mkdir(exist_ok=True)
        try:
            (self.pending / prepared.folder).rename(self._folder(batch.batch_id))
        except OSError:
            if not self._has(batch):
                raise
            return AlreadyCommitted(None)
        reached("example.renamed", batch.batch_id)
        return Committed(batch.batch_id, prepared.rows, recovered=prepared.recovered)

    def abort(self, transaction: Open) -> None:
        """Nothing: what is pending may be what another driver has prepared."""

    def rows(self) -> list[tuple[int, ...]]:
        """What a reader sees: the listed files of committed folders."""
        lists = sorted(self.committed.glob(f"*/{LIST}"))
        files = [path.parent / name for path in lists for name in json.loads(path.read_text())["files"]]
        return [tuple(json.loads(line).values()) for file in files for line in file.read_text().splitlines()]

    def _has(self, batch: Batch) -> bool:
        """Whether the batch is in, or comes next; anything else is a story that a human must hear."""
        last = max((int(folder.name) for folder in self.committed.glob("*")), default=-1)
        if batch.batch_id > last + 1:
            raise _refused(Reason.GAP, batch, f"does not follow batch {last}")
        if last < 0:
            return False
        near = json.loads((self._folder(min(batch.batch_id, last)) / LIST).read_text())
        if near["query_id"] != batch.query_id:
            raise _refused(Reason.NEW_CHECKPOINT, batch, "comes from another checkpoint")
        if batch.batch_id <= last and near["fingerprint"] != batch.fingerprint:
            raise _refused(Reason.BATCH_CHANGED, batch, "came back with other data")
        return batch.batch_id <= last

    def _folder(self, batch_id: int) -> Path:
        return self.committed / f"{batch_id:08d}"


def _votes(receipts: Sequence[bytes], folder: Path) -> list[dict[str, Any]]:
    """One sound vote of every task, each for a file that is here: a vote of another batch names another folder's."""
    try:
        votes = sorted(map(json.loads, receipts), key=lambda vote: vote["task"])
        names = {path.name for path in folder.iterdir()}
        here = all(vote["file"] in names and isinstance(vote["rows"], int) for vote in votes)
        sound = here and [vote["task"] for vote in votes] == list(range(len(votes)))
    except (ValueError, TypeError, KeyError):
        sound = False
    if not sound:
        raise WriteError("RECEIPT_REJECTED", "A receipt was rejected.", data="Nothing is in.", action="Start again.")
    return votes


def _refused(reason: Reason, batch: Batch, why: str) -> BatchRefused:
    what = f"Batch {batch.batch_id} {why}."
    return BatchRefused(reason, what, data="Nothing of it is in a committed folder.", action="Restore the checkpoint.")
