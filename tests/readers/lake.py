"""Tables written as a stream writes them, but without Spark: Arrow batches through task writer, seam and sink."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.task.task import ParquetTaskWriter
from lakesink_catalog.connect.catalog import CatalogConfig, FoundCatalog
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.change import ContentFile
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.identity import SinkKey, stream_batch
from lakesink_protocol.outcome import Committed, Outcome
from lakesink_protocol.receipt import decode
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Votes

SINK = "rows"
Tasks = Sequence[Sequence[pa.RecordBatch]]


@dataclass(frozen=True)
class Lake:
    """A SQLite catalog and its warehouse in one folder, as the embedded one has them; tables as asked for."""

    folder: Path
    catalog_name: str = "readers"
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def found(self) -> FoundCatalog:
        uri, warehouse = f"sqlite:///{self.folder / 'catalog.db'}", f"file://{self.folder / 'warehouse'}"
        return CatalogConfig(self.catalog_name, {"type": "sql", "uri": uri, "warehouse": warehouse}).find()

    def new_table(
        self,
        schema: Schema,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        properties: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> "StreamedTable":
        """A table that has the schema's very names, nullability and types; only field ids may be given anew."""
        catalog = self.found.open()
        catalog.create_namespace_if_not_exists("demo")
        name = f"demo.{name or f't{next(self._numbers)}'}"
        catalog.create_table(
            name, schema, partition_spec=spec, properties={"format-version": "2", **(properties or {})}
        )
        return StreamedTable(catalog, self.found, name)


@dataclass
class StreamedTable:
    """A table and the one stream that writes it.

    Attributes:
        buffer_bytes: What a task gathers before it writes.
        open_files: Files that a task keeps open.
        options: Of the stream, beside its names.
        committed: The outcome of every batch.
        files: Data files of every job that ran, as the tasks' receipts tell them.
    """

    catalog: Catalog
    found: FoundCatalog
    name: str
    buffer_bytes: int = 128 * 1024 * 1024
    open_files: int = 100
    options: Mapping[str, Any] = field(default_factory=dict)
    committed: list[Committed] = field(default_factory=list)
    files: list[list[ContentFile]] = field(default_factory=list)

    def load(self) -> Table:
        return load_table(self.catalog, self.name)

    def write(self, tasks: Tasks, schema: pa.Schema) -> Committed:
        """Commit the next batch: one receipt a task, through begin, pre-commit, prepared record and commit."""
        outcome = self.run(len(self.committed), tasks, schema)
        assert isinstance(outcome, Committed)
        self.committed.append(outcome)
        return outcome

    def run(self, number: int, tasks: Tasks, schema: pa.Schema) -> Outcome:
        """Run a batch as a driver that has just started does, whether it is new or not."""
        settings = Settings.parse({"sink_id": SINK, "checkpoint": "unused", **self.options})
        sink = IcebergSink(self.name, SinkKey(SINK), self.found.open, settings, schema, case_sensitive=True)
        batch = stream_batch(number, "query", start=[number], end=[number + 1])

        def run_job(writers: Mapping[str, TaskWriter]) -> Votes:
            receipts = [self._run_task(writers[sink.name], task, batches) for task, batches in enumerate(tasks)]
            self.files.append([file for receipt in receipts for file in decode(receipt).files])
            return Votes.in_order({sink.name: receipts})

        return run_batch(batch, [sink], run_job)[sink.name]

    def _run_task(self, writer: TaskWriter, task: int, batches: Sequence[pa.RecordBatch]) -> bytes:
        assert isinstance(writer, ParquetTaskWriter)
        plan = replace(writer.plan, buffer_bytes=self.buffer_bytes, open_files=self.open_files)
        return ParquetTaskWriter(plan).write(task, iter(batches))
