"""A real directory, a storage that can fail on demand, and streams that write real files. No Spark.

Each row contains its batch, its position in the batch, and the run that wrote it, so that a reader can count each row.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import lakesink
from lakesink.sinks.directory.directory_sink import FileSink
from lakesink.sinks.storage import LocalStorage
from lakesink_protocol.coordinator import Write, run_batch
from lakesink_protocol.errors import BatchRefused
from lakesink_protocol.identity import Batch, stream_batch
from lakesink_protocol.outcome import Outcome
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Votes
from testkit.builders import ROWS, Chance, offered

Apply = Callable[[], None]
Fault = Callable[[Apply], None]


class FaultyStorage(LocalStorage):
    """A local directory; the next markers meet the next faults.

    Attributes:
        faults: Taken from the front, one for each new marker; without a fault the marker is created.
        late: Creations that `arrives_late` held back.
        reads: Files that were read, and folders that were listed.
        looked_at: Files whose size was requested.
        rounds: Number of files in each read of several files.
    """

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.late: list[Apply] = []
        self.reads: list[str] = []
        self.rounds: list[int] = []
        self.looked_at: list[str] = []

    def create(self, location: str, data: bytes) -> None:
        def apply() -> None:
            super(FaultyStorage, self).create(location, data)

        return self.faults.pop(0)(apply) if self.faults and "/commits/" in location else apply()

    def read(self, location: str) -> bytes | None:
        self.reads.append(location)
        return super().read(location)

    def read_all(self, locations: Sequence[str]) -> list[bytes | None]:
        self.rounds.append(len(locations))
        return super().read_all(locations)

    def listing(self, folder: str) -> dict[str, int]:
        self.reads.append(folder)
        return super().listing(folder)

    def size(self, location: str) -> int | None:
        self.looked_at.append(location)
        return super().size(location)

    def arrives_late(self, apply: Apply) -> None:
        """A fault: the request is accepted and not answered; the test applies it later."""
        self.late.append(apply)
        raise TimeoutError("no answer")


def lost_answer(apply: Apply) -> None:
    """A fault: the request is applied, but its answer is lost."""
    apply()
    raise TimeoutError("no answer")


def lost_request(_: Apply) -> None:
    """A fault: the request is never applied."""
    raise ConnectionError("nobody there")


@dataclass(slots=True)
class Stream:
    """A stream into a directory. Each `run` is a new driver without memory."""

    directory: Path
    sink_id: str = "clicks"
    query: str = "query-1"
    options: dict[str, Any] = field(default_factory=dict)
    storage: FaultyStorage = field(default_factory=FaultyStorage)
    chance: Chance = field(default_factory=Chance)
    writes: int = 0

    def sink(self, **options: Any) -> FileSink:
        """The sink of a driver that has just started."""
        chosen = {**self.options, **options}
        return FileSink(self.directory, self.sink_id, storage=self.storage, effects=self.chance.effects(), **chosen)

    def batch(self, batch_id: int, *, start: int | None = None, end: int | None = None) -> Batch:
        """Batch n reads offsets n to n+1, unless another range is given."""
        start = batch_id if start is None else start
        return stream_batch(batch_id, self.query, start=[start], end=[start + 1 if end is None else end])

    def run(self, batch: Batch | int, rows: int = 3, tasks: int = 1, **options: Any) -> Outcome:
        """Run one batch with a driver that has just started."""
        return self.run_with(self.sink(**options), batch, rows, tasks)

    def overrule(self, batch: Batch | int, does: str = "commit") -> Outcome:
        """Run a batch that is refused, then accept it with a word that the refusal offers."""
        try:
            self.run(batch)
        except BatchRefused as refused:
            return self.run(batch, accept=offered(refused)[does])
        raise AssertionError("it was not refused")

    def run_with(self, sink: FileSink, batch: Batch | int, rows: int = 3, tasks: int = 1) -> Outcome:
        batch = self.batch(batch) if isinstance(batch, int) else batch
        return run_batch(batch, [sink], self.write(batch, rows, tasks))[sink.name]

    def write(self, batch: Batch, rows: int = 3, tasks: int = 1) -> Write:
        """The job: real files by the real writer, `rows` in each task."""

        def job(writers: Mapping[str, TaskWriter]) -> Votes:
            self.writes += 1
            told = int(json.loads(batch.offsets)[0]) - 1
            parts = [self._rows(told, range(task * rows, (task + 1) * rows)) for task in range(tasks)]
            return Votes.in_order(
                {
                    name: [writer.write(task, iter(part)) for task, part in enumerate(parts)]
                    for name, writer in writers.items()
                }
            )

        return job

    def _rows(self, told: int, positions: range) -> list[pa.RecordBatch]:
        columns = [[told] * len(positions), list(positions), [self.writes] * len(positions)]
        return [pa.record_batch([pa.array(values, pa.int64()) for values in columns], schema=ROWS)] if positions else []

    @property
    def root(self) -> Path:
        """The sink's own folder."""
        return self.directory / "_lakesink" / self.sink_id

    def marker_path(self, number: int) -> Path:
        return self.root / "commits" / f"{number:020d}.json"

    def markers(self) -> list[dict[str, Any]]:
        """All markers, as JSON, in the order of their names."""
        return [json.loads(path.read_bytes()) for path in sorted((self.root / "commits").glob("*.json"))]

    def batches(self) -> list[int]:
        return [marker["batch_id"] for marker in self.markers()]

    def part_files(self) -> list[Path]:
        return sorted((self.root / "parts").glob("*"))

    def counted(self) -> Counter[tuple[int, int]]:
        """The number of each committed row of each batch, read by DuckDB from the listed files."""
        paths = lakesink.committed_files(self.directory, sink_id=self.sink_id)
        assert len(paths) == len(set(paths))
        if not paths:
            return Counter()
        read = duckdb.read_parquet(paths, hive_partitioning=False)
        return Counter(read.project("batch, position").fetchall())
