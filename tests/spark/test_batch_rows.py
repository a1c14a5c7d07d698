"""Rows out of a query's own plan are the rows of its DataFrame, whatever they are."""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.core.rdd import RDD

from lakesink.spark.query import RunningQuery
from lakesink.spark.rows import batch_rows
from lakesink.spark.rows.arrow_limits import MAX_BYTES, MESSAGE_BYTES
from lakesink.spark.rows.batch_rows import BatchRows, FrameRows, PlanRows, arriving_schema, arrow_converter, collected
from lakesink.spark.rows.task import RawBytes, TaskReport
from lakesink.spark.rows.transport import encode_for_transport
from tests.spark.directory_sink import DirectorySink
from tests.spark.streams import file_stream, run, write_files, writer
from tests.spark.test_decimals import Echo

TYPES = """
    select id % 2 = 0 as flag, cast(id % 100 as byte) as tiny, cast(id as short) as small, cast(id as int) as i,
        id as l,
        cast(id / 3 as float) as f, id / 3 as d, cast(id as decimal(9, 2)) as short_decimal,
        cast(id as decimal(38, 10)) as long_decimal,
        if(id % 3 = 0, null, concat('text ', repeat('é', id % 50))) as text,
        encode(concat('bytes ', id), 'utf-8') as bytes, cast('abc' as varchar(5)) as sized,
        date_add(date'1582-10-10', cast(id as int)) as day, timestamp_micros(id * 1000000007) as at,
        cast(timestamp_micros(id) as timestamp_ntz) as plain, make_dt_interval(id) as took, null as nothing,
        array(id, null) as numbers, map(concat('k', id), id) as lookup,
        named_struct('a', id, 'text', concat('x', id), 'inner', named_struct('d', cast(id as decimal(5,1)))) as nested
    from range(0, 2000, 1, 3)
"""
ROWS_IN_A_FILE = 15_000
LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"


def _plan_rows(frame: Any) -> PlanRows:
    rows, transport = encode_for_transport(frame)
    plan = rows._jdf.queryExecution().executedPlan()  # noqa: SLF001 - as a query tells it
    return PlanRows(rows, transport, plan, arriving_schema(rows), arrow_converter(rows))


def _table(rows: BatchRows) -> pa.Table:
    _, reports = rows.reports(Echo())
    return pa.concat_tables([pa.ipc.open_stream(one.receipt).read_all() for one in sorted(reports, key=_task)])


def _task(report: TaskReport) -> int:
    return report.task


@pytest.fixture(params=["false", "true"], ids=["plain", "large"])
def session(spark: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    spark.conf.set(LARGE_TYPES, request.param)
    yield spark
    spark.conf.unset(LARGE_TYPES)


def test_values_of_every_type_arrive_as_by_the_dataframe(session: Any) -> None:
    rows = _plan_rows(session.sql(TYPES))
    by_frame = _table(FrameRows(rows.frame, rows.transport))
    by_plan = _table(rows)
    gathered = pa.Table.from_batches(list(rows.gathered()))
    assert by_plan.num_rows == 2000
    assert (by_plan.to_pylist(), gathered.to_pylist()) == (by_frame.to_pylist(), by_frame.to_pylist())
    for found in (by_plan, gathered):
        found.validate(full=True)
        assert [_without_zone(kind) for kind in found.schema.types] == [
            _without_zone(kind) for kind in by_frame.schema.types
        ]


def _without_zone(kind: pa.DataType) -> pa.DataType:
    """Spark's DataFrames come with the session's zone; the moment is the same."""
    return pa.timestamp(kind.unit) if pa.types.is_timestamp(kind) else kind


def test_messages_of_which_the_jvm_could_not_send_all_are_an_error(spark: Any) -> None:
    context = spark.sparkContext
    elements = context._jvm.java.util.ArrayList()  # noqa: SLF001 - the JVM's own list
    for element in (b"first", b"second", 3):  # a number has no place on this way: it ends the sending
        elements.add(element)
    for whole, sent in ((True, elements.subList(0, 2)), (False, elements)):
        messages: RDD[bytes] = RDD(context._jsc.parallelize(sent, 1), context, RawBytes())  # noqa: SLF001 - as above
        if whole:
            assert collected(messages) == [b"first", b"second"]
            continue
        with pytest.raises(Py4JJavaError):
            collected(messages)


@pytest.mark.parametrize("names", [["a.b", "c`d"], ["a", "A"], ["a", "a"]])
def test_columns_of_any_name_keep_it(spark: Any, names: list[str]) -> None:
    rows = _plan_rows(spark.sql("select cast(1.5 as decimal(3,1)), 2").toDF(*names))
    assert _table(rows).schema.names == names
    assert next(rows.gathered()).schema.names == names


@pytest.mark.parametrize("query", ["select 1 as id where false", "select id from range(0, 100, 1, 5) where id < 0"])
def test_tasks_without_rows_vote_too(spark: Any, query: str) -> None:
    frame = spark.sql(query)
    planned, reports = _plan_rows(frame).reports(Counting())
    assert planned == len(reports) == frame.rdd.getNumPartitions()


def rows_at_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"id": [batch.num_rows] * batch.num_rows})


class Counting:
    def write(self, _: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        return str(sum(batch.num_rows for batch in batches)).encode()


def test_a_stream_takes_rows_from_its_own_plan_and_spark_still_counts_them(
    spark: Any, tmp_path: Path, votes_by: list[str]
) -> None:
    write_files(tmp_path / "in", 3)
    sink = DirectorySink(tmp_path / "sink")
    query = writer(file_stream(spark, tmp_path / "in"), sink, tmp_path / "ck").trigger(availableNow=True).start()
    query.awaitTermination()
    assert votes_by == ["PlanRows"] * 3
    assert [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]] == [10, 10, 10]
    assert sorted(row["id"] for row in sink.rows()) == list(range(30))


@pytest.mark.parametrize("bound", [None, "65536"], ids=["lakesink's bound", "the user's"])
def test_messages_of_a_plan_have_a_bound_in_bytes_also_after_narrow_rows(spark: Any, bound: str | None) -> None:
    query = "select repeat('x', if(id < 20000, 1, 300000)) as text from range(0, 20100, 1, 1)"
    if bound:
        spark.conf.set(MAX_BYTES, bound)
    rows = _plan_rows(spark.sql(query))
    sizes = [batch.nbytes for batch in rows.gathered()]
    assert max(sizes) <= int(bound or MESSAGE_BYTES) + 300_000
    assert sum(batch.num_rows for batch in rows.gathered()) == 20_100


def test_where_spark_has_no_such_converter_the_dataframe_serves(
    spark: Any, tmp_path: Path, votes_by: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_rows, "_CONNECT", "org.apache.spark.Absent")
    write_files(tmp_path / "in", 1)
    sink = DirectorySink(tmp_path / "sink")
    run(writer(file_stream(spark, tmp_path / "in"), sink, tmp_path / "ck"))
    assert votes_by == ["FrameRows"]
    assert len(sink.rows()) == 10


def test_where_spark_does_not_tell_the_batchs_plan_the_dataframe_serves(
    spark: Any, tmp_path: Path, votes_by: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = RunningQuery.plan
    monkeypatch.setattr(RunningQuery, "plan", lambda self, batch_id: told(self, batch_id + 1))
    write_files(tmp_path / "in", 2)
    sink = DirectorySink(tmp_path / "sink")
    run(writer(file_stream(spark, tmp_path / "in"), sink, tmp_path / "ck"))
    assert votes_by == ["FrameRows"] * 2
    assert len(sink.rows()) == 20


@pytest.mark.parametrize("told", [True, False], ids=["by plan", "by frame"])
def test_functions_of_the_streams_own_get_as_many_rows_as_without_lakesink(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: bool,  # noqa: FBT001 - a case
) -> None:
    if not told:
        monkeypatch.setattr(RunningQuery, "plan", lambda _self, _batch_id: None)

    for _ in range(3):
        spark.range(ROWS_IN_A_FILE).coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
    sink = DirectorySink(tmp_path / "sink")
    stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    rows = stream.mapInArrow(rows_at_once, "id long")
    run(writer(rows, sink, tmp_path / "ck"))
    found = Counter(row["id"] for row in sink.rows())
    assert found == {10_000: 3 * 10_000, ROWS_IN_A_FILE - 10_000: 3 * (ROWS_IN_A_FILE - 10_000)}


def test_a_sessions_own_python_is_kept_by_the_dataframe(spark: Any, tmp_path: Path, votes_by: list[str]) -> None:
    write_files(tmp_path / "in", 1)
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    spark.conf.set("spark.sql.execution.pyspark.python", str(other))
    try:
        run(writer(file_stream(spark, tmp_path / "in"), DirectorySink(tmp_path / "sink"), tmp_path / "ck"))
    finally:
        spark.conf.unset("spark.sql.execution.pyspark.python")
    assert votes_by == ["FrameRows"]
