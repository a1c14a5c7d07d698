import os
from pathlib import Path
from typing import Any

import pytest

from lakesink.spark.rows.on_driver import only_drops_rows
from tests.spark.directory_sink import DirectorySink
from tests.spark.streams import counter_stream, file_stream, ids, run_batches, write_files, writer


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda rows: rows, True),
        (lambda rows: rows.where("id > 3").selectExpr("id + 1 as id").alias("a"), True),
        (lambda rows: rows.withWatermark("at", "1 minute"), True),
        (lambda rows: rows.selectExpr("explode(array(id, id)) as id"), False),
        (lambda rows: rows.join(rows.sparkSession.range(5), "id"), False),
        (lambda rows: rows.union(rows), False),
        (lambda rows: rows.groupBy("id").count(), False),
        (lambda rows: rows.dropDuplicates(["id"]), False),
        (lambda rows: rows.mapInPandas(lambda batches: batches, "id long, at timestamp"), False),
    ],
)
def test_only_plans_that_drop_rows_at_most_count_as_such(spark: Any, change: Any, expected: bool) -> None:  # noqa: FBT001
    assert only_drops_rows(change(counter_stream(spark))) is expected


def test_small_batches_are_written_by_the_driver_once_the_width_of_rows_is_known(spark: Any, tmp_path: Path) -> None:
    sink = DirectorySink(tmp_path / "sink")
    run_batches(writer(counter_stream(spark), sink, tmp_path / "ck"), 3)
    assert [os.getpid() in processes for processes in sink.processes[:4]] == [False, True, True, True]
    values = ids(sink.rows())
    assert values == list(range(len(values)))


def test_small_batches_need_no_shuffle_for_a_partitioned_table(spark: Any, tmp_path: Path, votes_by: list[str]) -> None:
    sink = DirectorySink(tmp_path / "sink")
    sink.clustered_by = [(["id"], "identity")]
    run_batches(writer(counter_stream(spark), sink, tmp_path / "ck"), 2)
    assert votes_by == ["FrameRows"]
    assert [os.getpid() in processes for processes in sink.processes[:3]] == [False, True, True]


def test_batches_of_files_are_written_by_executors(spark: Any, tmp_path: Path) -> None:
    write_files(tmp_path / "in", 3)
    sink = DirectorySink(tmp_path / "sink")
    run_batches(writer(file_stream(spark, tmp_path / "in"), sink, tmp_path / "ck"), 2)
    assert [os.getpid() in processes for processes in sink.processes] == [False] * 3
