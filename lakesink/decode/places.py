"""The place of a document, for messages: its file, or Kafka's partition and offset, or else its row in the task."""

from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.rows.changed_rows import FILE, OFFSET, PARTITION, TOPIC
from lakesink.rows.exact_values import exact_values
from lakesink_protocol.redact import redact

KAFKA = (TOPIC, PARTITION, OFFSET)
PLACES = (FILE, *KAFKA)


@dataclass(slots=True)
class Places:
    """Counts the rows of one task's earlier batches, to name the place of a document.

    Without `numbered`, rows have no numbers: those that tasks left have lost theirs.
    """

    task: int
    numbered: bool = True
    _rows: int = field(default=0, init=False)
    _of_file: Counter[str | None] = field(default_factory=Counter, init=False)

    def of(self, batch: pa.RecordBatch, position: int) -> str:
        """The place of a document of the current batch.

        The row number counts the rows that the task has read from the file. It is the line number if one task reads the
        file and the query keeps every row.
        """
        if FILE in batch.schema.names:
            paths = _paths(batch)
            path = paths[position].as_py()
            before = self._of_file[path] + pc.sum(pc.equal(paths.slice(0, position), path), min_count=0).as_py()
            if path is not None:
                return f"{redact(path)}, row {before + 1}" if self.numbered else redact(path)
        kafka = [f"{name} {batch.column(name)[position]}" for name in KAFKA if name in batch.schema.names]
        if kafka:
            return ", ".join(kafka)
        return f"row {self._rows + position + 1} of task {self.task}" if self.numbered else "a row with a new key"

    def advance(self, batch: pa.RecordBatch) -> None:
        """Continue with the next batch."""
        self._rows += batch.num_rows
        if FILE in batch.schema.names:
            for each in pc.value_counts(_paths(batch)):
                self._of_file[each["values"].as_py()] += each["counts"].as_py()


def _paths(batch: pa.RecordBatch) -> pa.Array:
    return exact_values(batch.column(FILE), pa.string())
