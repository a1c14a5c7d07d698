"""Where a document came from, for messages: its file, or Kafka's partition and offset, else its row in the task."""

from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lakesink_protocol.redact import redact

FILE = "file_path"
"""The column that Spark's ``_metadata`` has of a file source."""
KAFKA = ("topic", "partition", "offset")
PLACES = (FILE, *KAFKA)


@dataclass(slots=True)
class Places:
    """The documents that one task has passed.

    Attributes:
        task: Index of the task.
    """

    task: int
    _rows: int = 0
    _of_file: Counter[str | None] = field(default_factory=Counter)

    def of(self, batch: pa.RecordBatch, position: int) -> str:
        """Where a document of the present batch is.

        A row of a file is counted among those that the task read of it: its line, if the file is read by one task
        and the query keeps every row.
        """
        if FILE in batch.schema.names:
            paths = batch.column(FILE)
            path = paths[position].as_py()
            before = self._of_file[path] + pc.sum(pc.equal(paths.slice(0, position), path), min_count=0).as_py()
            if path is not None:
                return f"{redact(path)}, row {before + 1}"
        kafka = [f"{name} {batch.column(name)[position]}" for name in KAFKA if name in batch.schema.names]
        return ", ".join(kafka) if kafka else f"row {self._rows + position + 1} of task {self.task}"

    def passed(self, batch: pa.RecordBatch) -> None:
        """Go on to the next batch."""
        self._rows += batch.num_rows
        if FILE in batch.schema.names:
            for each in pc.value_counts(batch.column(FILE)):
                self._of_file[each["values"].as_py()] += each["counts"].as_py()
