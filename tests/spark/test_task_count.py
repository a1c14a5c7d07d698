"""A batch is written by as many tasks as its size is worth, whatever the partitions of its source."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from lakesink.spark.query import RunningQuery
from tests.spark.directory_sink import DirectorySink
from tests.spark.streams import (
    FIRST_FILE_TIME,
    counter_stream,
    file_stream,
    forget_commits,
    ids,
    run,
    run_batches,
    write_files,
    writer,
)

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.fixture
def sink(tmp_path: Path) -> DirectorySink:
    return DirectorySink(tmp_path / "out")


def many_partitions(spark: SparkSession, rows: int) -> DataFrame:
    """So many rows a batch in 32 partitions; its offsets count them, as Kafka's do."""
    options = {"rowsPerBatch": rows, "numPartitions": 32, "startTimestamp": FIRST_FILE_TIME * 1000}
    source = spark.readStream.format("rate-micro-batch").options(advanceMillisPerBatch=1000, **options)
    return source.load().selectExpr("value as id", "timestamp as at")


@pytest.fixture
def many_shuffle_partitions(spark: Any) -> Iterator[None]:
    before = spark.conf.get(SHUFFLE_PARTITIONS)
    spark.conf.set(SHUFFLE_PARTITIONS, "20")
    yield
    spark.conf.set(SHUFFLE_PARTITIONS, before)


@pytest.mark.parametrize("by_plan", [True, False], ids=["rows of the plan", "rows of the DataFrame"])
def test_a_small_batch_of_many_partitions_is_written_by_few_tasks(
    spark: Any, sink: DirectorySink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_plan: bool
) -> None:
    if not by_plan:
        monkeypatch.setattr(RunningQuery, "plan", lambda _self, _batch_id: None)
    run_batches(writer(many_partitions(spark, 20_000), sink, tmp_path / "ck"), 2)
    assert ids(sink.rows()) == list(range(20_000 * len(sink.batches())))
    assert max(sink.tasks[1:3]) < 32
    assert sink.tasks[2] <= 2  # one, unless the machine is so busy that a tiny task takes a second


def test_files_say_how_large_a_batch_is(spark: Any, sink: DirectorySink, tmp_path: Path) -> None:
    write_files(tmp_path / "in", 3, rows=1)
    write_files(tmp_path / "in", 1, first=3, rows=5000)
    found: list[int | None] = []

    def tell(function: Any) -> Any:
        def told(rows: DataFrame, batch_id: int) -> None:
            function(rows, batch_id)
            found.append(function._run.query.input_bytes(batch_id))  # noqa: SLF001 - of the run that has just written
            found.append(function._run.query.input_bytes(batch_id + 1))  # noqa: SLF001

        return told

    run(writer(file_stream(spark, tmp_path / "in", files=2), sink, tmp_path / "ck", wrap=tell))
    sizes = [path.stat().st_size for path in sorted((tmp_path / "in").iterdir())]
    assert found == [sizes[0] + sizes[1], None, sizes[2] + sizes[3], None]


@pytest.mark.usefixtures("many_shuffle_partitions")
def test_windows_are_written_once_by_few_tasks_also_after_a_restart(
    spark: Any, sink: DirectorySink, tmp_path: Path
) -> None:
    rows = counter_stream(spark)
    window = rows.withWatermark("at", "0 seconds").groupBy(sf.window("at", "2 seconds")).agg(sf.sum("id").alias("id"))
    counted = window.select("id")
    run_batches(writer(counted, sink, tmp_path / "ck"), 6)
    forget_commits(tmp_path / "ck", 4)
    run_batches(writer(counted, sink, tmp_path / "ck"), 12)
    sums = [sum(range(20 * number, 20 * number + 20)) for number in range(len(sink.rows()))]
    assert ids(sink.rows()) == sums
    assert len(sums) > 4
    assert max(sink.tasks[3:]) < 20


@pytest.mark.usefixtures("many_shuffle_partitions")
def test_rows_are_dropped_once_by_a_query_that_keeps_state(spark: Any, sink: DirectorySink, tmp_path: Path) -> None:
    write_files(tmp_path / "in", 6)
    write_files(tmp_path / "again", 1)
    rows = file_stream(spark, tmp_path / "in").dropDuplicates(["id"])
    run(writer(rows, sink, tmp_path / "ck"))
    forget_commits(tmp_path / "ck", 3)
    for path in sorted((tmp_path / "in").iterdir()):
        path.with_name(f"again-{path.name}").write_text(path.read_text())
    write_files(tmp_path / "in", 1, first=6)
    run(writer(rows, sink, tmp_path / "ck"))
    assert ids(sink.rows()) == list(range(70))
    assert max(sink.tasks[2:]) < 20


def test_a_function_that_takes_long_keeps_its_tasks(spark: Any, sink: DirectorySink, tmp_path: Path) -> None:
    def slowly(batches: Any) -> Any:
        for batch in batches:
            time.sleep(0.2)
            yield batch

    rows = many_partitions(spark, 320).select("id")
    run_batches(writer(rows.mapInPandas(slowly, "id long"), sink, tmp_path / "ck"), 2)
    assert ids(sink.rows()) == list(range(320 * len(sink.batches())))
    assert sink.tasks[0] == 32  # nothing is known of the function yet
    assert all(tasks >= 6 for tasks in sink.tasks)
