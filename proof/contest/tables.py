"""Ways to write a stream into an Iceberg table, each put together as its own documentation says.

The two of `foreachBatch` and PyIceberg's `Table.append` are what people write who have no sink: without and with a look
for a marker in the snapshots before it.
"""

from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

import lakesink
from proof.contest.target import Target

MARKER = "stream.batch"
STREAM = "numbers"
"""What the marker and lakesink call the stream."""


@dataclass(frozen=True, slots=True)
class _ToTable:
    """`toTable` starts a stream by another name than `start`."""

    writer: DataStreamWriter
    table: str

    def trigger(self, **when: Any) -> "_ToTable":
        return _ToTable(self.writer.trigger(**when), self.table)

    def start(self) -> Any:
        return self.writer.toTable(self.table)


Writer = DataStreamWriter | _ToTable


def naive(rows: DataFrame, target: Target) -> DataStreamWriter:
    """`foreachBatch` and `Table.append`."""
    catalog = load_catalog(target.catalog, **target.properties)

    def append(batch: DataFrame, _: int) -> None:
        catalog.load_table(target.table).append(batch.toArrow(), branch=target.branch)

    return rows.writeStream.foreachBatch(append).option("checkpointLocation", target.checkpoint)


def marked(rows: DataFrame, target: Target) -> DataStreamWriter:
    """The same, unless a snapshot says that the batch is there."""
    catalog = load_catalog(target.catalog, **target.properties)

    def append_once(batch: DataFrame, batch_id: int) -> None:
        table, mark = catalog.load_table(target.table), f"{STREAM}/{batch_id}"
        summaries = (snapshot.summary for snapshot in table.snapshots())
        if any(summary is not None and summary.additional_properties.get(MARKER) == mark for summary in summaries):
            return
        table.append(batch.toArrow(), snapshot_properties={MARKER: mark}, branch=target.branch)

    return rows.writeStream.foreachBatch(append_once).option("checkpointLocation", target.checkpoint)


def icebergs_own(rows: DataFrame, target: Target) -> Writer:
    """Iceberg's own sink, from its jar."""
    writer = rows.writeStream.format("iceberg").outputMode("append").option("checkpointLocation", target.checkpoint)
    table = f"{target.catalog}.{target.table}"
    branch = f"{table}.branch_{target.branch}"
    match target.branch_by if target.branch != "main" else None:
        case "option":
            return _ToTable(writer.option("branch", target.branch), table)
        case "toTable":
            return _ToTable(writer, branch)
        case "path":
            return writer.option("path", branch)
        case _:
            return _ToTable(writer, table)


def two_phase(rows: DataFrame, target: Target) -> DataStreamWriter:
    """The product."""
    return lakesink.stream(
        rows,
        target.table,
        sink_id=STREAM,
        checkpoint=target.checkpoint,
        catalog=target.catalog,
        catalog_properties=dict(target.properties),
        branch=target.branch,
    )
