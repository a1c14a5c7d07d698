"""Tasks of a batch in the place of the shipped writers: what they write, leave, put aside and vote for."""

import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TypeVar
from uuid import uuid4

import pyarrow as pa

from lakesink.decode.news import News, NewsFinder
from lakesink.parquet.locations import new_location
from lakesink.rows.letters import payload_digest
from lakesink.rows.plan import WritePlan
from lakesink.rows.schema import Primitive, Struct, parse_schema
from lakesink.rows.side_rows import SidePlan, digest_sum
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.transaction import IcebergTransaction
from lakesink.task.task import ParquetTaskWriter
from lakesink_protocol.change import ContentFile
from lakesink_protocol.identity import Batch
from lakesink_protocol.measures import DEAD_LETTERS, Tally
from lakesink_protocol.outcome import AlreadyCommitted
from lakesink_protocol.quality import Quality
from lakesink_protocol.receipt import LeftRows, Receipt, encode
from lakesink_protocol.two_phase import TaskWriter
from proof.content import LARGE_SIZE, SIZE, Content
from proof.oracle import Key
from proof.simulator.store import SimulatedStore
from proof.simulator.uploads import UploadingWriter
from proof.simulator.world import World

_LENGTH_BYTES = 4
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Tasks:
    """What all tasks of one driver share.

    Attributes:
        store: Where they write.
        content: What the rows are.
    """

    store: SimulatedStore
    content: Content

    def writer(self, plan: WritePlan, letters: SidePlan | None) -> TaskWriter:
        """A writer of rows under a plan."""
        return SimulatedWriter(self, plan) if letters is None else RoutingSimulatedWriter(self, plan, letters)

    def put_rows(self, plan: WritePlan, task: int, part: Sequence[Key]) -> ContentFile:
        """A data file of these rows, without statistics."""
        path = new_location(plan, (), task, ())
        content = json.dumps(sorted(part)).encode()
        self.store.note_columns(path, plan.schema_json)
        if self.content.follows:
            self.store.lost[path] = tuple(self._without_column(plan, part))
        self.store.put(path, content, Counter(part))
        return file_receipt(plan, path, len(content), len(part))

    def put_letters(self, plan: WritePlan, task: int, part: Sequence[Key]) -> ContentFile:
        """The same of dead letters."""
        path, content = new_location(plan, (), task, ()), json.dumps(sorted(part)).encode()
        self.store.put(path, content, Counter(part))
        return file_receipt(plan, path, len(content), len(part))

    def _without_column(self, plan: WritePlan, part: Sequence[Key]) -> Iterator[str]:
        """Values that a file under this plan cannot have: it has no column for them, or a narrow one."""
        types = {one.name: one.type for one in _struct(plan).fields}
        for key in part:
            document = self.content.document(key)
            yield from (f"{name} of {key}" for name in document if name not in types)
            if document[SIZE] == LARGE_SIZE and types.get(SIZE) != Primitive("long"):
                yield f"{SIZE} of {key}"


@dataclass(frozen=True, slots=True)
class SimulatedWriter:
    """Writes one task's rows; see `lakesink_protocol.two_phase.TaskWriter`."""

    tasks: Tasks
    plan: WritePlan

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        """Write rows; returns the encoded receipt."""
        return self._write(task, self._keys(batches))

    def _keys(self, batches: Iterator[pa.RecordBatch]) -> list[Key]:
        return [key for batch in batches for key in self.tasks.content.keys(batch)]

    def _write(self, task: int, keys: Sequence[Key], aside: int = 0) -> bytes:
        news, left = self._news(keys)
        written = [key for key in keys if key not in left]
        parts = parts_of(self.tasks.store.world, written)
        files = tuple(self.tasks.put_rows(self.plan, task, part) for part in parts)
        return encode(
            Receipt(
                task=task,
                rows=len(keys) + aside,
                files=files,
                schema_id=self.plan.schema_id,
                quality=Quality(Tally({DEAD_LETTERS: aside})),
                premises=self.plan.premises,
                left=self._leave(task, left),
                news=news.to_json(),
            )
        )

    def _is_unfit(self, key: Key) -> bool:
        """It cannot be written; nor can a document with a key that is to get no column, see `NewsRows`."""
        tasks, plan = self.tasks, self.plan.news
        if plan is None or not plan.is_last or tasks.content.is_unfit(key):
            return tasks.content.is_unfit(key)
        found = NewsFinder(_struct(self.plan), plan).of(json.dumps(tasks.content.document(key)))
        tasks.store.refused |= {key} if found.added else set()
        return bool(found.added)

    def _news(self, keys: Sequence[Key]) -> tuple[News, list[Key]]:
        """What documents bring that no column holds, and the rows to leave; found by the shipped finder."""
        found, left = News(), []
        plan = self.plan.news
        if plan is not None and not plan.is_last:
            finder = NewsFinder(_struct(self.plan), plan)
            for key in keys:
                news = finder.of(json.dumps(self.tasks.content.document(key)))
                if news:
                    found.include(news)
                    left.append(key)
        return found, left

    def _leave(self, task: int, left: list[Key]) -> LeftRows | None:
        if not left:
            return None
        batch, content = self.tasks.content.batch(left), io.BytesIO()
        with pa.ipc.new_stream(content, batch.schema) as stream:
            stream.write_batch(batch)
        path = f"{self.plan.data_location}/{self.plan.file_stem}-{task:05d}-{uuid4()}.arrows"
        self.tasks.store.put(path, content.getvalue())
        return LeftRows(path, len(left), len(content.getvalue()))


@dataclass(frozen=True, slots=True)
class RoutingSimulatedWriter(SimulatedWriter):
    """Puts unfit rows aside; see `lakesink_protocol.two_phase.RoutingWriter`."""

    letters: SidePlan

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        """Write rows and dead letters; returns both encoded receipts as one text of bytes."""
        keys = self._keys(batches)
        aside = [key for key in keys if self._is_unfit(key)]
        receipt = self._write(task, [key for key in keys if key not in aside], len(aside))
        return len(receipt).to_bytes(_LENGTH_BYTES) + receipt + self._put_aside(task, aside)

    def receipts(self, name: str, written: bytes) -> Mapping[str, bytes]:
        """The two receipts."""
        end = _LENGTH_BYTES + int.from_bytes(written[:_LENGTH_BYTES])
        return {name: written[_LENGTH_BYTES:end], self.letters.participant: written[end:]}

    def _put_aside(self, task: int, aside: list[Key]) -> bytes:
        plan = self.letters.plan
        digests = (payload_digest(json.dumps(key), None) for key in aside)
        return encode(
            Receipt(
                task=task,
                rows=len(aside),
                files=(self.tasks.put_letters(plan, task, aside),) if aside else (),
                schema_id=plan.schema_id,
                premises=plan.premises,
                payload_digest=digest_sum(*digests),
            )
        )


@dataclass(slots=True)
class SimulatedTransaction(IcebergTransaction):
    """The shipped transaction, whose tasks run in the simulated world."""

    tasks: Tasks = field(kw_only=True)

    def writer_of(self, plan: WritePlan) -> TaskWriter:
        """See `IcebergTransaction`."""
        if self.tasks.content.has_features:
            return UploadingWriter(self.tasks.store, ParquetTaskWriter(plan, self.expected, self.sides))
        return self.tasks.writer(plan, next(iter(self.sides), None))


@dataclass(slots=True)
class SimulatedSink(IcebergSink):
    """The shipped sink, whose tasks run in the simulated world."""

    tasks: Tasks = field(kw_only=True)

    def begin(self, batch: Batch) -> IcebergTransaction | AlreadyCommitted:
        """See `IcebergSink`."""
        begun = IcebergSink.begin(self, batch)
        if isinstance(begun, AlreadyCommitted):
            return begun
        return SimulatedTransaction(
            **{one.name: getattr(begun, one.name) for one in fields(IcebergTransaction)}, tasks=self.tasks
        )


def file_receipt(plan: WritePlan, path: str, size_bytes: int, rows: int) -> ContentFile:
    """A data file of these rows, without statistics."""
    return ContentFile(path, plan.spec_id, (), rows, size_bytes, {}, {}, {}, {}, {}, {}, ())


def _struct(plan: WritePlan) -> Struct:
    return parse_schema(plan.schema_json)


def parts_of(world: World, mine: Sequence[Row]) -> list[Sequence[Row]]:
    """One or two files of a task's rows; none of no rows."""
    if len(mine) < 2 or world.random.random() < 0.7:
        return [mine] if mine else []
    return [mine[:1], mine[1:]]
