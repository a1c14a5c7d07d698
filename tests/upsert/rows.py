"""A stream of rows of any columns into a table with a key, for histories that a test tells step by step."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakesink.rows.changed_rows import DELETE_MARK
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.outcome import Outcome
from testkit.builders import Lake, Stream
from testkit.change_table import OPTIONS
from testkit.letters import one_task

Row = dict[str, Any]


@dataclass(slots=True)
class RowStream(Stream):
    """Each batch is run by a driver that has just started.

    Attributes:
        columns: Of the rows that arrive.
    """

    columns: pa.Schema = field(default_factory=lambda: pa.schema([]))

    def __post_init__(self) -> None:
        Stream.__post_init__(self)
        self.options = {**OPTIONS, **self.options}

    def sink(self, **options: Any) -> IcebergSink:
        """The sink of a driver that has just started."""
        sink = Stream.sink(self, **options)
        return IcebergSink(sink.table, sink.key, sink.open_catalog, sink.settings, self.columns, effects=sink.effects)

    def change(self, batch_id: int, upserts: Iterable[Row] = (), deletes: Iterable[Row] = ()) -> Outcome:
        """Run a batch of one task."""
        marked = [{**row, DELETE_MARK: False} for row in upserts] + [{**row, DELETE_MARK: True} for row in deletes]
        rows = pa.Table.from_pylist(marked, schema=self.columns.append(pa.field(DELETE_MARK, pa.bool_())))
        sink = self.sink()
        return run_batch(self.batch(batch_id), [sink], one_task(rows))[sink.name]


def live_rows(lake: Lake) -> list[dict[str, Any]]:
    """The live rows in the order of their keys, as PyIceberg reads them."""
    rows: list[dict[str, Any]] = lake.table().scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: row["id"])
