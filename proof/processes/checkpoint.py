"""A checkpoint on disk as Spark keeps it, and a source of numbered rows that is read through it.

``offsets/<n>`` is there before batch n runs and ``commits/<n>`` after it; whoever finds an entry that it is about to
write has a rival, and stops. A start replays the newest batch that is not committed. The source looks like Kafka's.
"""

import json
import os
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from lakesink.checkpoint.folder import Checkpoint, FsspecFiles
from lakesink_protocol.identity import Batch
from proof.content import PLAIN, Content
from proof.oracle import Key, Rows

PARTITIONS = 2


class ConcurrentStreamLogUpdate(Exception):
    """Spark's own word where another driver has written a log's entry first."""


@dataclass(frozen=True, slots=True)
class NumberedRows:
    """A source of two partitions that never forgets: batch n reads the same rows of each whenever it is asked for.

    Attributes:
        batches: How many it has.
        rows: Rows of each partition in a batch.
        content: What the rows are.
    """

    batches: int
    rows: int
    content: Content = PLAIN

    def offsets(self, batch_id: int) -> dict[str, dict[str, int]]:
        """Where a batch ends; for -1, where the source begins."""
        return {"numbers": {str(partition): (batch_id + 1) * self.rows for partition in range(PARTITIONS)}}

    def keys(self, batch_id: int) -> Rows:
        """The rows of a batch that fit its table."""
        return Counter(key for key in self._keys(batch_id) if not self.content.is_unfit(key))

    def unfit(self, batch_id: int) -> Rows:
        """The rows of a batch that are put aside."""
        return Counter(filter(self.content.is_unfit, self._keys(batch_id)))

    def arrow(self, batch_id: int, partition: int) -> pa.RecordBatch:
        """The rows of a batch in one partition, as Arrow."""
        return self.content.batch([key for key in self._keys(batch_id) if key[0] == partition])

    def _keys(self, batch_id: int) -> list[Key]:
        span = range(batch_id * self.rows, (batch_id + 1) * self.rows)
        return [(partition, offset) for partition in range(PARTITIONS) for offset in span]


@dataclass(frozen=True, slots=True)
class DiskCheckpoint:
    """The checkpoint of one query.

    Attributes:
        folder: Where it is; made by the first driver.
        source: What the query reads.
    """

    folder: Path
    source: NumberedRows

    def begin(self) -> str:
        """The query's id, given by its first driver."""
        for name in ("offsets", "commits", "sources/0"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        if not (self.folder / "metadata").exists():
            self._add("metadata", json.dumps({"id": str(uuid.uuid4())}))
        if not (self.folder / "sources/0/0").exists():
            self._add("sources/0/0", "\0v1\n" + json.dumps(self.source.offsets(-1)))
        return str(json.loads((self.folder / "metadata").read_text())["id"])

    def planned(self) -> Iterator[int]:
        """Ids of the batches that are left, each with its offsets logged: first the newest that is not committed.

        Raises:
            ConcurrentStreamLogUpdate: Another driver has planned the batch.
        """
        newest = self.newest("offsets")
        if newest > self.newest("commits"):
            yield newest
        for batch_id in range(newest + 1, self.source.batches):
            self._add(f"offsets/{batch_id}", "v1\n{}\n" + json.dumps(self.source.offsets(batch_id)) + "\n")
            yield batch_id

    def batch(self, query_id: str, batch_id: int) -> Batch:
        """A planned batch as lakesink knows it, read by its own reader."""
        checkpoint = Checkpoint(FsspecFiles(str(self.folder)))
        return checkpoint.batch(query_id, batch_id, checkpoint.offsets(batch_id))

    def commit(self, batch_id: int) -> None:
        """The batch is done.

        Raises:
            ConcurrentStreamLogUpdate: Another driver has done it.
        """
        self._add(f"commits/{batch_id}", 'v1\n{"nextBatchWatermarkMs":0}\n')

    def newest(self, log: str) -> int:
        """Id of the newest entry of a log; -1 if it has none."""
        folder = self.folder / log
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def _add(self, name: str, text: str) -> None:
        """Whole or not at all, and never over another's."""
        staged = self.folder / f".{uuid.uuid4()}"
        staged.write_text(text)
        try:
            os.link(staged, self.folder / name)
        except FileExistsError:
            raise ConcurrentStreamLogUpdate(name) from None
        finally:
            staged.unlink()
