"""The sinks that are compared, each put together as its own documentation says.

The two of `foreachBatch` and PyIceberg's `Table.append` are what people write who have no sink: without and with a look
for a marker in the snapshots before it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

import lakesink

MARKER = "stream.batch"
STREAM = "numbers"
"""What the marker and lakesink call the stream."""


class BranchBy(Enum):
    """How a sink is told its branch."""

    OPTION = "an option of the stream"
    SESSION = "`spark.wap.branch` of the session"
    NAME = "the table's name, given to `toTable`"
    PATH = "the table's name, given as `path`"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a stream goes.

    Attributes:
        catalog: Its name, in Spark and in PyIceberg.
        properties: Of the catalog, as PyIceberg takes them.
        table: Identifier in the catalog.
        checkpoint: Folder.
        branch: Branch.
        branch_by: How the sink is told, if it is not ``main``.
    """

    catalog: str
    properties: Mapping[str, str]
    table: str
    checkpoint: str
    branch: str = "main"
    branch_by: BranchBy = BranchBy.OPTION


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


@dataclass(frozen=True, slots=True)
class Sink:
    """One of the sinks.

    Attributes:
        name: Short.
        title: For the table.
        how: How it is put together, in words.
        in_jvm: True if it is Iceberg's jar, and so in the JVM.
        writer: Puts it together.
    """

    name: str
    title: str
    how: str
    in_jvm: bool
    writer: Callable[[DataFrame, Target], Writer]


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


def iceberg(rows: DataFrame, target: Target) -> Writer:
    """Iceberg's own sink, from its jar."""
    writer = rows.writeStream.format("iceberg").outputMode("append").option("checkpointLocation", target.checkpoint)
    table = f"{target.catalog}.{target.table}"
    match target.branch_by if target.branch != "main" else None:
        case BranchBy.OPTION:
            return _ToTable(writer.option("branch", target.branch), table)
        case BranchBy.NAME:
            return _ToTable(writer, f"{table}.branch_{target.branch}")
        case BranchBy.PATH:
            return writer.option("path", f"{table}.branch_{target.branch}")
        case BranchBy.SESSION | None:
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


SINKS = {
    sink.name: sink
    for sink in (
        Sink(
            "append",
            "`foreachBatch`, `Table.append`",
            "PyIceberg's `Table.append` of every batch; Spark's guide promises at least once for that, and no more.",
            in_jvm=False,
            writer=naive,
        ),
        Sink(
            "marker",
            "the same with a marker",
            "Before it, a look whether a retained snapshot's summary names the stream and the batch.",
            in_jvm=False,
            writer=marked,
        ),
        Sink(
            "iceberg",
            "Iceberg's Spark sink",
            '`writeStream.format("iceberg").outputMode("append")`, checkpoint, `toTable`.',
            in_jvm=True,
            writer=iceberg,
        ),
        Sink(
            "lakesink",
            "lakesink",
            "`lakesink.stream`, no options but those of the case.",
            in_jvm=False,
            writer=two_phase,
        ),
    )
}
