import os
from pathlib import Path
from typing import Any

import pytest

from lakesink.spark.rows.on_driver import HEADROOM, MOST_BYTES, MOST_ROWS, driver_may_write, most_rows, only_drops_rows
from tests.spark.directory_sink import DirectorySink
from tests.spark.streams import counter_stream, file_stream, ids, run_batches, write_files, writer

KAFKA = ("kafka",)


@pytest.mark.parametrize(
    ("sources", "start", "end", "expected"),
    [
        (KAFKA, ({"t": {"0": 5, "1": 7}},), ({"t": {"0": 6, "1": 17}},), 11),
        (KAFKA, ({"t": {"0": 5}},), ({"t": {"0": 5}},), 0),
        (KAFKA, ({"t": {"0": 5}},), ({"t": {"0": 6, "1": 4}, "u": {"0": 3}},), 8),
        (KAFKA, ({"t": {"0": 500}},), ({"t": {"0": 20}},), 20),
        (("rate-micro-batch",), ({"offset": 10, "timestamp": 1},), ({"offset": 30, "timestamp": 2},), 20),
        (("kafka", "kafka"), ({"t": {"0": 1}}, {"u": {"0": 1}}), ({"t": {"0": 2}}, {"u": {"0": 4}}), 4),
        (KAFKA, None, ({"t": {"0": 5}},), None),
        (KAFKA, (None,), ({"t": {"0": 5}},), None),
        (KAFKA, ({"t": {"0": 5}},), (None,), None),
        (KAFKA, ({"t": 5},), ({"t": 6},), None),
        (KAFKA, ({"t": {"0": "5"}},), ({"t": {"0": "6"}},), None),
        (("FileSource",), ({"logOffset": 1},), ({"logOffset": 2},), None),
        (("kafka", "socket"), ({"t": {"0": 1}}, 1), ({"t": {"0": 2}}, 2), None),
        (KAFKA, ({"t": {"0": 1}}, {"t": {"0": 1}}), ({"t": {"0": 2}}, {"t": {"0": 2}}), None),
    ],
)
def test_rows_are_known_only_from_offsets_that_count_them(
    sources: tuple[str, ...], start: Any, end: Any, expected: int | None
) -> None:
    before = None if start is None else _by_source(start)
    assert most_rows(sources, before, _by_source(end)) == expected


def _by_source(offsets: tuple[Any, ...]) -> dict[str, Any]:
    return {str(position): offset for position, offset in enumerate(offsets)}


@pytest.mark.parametrize(
    ("rows", "widest", "expected"),
    [
        (100, 300, True),
        (0, 300, True),
        (None, 300, False),
        (100, 0, False),
        (MOST_ROWS + 1, 1, False),
        (1000, MOST_BYTES // 1000 // HEADROOM + 1, False),
    ],
)
def test_the_driver_writes_only_what_is_known_to_be_small(rows: int | None, widest: int, expected: bool) -> None:  # noqa: FBT001
    assert driver_may_write(rows, widest) is expected


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
