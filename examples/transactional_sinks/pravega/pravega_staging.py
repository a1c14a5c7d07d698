"""What executors run: the rows of a task become events in one file, and the receipt names it.

A task cannot write into the batch's transaction itself: if Spark runs it twice, its events would be there twice.
"""

import json
import os
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakesink import WriteError

EVENTS = pa.schema([("key", pa.string()), pa.field("event", pa.large_binary(), nullable=False)])
"""Events as they are staged. A NULL key lets Pravega choose the segment."""
LARGEST_EVENT_BYTES = 8 * 1024 * 1024

Encode = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Turns rows into `EVENTS`, one for each row. Executors import it by its name."""


def key_and_value(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The column ``value`` (STRING or BINARY) is the event, the column ``key`` (STRING), if there is one, its key."""
    value = rows.column("value")
    if not any(is_type(value.type) for is_type in (pt.is_string, pt.is_large_string, pt.is_binary, pt.is_large_binary)):
        raise _refused("The column `value` is not STRING or BINARY.")
    key = rows.column("key") if "key" in rows.schema.names else pa.nulls(len(rows), pa.string())
    return pa.record_batch([key.cast(pa.string()), value.cast(pa.large_binary())], schema=EVENTS)


@dataclass(frozen=True, slots=True)
class StagingWriter:
    """Plain data: it is pickled. Its files have names that no other attempt gives."""

    folder: str
    stem: str
    encode: Encode

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        """Stage the events of one task's rows."""
        name = f"{self.stem}-{task}-{uuid.uuid4()}.arrow"
        with (Path(self.folder) / name).open("xb") as file:
            with pa.ipc.new_stream(file, EVENTS) as staged:
                for rows in batches:
                    staged.write_batch(self._events(rows))
            file.flush()
            os.fsync(file.fileno())  # durable before it is voted for
        return json.dumps({"stem": self.stem, "task": task, "file": name}).encode()

    def _events(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        events = self.encode(rows)
        if events.schema != EVENTS or len(events) != len(rows):
            raise _refused("The function `encode` did not return one event for each row.")
        column = events.column("event")
        if column.null_count:
            raise _refused("The value of a row is NULL, and an event cannot be.")
        if (pc.max(pc.binary_length(column)).as_py() or 0) > LARGEST_EVENT_BYTES:
            raise _refused(f"The event of a row is longer than Pravega's {LARGEST_EVENT_BYTES} bytes.")
        return events


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """The files that the votes of a batch named."""

    paths: tuple[Path, ...]

    def events(self) -> Iterator[tuple[str | None, bytes]]:
        """Key and bytes of every event, task by task."""
        for path in self.paths:
            with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as staged:
                for events in staged:
                    yield from zip(events["key"].to_pylist(), events["event"].to_pylist(), strict=True)

    def remove(self) -> None:
        """They are in the transaction now; if that is lost, the tasks run again."""
        for path in self.paths:
            path.unlink(missing_ok=True)


def staged_files(receipts: Sequence[bytes], folder: Path, stem: str) -> StagedFiles:
    """The files of one sound receipt of each task, in the order of the tasks.

    Raises:
        WriteError: A receipt is malformed, of another batch, or names a file that is not there.
    """
    try:
        votes = [json.loads(receipt) for receipt in receipts]
        cast = [(vote["stem"], vote["task"]) for vote in votes]
        names = [vote["file"] for vote in votes]
    except (ValueError, TypeError, KeyError):
        cast, names = [], [None]
    wanted = [(stem, task) for task in range(len(receipts))]
    if cast != wanted or not _are_staged(names, folder, stem):
        raise WriteError(
            "RECEIPT_REJECTED",
            "A receipt was rejected.",
            data="No reader sees a row of the batch.",
            action="Start the query again.",
        )
    return StagedFiles(tuple(folder / name for name in names))


def _are_staged(names: list[Any], folder: Path, stem: str) -> TypeGuard[list[str]]:
    ours = re.compile(re.escape(stem) + r"-\d+-[0-9a-f-]{36}\.arrow")
    return len(set(map(str, names))) == len(names) and all(
        isinstance(name, str) and ours.fullmatch(name) and (folder / name).exists() for name in names
    )


def _refused(what: str) -> WriteError:
    data = "No reader sees a row of the batch."
    return WriteError("PRAVEGA_EVENT", what, data=data, action="Correct the query, and start it again.")
