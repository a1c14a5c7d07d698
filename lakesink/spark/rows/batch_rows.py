"""The rows of a batch, two ways to pass them to a task writer, and their shuffle by partition values.

`FrameRows` maps a DataFrame, with public API only. Within `foreachBatch`, Spark builds this DataFrame over the rows of
the stream's plan: it copies every row, column by column, and plans again in every batch. `PlanRows` reads the rows from
the stream's own plan, as the Arrow batches that Spark makes for clients of Spark Connect.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pyarrow as pa
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import cloudpickle
from pyspark.core.rdd import RDD, PipelinedRDD
from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as sf
from pyspark.util import local_connect_and_auth

from lakesink._version import __version__
from lakesink.spark.rows.arrow_limits import message_bytes, message_records
from lakesink.spark.rows.frame_schema import arrow_schema
from lakesink.spark.rows.task import RawBytes, TaskReport, WriteTask, read_messages, write_messages
from lakesink.spark.rows.transport import Transport
from lakesink_protocol.errors import WriteError
from lakesink_protocol.two_phase import ClusteredBy, ClusteredWriter, TaskWriter

_TRUNCATE = re.compile(r"truncate\[(\d+)\]")
_HOUR_MICROS, _DAY_HOURS = 3_600_000_000, 24
_REPORT = types.StructType().add("report", types.BinaryType())
_CONNECT = "org.apache.spark.sql.connect.execution.SparkConnectPlanExecution"
_LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"
TasksFor = Callable[[int], int]
"""How many tasks so many partitions are worth."""


@dataclass(frozen=True, slots=True)
class FrameRows:
    """Rows of a DataFrame in transport encoding; each call evaluates them.

    Without `shuffles`, rows stay in their partitions even if the writer wants others.
    """

    frame: DataFrame
    transport: Transport
    shuffles: bool = True

    def reports(self, writer: TaskWriter, tasks_for: TasksFor | None = None) -> tuple[int, list[TaskReport]]:
        """Run the writer over the rows in one job; returns the number of planned tasks, and their reports.

        Without `tasks_for`, each partition gets a task.
        """
        clustered = clustered_writer(writer) if self.shuffles else None
        rows = self.frame
        if clustered is not None:
            rows = distributed(rows, clustered.clustered_by, self.transport.names, by_range=clustered.by_range)
        elif tasks_for is not None and (tasks := tasks_for(partitions := self.partitions())) < partitions:
            rows = rows.coalesce(tasks)
        mapped = rows.mapInArrow(_task(writer, self.transport), _REPORT)
        reports = [TaskReport.decoded(bytes(row.report)) for row in mapped.collect()]
        plan = mapped._jdf.queryExecution().executedPlan()  # PySpark does not report its number of tasks
        return int(plan.execute().getNumPartitions()), reports  # the plan keeps the RDD, so this starts nothing

    def partitions(self) -> int:
        """Number of partitions of the DataFrame."""
        return int(self.frame._jdf.queryExecution().toRdd().getNumPartitions())  # plans, and runs nothing


@dataclass(frozen=True, slots=True)
class PlanRows:
    """Rows of a micro-batch from its query's physical plan; `to_arrow` is from `arrow_converter`."""

    frame: DataFrame
    transport: Transport
    plan: Any
    schema: pa.Schema
    to_arrow: Any

    def reports(self, writer: TaskWriter, tasks_for: TasksFor | None = None) -> tuple[int, list[TaskReport]]:
        """See `FrameRows.reports`."""
        messages = self._messages()
        partitions = messages.getNumPartitions()
        if tasks_for is not None and (tasks := tasks_for(partitions)) < partitions:
            messages = messages.coalesce(tasks)
        write = partial(write_messages, _task(writer, self.transport), self.schema)
        written: PipelinedRDD[Any, Any] = PipelinedRDD(messages, write)
        written._jrdd_deserializer = RawBytes()  # else PySpark would unpickle reports, which is unsafe
        return messages.getNumPartitions(), [TaskReport.decoded(report) for report in collected(written)]

    def partitions(self) -> int:
        """Number of partitions of the plan."""
        return int(self.plan.execute().getNumPartitions())  # the plan keeps the RDD, so this starts nothing

    def gathered(self) -> Iterator[pa.RecordBatch]:
        """All rows in this process, without transport encoding."""
        return self.transport.decoded(read_messages(collected(self._messages()), self.schema))

    def _messages(self) -> "RDD[bytes]":
        """Arrow streams of one batch each."""
        context = self.frame.sparkSession.sparkContext
        assert context._jvm is not None
        any_class = JavaClass("scala.reflect.ClassTag", context._jvm._gateway_client).AnyRef()
        pairs = self.plan.execute().mapPartitions(self.to_arrow, False, any_class)  # noqa: FBT003 - Scala's; starts no job
        batches = JavaClass("org.apache.spark.api.java.JavaPairRDD", context._jvm._gateway_client).fromRDD(
            pairs, any_class, any_class
        )
        return RDD(batches.keys(), context, RawBytes())


BatchRows = FrameRows | PlanRows


def arrow_converter(rows: DataFrame) -> Any | None:
    """The JVM's function that turns rows of this schema into Arrow batches of few bytes; None if Spark has no such one.

    Only Spark Connect's server limits Arrow batches of a plan by their bytes. The function needs neither the server nor
    the object that it is a method of, so that object is made without its constructor, which needs the server.
    """
    session, jvm = rows._jdf.sparkSession(), rows.sparkSession.sparkContext._jvm
    assert jvm is not None
    conf, client, schema = session.sessionState().conf(), jvm._gateway_client, rows.schema.jsonValue()
    try:
        records = message_records(schema, conf.arrowMaxRecordsPerBatch())
        limits = records, message_bytes(schema, conf.arrowMaxBytesPerBatch())
        of_connect = JavaClass("org.apache.spark.util.Utils", client).classForName(_CONNECT, True, False)  # noqa: FBT003
        server = JavaClass("org.objenesis.ObjenesisHelper", client).newInstance(of_connect)
        repeated_names_fail, large = True, conf.arrowUseLargeVarTypes()
        return server.rowToArrowConverter(
            rows._jdf.schema(), *limits, conf.sessionLocalTimeZone(), repeated_names_fail, large
        )
    except Py4JError:  # another Spark: the DataFrame serves
        return None


def arriving_schema(rows: DataFrame) -> pa.Schema:
    """Schema of the Arrow batches that Spark makes of a micro-batch, the same for all batches of a run."""
    large = str(rows.sparkSession.conf.get(_LARGE_TYPES)).lower() == "true"
    return arrow_schema(rows.schema, large=large)


def clustered_writer(writer: TaskWriter) -> ClusteredWriter | None:
    """The writer, if it wants a shuffle."""
    return writer if isinstance(writer, ClusteredWriter) and writer.clustered_by else None


def collected(encoded: "RDD[bytes]") -> list[bytes]:
    """All elements, or an error: `RDD.collect` takes a broken connection for the end of the data."""
    assert encoded.ctx._jvm is not None
    try:
        sender = encoded.ctx._jvm.PythonRDD.collectAndServe(encoded._jrdd.rdd())  # what RDD.collect calls
        stream, connection = local_connect_and_auth(sender[0], sender[1])
        with connection, stream:
            connection.settimeout(None)  # a job may take long
            found = list(RawBytes().load_stream(stream))  # type: ignore[no-untyped-call] # PySpark's has no types
            sender[2].getResult()  # waits for the end of the transfer, and raises if it failed
    except Py4JJavaError:
        raise
    except (ConnectionError, Py4JError):  # not a Java exception: the JVM did not answer
        raise WriteError.of("SPARK_GONE") from None
    return found


def _task(writer: TaskWriter, transport: Transport) -> WriteTask:
    shipped = cloudpickle.dumps(writer)  # type: ignore[no-untyped-call] # untyped; it also pickles classes that a notebook defines
    return WriteTask(__version__, transport, shipped)


def distributed(
    rows: DataFrame, clustered_by: ClusteredBy, names: Sequence[str] | None = None, *, by_range: bool = False
) -> DataFrame:
    """The rows, shuffled by partition if possible; `names` are the columns' names in `clustered_by` if they differ.

    Spark cuts ranges by a sample, and reads the rows twice for them.

    Spark has Iceberg's transforms only with Iceberg's jar. So each transform becomes a Spark expression that is equal
    for all rows of a partition. ``bucket`` has no such expression: rows are not shuffled by its fields.
    """
    found = (
        partition_expression(rows, _path_in_rows(rows, path, names), transform) for path, transform in clustered_by
    )
    expressions = [expression for expression in found if expression is not None]
    if not expressions:
        return rows
    session = rows.sparkSession
    most = int(session.conf.get("spark.sql.shuffle.partitions") or 1)
    # As many tasks as run at once: each Python task has a cost, and Spark's default is 200.
    tasks = max(1, min(most, session.sparkContext.defaultParallelism))
    return (rows.repartitionByRange if by_range else rows.repartition)(tasks, *expressions)


def _path_in_rows(rows: DataFrame, path: Sequence[str], names: Sequence[str] | None) -> Sequence[str]:
    """The path with the names of the rows' columns; empty unless exactly one column matches."""
    if names is None:
        return path
    known = [column for column, name in zip(rows.columns, names, strict=True) if name.lower() == path[0].lower()]
    return [known[0], *path[1:]] if len(known) == 1 else ()


def partition_expression(rows: DataFrame, path: Sequence[str], transform: str) -> Column | None:
    """An expression that is equal for rows of the same partition; None if there is none."""
    kind, names = _spelled_in(rows.schema, path) if path else (None, ())
    if kind is None:
        return None
    column = sf.col(".".join(f"`{name.replace('`', '``')}`" for name in names))
    if transform == "identity":
        return column
    truncate = _TRUNCATE.fullmatch(transform)
    if truncate:
        width = int(truncate[1])
        if isinstance(kind, types.IntegralType):
            return _rounded_down(column, width)
        return sf.substring(column, 1, width) if isinstance(kind, types.StringType) else None
    return _period(column, kind, transform)


def _spelled_in(schema: types.StructType, path: Sequence[str]) -> tuple[types.DataType | None, Sequence[str]]:
    """The type of a column and its path as the rows spell it; no type unless exactly one column matches."""
    kind, names = cast("types.DataType", schema), list[str]()
    for name in path:
        fields = kind.fields if isinstance(kind, types.StructType) else []
        found = [field for field in fields if field.name.lower() == name.lower()]
        if len(found) != 1:
            return None, ()
        kind = found[0].dataType
        names.append(found[0].name)
    return kind, names


def _period(column: Column, kind: types.DataType, period: str) -> Column | None:
    hours = _hours(column, kind)
    if hours is None or period not in ("hour", "day", "month", "year"):
        return None
    if period == "hour":
        return hours
    days = _floor_divided(hours, _DAY_HOURS)
    if period == "day":
        return days
    date = sf.date_from_unix_date(days.cast("int"))
    return sf.year(date) if period == "year" else sf.year(date) * 12 + sf.month(date)


def _hours(column: Column, kind: types.DataType) -> Column | None:
    """Hours since 1970 in UTC, independent of the session's time zone."""
    if isinstance(kind, types.DateType):
        return sf.unix_date(column).cast("long") * _DAY_HOURS
    if isinstance(kind, types.TimestampNTZType):
        return sf.unix_date(column.cast("date")).cast("long") * _DAY_HOURS + sf.hour(column)
    return _floor_divided(sf.unix_micros(column), _HOUR_MICROS) if isinstance(kind, types.TimestampType) else None


def _floor_divided(number: Column, by: int) -> Column:
    return _rounded_down(number, by) / by


def _rounded_down(number: Column, multiple: int) -> Column:
    """Round down to a multiple. NULL near a type's minimum, where no multiple exists and Spark's minus would fail."""
    return sf.try_subtract(number, sf.pmod(number, sf.lit(multiple)))
