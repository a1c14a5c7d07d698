"""A small, real two-phase sink: JSON lines in a folder, made visible by one marker file a batch."""

import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakesink_protocol.errors import BatchRefused, Reason, WriteError
from lakesink_protocol.identity import Batch
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.two_phase import ClusteredBy, Durability, Payload, PreparedLog, TwoPhaseCommitSink


@dataclass(frozen=True)
class LinesWriter:
    folder: str
    fail_on: int | None = None
    clustered_by: ClusteredBy = ()
    by_range: bool = False

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        rows = [row for batch in batches for row in batch.to_pylist()]
        if self.fail_on is not None and any(self.fail_on in row.values() for row in rows):
            raise WriteError("TEST_VALUE", f"value {self.fail_on} is refused", data="Not in.", action="Leave it out.")
        path = Path(self.folder) / f"{uuid.uuid4()}.jsonl"
        path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))
        return json.dumps({"task": task, "path": str(path), "rows": len(rows), "process": os.getpid()}).encode()


@dataclass(frozen=True)
class LinesTransaction:
    batch: Batch
    writer: LinesWriter
    prepared_log: PreparedLog


@dataclass(frozen=True)
class LinesPrepared:
    payload: Payload
    recovered: bool = False


class DirectorySink(TwoPhaseCommitSink[LinesTransaction, LinesPrepared]):
    name = "lines"
    durability = Durability.PREPARED_SURVIVES

    def __init__(self, folder: Path, fail_on: int | None = None) -> None:
        self.folder = folder
        self.fail_on = fail_on
        self.clustered_by: ClusteredBy = ()
        self.begun: list[Batch] = []
        self.processes: list[set[int]] = []
        self.tasks: list[int] = []
        for part in ("data", "committed", "prepared"):
            (folder / part).mkdir(parents=True, exist_ok=True)

    def begin(self, batch: Batch) -> LinesTransaction | AlreadyCommitted:
        self.begun.append(batch)
        marker = self._marker(batch)
        if marker.exists():
            committed = json.loads(marker.read_text())
            if committed["query"] != batch.query_id:
                raise _refused(Reason.NEW_CHECKPOINT, batch)
            if committed["fingerprint"] != batch.fingerprint:
                raise _refused(Reason.BATCH_CHANGED, batch)
            return AlreadyCommitted(None)
        return LinesTransaction(batch, LinesWriter(str(self.folder / "data"), self.fail_on, self.clustered_by), self)

    def recover(self, transaction: LinesTransaction, payload: Payload) -> LinesPrepared:  # noqa: ARG002 - the seam's
        return LinesPrepared(payload, recovered=True)

    def pre_commit(self, transaction: LinesTransaction, receipts: Sequence[bytes]) -> LinesPrepared:  # noqa: ARG002 - as above
        votes = [json.loads(receipt) for receipt in receipts]
        assert [vote["task"] for vote in votes] == list(range(len(votes)))
        self.tasks.append(len(votes))
        self.processes.append({vote["process"] for vote in votes})
        return LinesPrepared({"files": [vote["path"] for vote in votes], "rows": sum(vote["rows"] for vote in votes)})

    def commit(self, transaction: LinesTransaction, prepared: LinesPrepared) -> Outcome:
        batch = transaction.batch
        draft = self.folder / f"{uuid.uuid4()}"
        draft.write_text(json.dumps({"query": batch.query_id, "fingerprint": batch.fingerprint, **prepared.payload}))
        draft.rename(self._marker(batch))
        files = prepared.payload["files"]
        return Committed(
            1, prepared.payload["rows"], len(files), 0, recovered=prepared.recovered, accepted=None, attempts=1
        )

    def abort(self, transaction: LinesTransaction) -> None:
        pass

    def find(self, batch: Batch) -> Mapping[str, Payload] | None:
        record = self._record(batch)
        return json.loads(record.read_text()) if record.exists() else None

    def put(self, batch: Batch, payloads: Mapping[str, Payload]) -> None:
        self._record(batch).write_text(json.dumps(payloads))

    def landed(self, batch: Batch) -> None:
        self._record(batch).unlink(missing_ok=True)

    def rows(self) -> list[dict[str, Any]]:
        """Rows of all committed batches, in the order of the batches."""
        markers = sorted((self.folder / "committed").iterdir(), key=lambda path: int(path.stem))
        paths = [Path(path) for marker in markers for path in json.loads(marker.read_text())["files"]]
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]

    def batches(self) -> list[int]:
        """Ids of all committed batches."""
        return sorted(int(path.stem) for path in (self.folder / "committed").iterdir())

    def files_written(self) -> int:
        """Data files that tasks have closed, committed or not."""
        return len(list((self.folder / "data").iterdir()))

    def _marker(self, batch: Batch) -> Path:
        return self.folder / "committed" / f"{batch.batch_id}.json"

    def _record(self, batch: Batch) -> Path:
        return self.folder / "prepared" / f"{batch.batch_id}-{batch.fingerprint}.json"


def _refused(reason: Reason, batch: Batch) -> BatchRefused:
    return BatchRefused(reason, f"batch {batch.batch_id}", data="Not written.", action="Look.")
