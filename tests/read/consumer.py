"""A consumer that follows a sink without Spark: it counts each row of each batch that it was given."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.parquet as pq

from lakesink.read.batch_files import BatchFiles, files_of
from lakesink.read.follow import batches_between, unread_batches
from lakesink.read.position import Position, parse_offset
from lakesink.read.steps import SinkBatches, behind
from testkit.builders import TABLE, Lake

EVENTS = SinkBatches("events", "main")


@dataclass(slots=True)
class Consumer:
    """Reads what is new, and keeps its position as Spark does: as JSON."""

    lake: Lake
    sink: SinkBatches = EVENTS
    position: Position | None = None
    rows: "Counter[tuple[int, int]]" = field(default_factory=Counter)

    def poll(self) -> list[int]:
        """Read all new batches; their ids."""
        table = self.lake.table()
        start = self.position or self.sink.beginning(TABLE, str(table.metadata.table_uuid))
        past, found = unread_batches(table, TABLE, self.sink, start)
        if not found.batches:
            return []
        end = behind(past, start, found.batches)
        self.read(start, end)
        self.position = parse_offset(end.to_offset())
        return [batch.batch_id for batch in found.batches]

    def read(self, start: Position, end: Position) -> list[BatchFiles]:
        """Read the batches between two positions."""
        table = self.lake.table()
        past, batches = batches_between(table, TABLE, self.sink, start, end)
        files = files_of(table, past, batches)
        for one in files:
            self.rows += _rows(one)
        return files


def _rows(files: BatchFiles) -> "Counter[tuple[int, int]]":
    found: Counter[tuple[int, int]] = Counter()
    for file in files.data:
        path = Path(urlsplit(file.path).path)
        assert path.stat().st_size == file.file_size_bytes
        read = pq.read_table(path, columns=["batch", "position"]).to_pylist()
        assert len(read) == file.record_count
        found.update((row["batch"], row["position"]) for row in read)
    return found
