"""A task whose rows are changes by key, in the place of the shipped writer: data files, and a keys file.

What the shipped writer makes of a task's rows is tried elsewhere, with real files; here the sink must make the same of
whatever came of tasks that were tried again, died, or wrote twice.
"""

import hashlib
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa

from lakesink.parquet.locations import new_location
from lakesink.rows.plan import WritePlan
from lakesink.rows.side_rows import SidePlan
from lakesink_protocol.change import ContentFile
from lakesink_protocol.measures import Tally
from lakesink_protocol.receipt import Receipt, encode
from lakesink_protocol.row_changes import DELETES, SPLITS, SUPERSEDED, KeysFile, Operation
from proof.changes import Changing, RowChange, newest_of
from proof.content import CHANGES, ID, SEQUENCE
from proof.simulator.keyed_files import Partitioning, data_file
from proof.simulator.tasks import Tasks, parts_of

_ID, _SEQUENCE = (CHANGES.names.index(name) + 1 for name in (ID, SEQUENCE))


@dataclass(frozen=True, slots=True)
class KeyedTasks(Tasks):
    """What all tasks of one driver share whose rows are changes."""

    def writer(self, plan: WritePlan, letters: SidePlan | None) -> "KeyedWriter":
        """See `Tasks`; no change is put aside."""
        assert letters is None
        return KeyedWriter(self, plan)


@dataclass(frozen=True, slots=True)
class KeyedWriter:
    """Writes one task's changes; see `lakesink_protocol.two_phase.TaskWriter`."""

    tasks: Tasks
    plan: WritePlan

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        """Write changes; returns the encoded receipt."""
        rows = [key for batch in batches for key in self.tasks.content.keys(batch)]
        changes = [change for row in rows for change in self._changing.of(row)]
        newest = list(newest_of(changes, has_sequence=self._changing.has_sequence).values())
        stored = [change for change in newest if change.operation is not Operation.DELETE]
        partitioning = Partitioning(self.plan.spec_id, bool(self.plan.partition_fields))
        groups = [part for group in partitioning.groups(stored) for part in parts_of(self.tasks.store.world, group)]
        files = tuple(self._put(task, part, partitioning) for part in groups)
        return encode(
            Receipt(
                task=task,
                rows=len(rows),
                files=files,
                schema_id=self.plan.schema_id,
                premises=self.plan.premises,
                keys=self._put_keys(task, newest),
                changed=Tally(
                    {
                        SUPERSEDED: len(changes) - len(newest),
                        SPLITS: len(changes) - len(rows),
                        DELETES: len(newest) - len(stored),
                    }
                ),
            )
        )

    @property
    def _changing(self) -> Changing:
        changing = self.tasks.content.changing
        assert changing is not None
        return changing

    def _put(self, task: int, part: Sequence[RowChange], partitioning: Partitioning) -> ContentFile:
        file, content = data_file(new_location(self.plan, (), task, ()), part, partitioning)
        self.tasks.store.put(file.path, content, Counter(change.row for change in part))
        return file

    def _put_keys(self, task: int, changes: Sequence[RowChange]) -> KeysFile | None:
        if not changes:
            return None
        content = keys_file(changes, has_sequence=self._changing.has_sequence)
        path = f"{self.plan.data_location}/{self.plan.file_stem}-{task:05d}-{uuid4()}.keys"
        self.tasks.store.put(path, content)
        return KeysFile(path, task, len(changes), len(content), hashlib.sha256(content).hexdigest())


def keys_file(changes: Sequence[RowChange], *, has_sequence: bool) -> bytes:
    """The content of a keys file."""
    columns: dict[str, list[int]] = {f"k{_ID}": [change.key for change in changes]}
    if has_sequence:
        columns[f"s{_SEQUENCE}"] = [change.sequence for change in changes]
    places = {"place": [change.row[0] for change in changes], "offset": [change.row[1] for change in changes]}
    types = {name: pa.int64() for name in (*columns, *places)} | {"op": pa.int8()}
    values = {**columns, "op": [change.operation.value for change in changes], **places}
    table = pa.table(values, schema=pa.schema([(name, types[name]) for name in values]))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(table)
    return sink.getvalue()
