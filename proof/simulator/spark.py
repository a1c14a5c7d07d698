"""Spark as the sink meets it: a checkpoint, a source that replays, tasks that are tried again, and the query's loop."""

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from lakesink.checkpoint.folder import Checkpoint
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.identity import Batch
from lakesink_protocol.outcome import Outcome
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Vote, Votes, receipts_of
from proof.content import Content
from proof.oracle import Key, Rows
from proof.simulator.store import SimulatedStore
from proof.simulator.tasks import SimulatedSink
from proof.simulator.world import World

TOPIC = "t"
ATTEMPTS_OF_A_TASK = 4
Offsets = tuple[int, ...]
"""Offset of each source partition."""


class ConcurrentQuery(Exception):
    """Spark's own word where another run has written a log's entry first."""


class JobFailed(Exception):
    """Spark's own word where a task failed too often."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A batch and what it truly reads.

    Attributes:
        batch: As lakesink is told.
        start: Where it starts.
        end: Where it ends.
    """

    batch: Batch
    start: Offsets
    end: Offsets

    @property
    def rows(self) -> Rows:
        """Its rows."""
        return keys(self.start, self.end)


@dataclass(eq=False)
class SimulatedCheckpoint:
    """Files below one checkpoint; read by lakesink's own `Checkpoint`.

    Attributes:
        world: Chance and scheduler.
        files: Content by path.
        was_cut: True once somebody has deleted from it, whoever may still be running on it.
    """

    world: World
    files: dict[str, bytes] = field(default_factory=dict)
    was_cut: bool = False

    @classmethod
    def new(cls, world: World, start: Offsets) -> "SimulatedCheckpoint":
        """That of a query which has just begun to read at an offset of every partition."""
        query = uuid.UUID(int=world.random.getrandbits(128))
        first = b"\0v1\n" + _offsets_json(start).encode()
        return cls(world, {"metadata": json.dumps({"id": str(query)}).encode(), "sources/0/0": first})

    def read(self, path: str) -> bytes | None:
        """See `CheckpointFiles`."""
        return self.files.get(path)

    def size_bytes(self, path: str) -> int | None:
        """See `CheckpointFiles`."""
        content = self.files.get(path)
        return None if content is None else len(content)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """See `CheckpointFiles`."""
        return self.files[path][start : start + length]

    def is_there(self, uri: str) -> bool:
        """See `CheckpointFiles`: the simulated source has no files."""
        raise AssertionError(uri)

    def names(self, folder: str) -> list[str]:
        """See `CheckpointFiles`."""
        return [path.rpartition("/")[2] for path in self.files if path.rpartition("/")[0] == folder]

    def add(self, path: str, content: bytes) -> None:
        """Create a log's entry, as Spark does: of two that try, one learns that it exists.

        Raises:
            ConcurrentQuery: It exists.
        """
        self.world.pause()
        if path in self.files:
            raise ConcurrentQuery(path)
        self.files[path] = content

    def newest(self, log: str) -> int:
        """Id of the newest entry of a log; -1 if it has none."""
        return max(map(int, self.names(log)), default=-1)

    def end(self, batch_id: int) -> Offsets:
        """Where a batch ends; for -1, where the query began."""
        text = self.files[f"offsets/{batch_id}"] if batch_id >= 0 else self.files["sources/0/0"]
        found = json.loads(text.decode().splitlines()[-1])[TOPIC]
        return tuple(found[partition] for partition in sorted(found))

    @property
    def query_id(self) -> str:
        """Id of its query."""
        return str(json.loads(self.files["metadata"])["id"])

    def agrees_with(self, asked: Asked) -> bool:
        """The batch is of this checkpoint: its query, its offsets."""
        batch = asked.batch
        known = batch.query_id == self.query_id and f"offsets/{batch.batch_id}" in self.files
        return known and (self.end(batch.batch_id - 1), self.end(batch.batch_id)) == (asked.start, asked.end)

    def begins_behind(self, asked: Asked) -> bool:
        """It is of another query, which begins where the batch ends and has committed nothing."""
        is_another = asked.batch.query_id != self.query_id
        return is_another and self.end(-1) == asked.end and self.newest("commits") < 0

    def cut(self, after: int) -> None:
        """Delete what is above a batch from both logs, as `lakesink rewind` does."""
        self.was_cut = True
        for path in list(self.files):
            log, _, name = path.partition("/")
            if log in ("offsets", "commits") and int(name) > after:
                del self.files[path]


@dataclass(frozen=True, slots=True)
class Source:
    """A topic whose records stay where they are, and which ends somewhere.

    Attributes:
        end: Number of records in each partition.
        most: Most records that a batch takes of a partition.
    """

    end: Offsets
    most: int

    def next_end(self, world: World, start: Offsets) -> Offsets:
        """Where a new batch ends, which may be where it starts; at the end of the source it is that."""
        return tuple(
            min(last, offset + world.random.randrange(self.most + 1))
            for offset, last in zip(start, self.end, strict=True)
        )


def keys(start: Offsets, end: Offsets) -> Rows:
    """The rows between two offsets."""
    ranges = enumerate(zip(start, end, strict=True))
    return Counter((partition, offset) for partition, (first, last) in ranges for offset in range(first, last))


@dataclass(eq=False)
class SimulatedJob:
    """One Spark job over a batch's rows: a task a source partition, each perhaps tried more than once.

    Attributes:
        store: Where tasks write.
        rows: Rows of the batch.
        partitions: Number of source partitions, and so of tasks.
        content: What the rows are.
    """

    store: SimulatedStore
    rows: Rows
    partitions: int
    content: Content

    def __call__(self, writers: Mapping[str, TaskWriter]) -> Votes:
        """Run the job; see `lakesink_protocol.coordinator.Write`."""
        [(name, writer)] = writers.items()
        cast = [Vote(task, receipts_of(name, writer, written)) for task, written in self._tasks(writer)]

        self.store.world.random.shuffle(cast)
        return Votes(self.partitions, cast)

    def _tasks(self, writer: TaskWriter) -> Iterator[tuple[int, bytes]]:
        for task in range(self.partitions):
            mine = [key for key in self.rows if key[0] == task]
            yield task, self._task(writer, task, mine)

    def _task(self, writer: TaskWriter, task: int, mine: list[Key]) -> bytes:
        for _ in range(ATTEMPTS_OF_A_TASK):
            with suppress(OSError):
                return self._attempt(writer, task, mine)
        raise JobFailed(f"task {task} failed {ATTEMPTS_OF_A_TASK} times")

    def _attempt(self, writer: TaskWriter, task: int, mine: list[Key]) -> bytes:
        world = self.store.world
        written = writer.write(task, iter([self.content.batch(mine)]))
        if world.strikes("executor lost after upload"):
            raise OSError("executor lost")
        if world.strikes("speculative twin"):
            writer.write(task, iter([self.content.batch(mine)]))
        return written


@dataclass(eq=False)
class SimulatedQuery:
    """One run of a query: Spark's micro-batch loop, from its start to the source's end.

    Attributes:
        checkpoint: Its checkpoint, which other runs may share.
        source: What it reads.
        sink: The sink of this run.
        store: Where tasks write.
        ask: Told of each batch.
        asked: The batch that it is at.
    """

    checkpoint: SimulatedCheckpoint
    source: Source
    sink: SimulatedSink
    store: SimulatedStore
    ask: Callable[[Asked], None]
    asked: Asked | None = None

    def run(self) -> Iterable[Outcome]:
        """Run batches until the source is used up.

        Raises:
            ConcurrentQuery: Another run has written the logs first.
            LakesinkError: The sink's own.
        """
        files, world = self.checkpoint, self.store.world
        reader = Checkpoint(files)
        query_id = reader.query_id()
        newest = files.newest("offsets")
        batch_id = newest if newest > files.newest("commits") else newest + 1
        while True:
            start = files.end(batch_id - 1)
            if f"offsets/{batch_id}" not in files.files:
                if start == self.source.end:
                    return
                files.add(f"offsets/{batch_id}", _log(self.source.next_end(world, start)))
            batch = reader.batch(query_id, batch_id, reader.offsets(batch_id))
            self.asked = Asked(batch, start, files.end(batch_id))
            self.ask(self.asked)
            job = SimulatedJob(self.store, self.asked.rows, len(start), self.sink.tasks.content)
            outcome = run_batch(batch, [self.sink], job)[self.sink.name]
            self.sink.maintain()
            yield outcome
            files.add(f"commits/{batch_id}", b'v1\n{"nextBatchWatermarkMs":0}')
            batch_id += 1


def _offsets_json(offsets: Offsets) -> str:
    return json.dumps({TOPIC: {str(partition): offset for partition, offset in enumerate(offsets)}})


def _log(offsets: Offsets) -> bytes:
    return f'v1\n{{"batchWatermarkMs":0}}\n{_offsets_json(offsets)}'.encode()
