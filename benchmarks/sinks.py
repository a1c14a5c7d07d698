"""The sinks that are compared, each put together as its own documentation says.

All write the same rows into a table that is there before they start, with the same codec and level; what a sink cannot
be told by the table's properties it is told here.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import lakesink
from benchmarks.session import CATALOG, CODEC
from lakesink.spark.spark_errors import JAVA_ERRORS, QueryStopped, is_interruption


@dataclass(frozen=True, slots=True)
class Target:
    """Where one run goes.

    Attributes:
        folder: Of this run alone.
        table: Identifier.
        properties: Of the catalog.
        options: More for lakesink: what a workload is about.
    """

    folder: Path
    table: str
    properties: dict[str, str]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def checkpoint(self) -> str:
        """Of the stream."""
        return str(self.folder / "checkpoint")

    @property
    def out(self) -> Path:
        """Of sinks that write files and no table."""
        return self.folder / "out"

    def data_files(self) -> list[str]:
        """Paths of the data files of the table, or of the files where there is no table."""
        if self.out.is_dir():
            return sorted(str(path) for path in self.out.glob("**/*.parquet"))
        tasks = load_catalog(CATALOG, **self.properties).load_table(self.table).scan().plan_files()
        return sorted("/" + task.file.file_path.removeprefix("file:").lstrip("/") for task in tasks)


def parsed_by_spark(documents: DataFrame, schema: str) -> DataFrame:
    """Rows of JSON in a column ``value``, for sinks that take no documents."""
    parsed = sf.from_json(sf.col("value").cast("string"), schema)
    return documents.select(parsed.alias("document")).select("document.*")


@dataclass(frozen=True, slots=True)
class Sink:
    """One way to write a stream.

    Attributes:
        name: Short.
        decodes: True if it takes documents as they are, and makes rows of them itself.
        writer: Puts it together.
        start: Starts it.
    """

    name: str
    writer: Callable[[DataFrame, Target], DataStreamWriter]
    start: Callable[[DataStreamWriter, Target], StreamingQuery]
    decodes: bool = False


def _start(writer: DataStreamWriter, _: Target) -> StreamingQuery:
    return writer.start()


def _to_table(writer: DataStreamWriter, target: Target) -> StreamingQuery:
    return writer.toTable(f"{CATALOG}.{target.table}")


def _lakesink(rows: DataFrame, target: Target) -> DataStreamWriter:
    return lakesink.stream(
        rows,
        target.table,
        checkpoint=target.checkpoint,
        catalog=CATALOG,
        catalog_properties=target.properties,
        **{"sink_id": "bench", **target.options},
    )


def _iceberg(rows: DataFrame, target: Target) -> DataStreamWriter:
    return rows.writeStream.format("iceberg").outputMode("append").option("checkpointLocation", target.checkpoint)


def _parquet(rows: DataFrame, target: Target) -> DataStreamWriter:
    places = {"checkpointLocation": target.checkpoint, "path": str(target.out)}
    return rows.writeStream.format("parquet").options(**places, compression=CODEC)


def _append(rows: DataFrame, target: Target) -> DataStreamWriter:
    catalog = load_catalog(CATALOG, **target.properties)

    def append(batch: DataFrame, _: int) -> None:
        catalog.load_table(target.table).append(batch.toArrow())

    return rows.writeStream.foreachBatch(append).option("checkpointLocation", target.checkpoint)


def _add_files(rows: DataFrame, target: Target) -> DataStreamWriter:
    catalog = load_catalog(CATALOG, **target.properties)

    def add(batch: DataFrame, _: int) -> None:
        table = catalog.load_table(target.table)
        folder = Path(table.location().removeprefix("file://"), "data", str(uuid.uuid4()))
        batch.write.option("compression", CODEC).parquet(str(folder))
        table.add_files([f"file://{path}" for path in sorted(folder.glob("*.parquet"))])

    return rows.writeStream.foreachBatch(add).option("checkpointLocation", target.checkpoint)


def _discard(rows: DataFrame, target: Target) -> DataStreamWriter:
    def discard(batch: DataFrame, _: int) -> None:
        try:
            batch.write.format("noop").mode("append").save()
        except JAVA_ERRORS as error:
            if is_interruption(error):
                raise QueryStopped from None  # Spark loses its way in an error of the JVM that comes out of Python
            raise

    return rows.writeStream.foreachBatch(discard).option("checkpointLocation", target.checkpoint)


LAKESINK = Sink("lakesink", _lakesink, _start, decodes=True)
ICEBERG = Sink("Iceberg's Spark sink", _iceberg, _to_table)
PARQUET = Sink("Spark's Parquet sink", _parquet, _start)
APPEND = Sink("foreachBatch, Table.append", _append, _start)
ADD_FILES = Sink("foreachBatch, add_files", _add_files, _start)
NOOP = Sink("foreachBatch, noop", _discard, _start)
"""Reads the rows, and writes nothing: what no sink can do without."""
