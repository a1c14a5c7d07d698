import logging
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql.streaming.readwriter import DataStreamWriter

import lakesink
from lakesink_protocol.errors import SettingsError
from tests.spark.streams import (
    FIRST_FILE_TIME,
    SCHEMA,
    counter_stream,
    failure,
    file_stream,
    forget_commits,
    run,
    run_batches,
    write_files,
)

pytestmark = pytest.mark.usefixtures("home")
DEFAULTS: dict[str, Any] = {"sink_id": "events", "checkpoint": "ck"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_files(tmp_path / "in", 3)
    return tmp_path / "in"


def into(rows: Any, directory: str = "out", **options: Any) -> DataStreamWriter:
    return lakesink.stream_files(rows, directory, **(DEFAULTS | options))


def ids(**names: Any) -> list[int]:
    paths = lakesink.committed_files("out", **names)
    return [number for (number,) in duckdb.read_parquet(paths).project("id").order("id").fetchall()]


def outcomes() -> list[tuple[Any, ...]]:
    markers = duckdb.read_json("out/_lakesink/events/commits/*.json")
    return markers.order("number").project("batch_id, rows, outcome").fetchall()


def parts() -> list[Path]:
    return sorted(Path("out").rglob("*.parquet"))


def test_a_stream_becomes_files_one_commit_a_batch(spark: Any, source: Path) -> None:
    run(into(file_stream(spark, source)))
    assert ids() == list(range(30))
    assert outcomes() == [(0, 10, "committed"), (1, 10, "committed"), (2, 10, "committed")]
    assert ids(sink_id="events", up_to_batch=1) == list(range(20))


@pytest.mark.parametrize(
    "option",
    [
        {"on_malformed": "quarantine"},
        {"expect": {"valid_age": "age > 0"}},
        {"schema_evolution": "add"},
        {"rescue_column": "_rescued"},
        {"decode": "json"},
        {"dead_letter_table": "shop.bad"},
    ],
    ids=lambda option: next(iter(option)),
)
def test_an_option_of_tables_is_refused_with_its_name(spark: Any, source: Path, option: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="Only a table can have it") as refused:
        into(file_stream(spark, source), **option)
    assert refused.value.code == "LAKESINK_OPTION_UNKNOWN"
    assert next(iter(option)) in refused.value.what
    assert not Path("out").exists()


def test_a_misspelt_option_is_refused_with_the_nearest_one(spark: Any, source: Path) -> None:
    with pytest.raises(SettingsError, match="compression_codec"):
        into(file_stream(spark, source), compresion_codec="zstd")


@pytest.mark.parametrize("format_name", ["parquet", "jsonl"])
def test_spark_reads_what_is_committed(spark: Any, source: Path, format_name: str) -> None:
    run(into(file_stream(spark, source), format=format_name))
    paths = lakesink.committed_files("out")
    read = spark.read.parquet(*paths) if format_name == "parquet" else spark.read.schema(SCHEMA).json(paths)
    assert sorted(row["id"] for row in read.collect()) == list(range(30))


def test_a_relative_directory_lies_in_pythons_folder(spark: Any, source: Path, tmp_path: Path) -> None:
    run(into(file_stream(spark, source), "deep/out"))
    assert lakesink.committed_files("deep/out") == lakesink.committed_files(tmp_path / "deep" / "out")
    assert len(lakesink.committed_files(f"file://{tmp_path}/deep/out/")) == 3


def test_a_replayed_batch_adds_neither_commit_nor_file(spark: Any, source: Path) -> None:
    run(into(file_stream(spark, source)))
    files = parts()
    forget_commits(Path("ck"), 1)
    run(into(file_stream(spark, source)))
    assert len(outcomes()) == 3
    assert parts() == files


def test_a_stream_goes_on_where_it_was(spark: Any, source: Path) -> None:
    run(into(file_stream(spark, source)))
    write_files(source, 2, first=3)
    run(into(file_stream(spark, source)))
    assert ids() == list(range(50))
    assert [batch for batch, _, _ in outcomes()] == [0, 1, 2, 3, 4]


def test_empty_batches_are_commits_without_files(spark: Any, source: Path) -> None:
    run(into(file_stream(spark, source).where("id between 10 and 19")))
    assert ids() == list(range(10, 20))
    assert [rows for _, rows, _ in outcomes()] == [0, 10, 0]


@pytest.mark.parametrize("failpoint", ["batch-start", "after-prepared", "after-commit"])
def test_a_batch_that_failed_anywhere_is_completed_by_the_next_run(
    spark: Any, source: Path, monkeypatch: pytest.MonkeyPatch, failpoint: str
) -> None:
    monkeypatch.setenv("LAKESINK_FAILPOINTS", f"{failpoint}@1=raise")
    assert "FailpointReached" in failure(into(file_stream(spark, source)))
    monkeypatch.delenv("LAKESINK_FAILPOINTS")
    run(into(file_stream(spark, source)))
    assert ids() == list(range(30))
    recovered = "recovered" if failpoint == "after-prepared" else "committed"
    assert outcomes() == [(0, 10, "committed"), (1, 10, recovered), (2, 10, "committed")]


@pytest.mark.parametrize("failpoint", ["after-prepared", "after-call"])
def test_stopping_a_query_while_it_commits_lets_the_commit_end_and_the_replay_is_exact(
    spark: Any, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failpoint: str
) -> None:
    paused = tmp_path / "paused"
    monkeypatch.setenv("LAKESINK_FAILPOINTS", f"{failpoint}@1=pause:{paused}")
    query = into(file_stream(spark, source)).start()
    while not paused.exists():
        assert query.isActive, query.exception()
        time.sleep(0.02)
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    while query.isActive:  # Spark says so before it interrupts the batch
        time.sleep(0.02)
    paused.unlink()
    stopping.join(60)
    assert query.exception() is None
    monkeypatch.delenv("LAKESINK_FAILPOINTS")
    run(into(file_stream(spark, source)))
    assert ids() == list(range(30))
    assert [batch for batch, _, _ in outcomes()] == [0, 1, 2]


def test_a_lost_checkpoint_is_noticed(spark: Any, source: Path) -> None:
    run(into(file_stream(spark, source)))
    assert "[LAKESINK_NEW_CHECKPOINT]" in failure(into(file_stream(spark, source), checkpoint="other"))
    assert ids() == list(range(30))


def test_another_format_is_refused_before_anything_is_written(spark: Any, source: Path) -> None:
    run(into(file_stream(spark, source)))
    write_files(source, 1, first=3)
    assert "[LAKESINK_FORMAT_CHANGED]" in failure(into(file_stream(spark, source), format="jsonl"))
    assert len(list(Path("out").rglob("*.jsonl"))) == 0


def test_two_sinks_share_a_directory(spark: Any, source: Path, tmp_path: Path) -> None:
    write_files(tmp_path / "more", 2, first=100)
    run(into(file_stream(spark, source)))
    run(into(file_stream(spark, tmp_path / "more"), sink_id="more", checkpoint="ck-more"))
    assert ids() == [*range(30), *range(1000, 1020)]
    assert ids(sink_id="more") == list(range(1000, 1020))


@pytest.mark.parametrize("zone", ["America/New_York", "UTC"])
@pytest.mark.parametrize("format_name", ["parquet", "jsonl"])
def test_instants_are_the_same_in_any_session_time_zone_and_from_driver_and_executors(
    spark: Any, zone: str, format_name: str
) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        run_batches(into(counter_stream(spark), format=format_name), 2)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    paths = lakesink.committed_files("out")
    read = duckdb.read_parquet(paths) if format_name == "parquet" else duckdb.read_json(paths)
    rows = read.order("id").project('id, epoch("at")').fetchall()
    assert rows == [(number, FIRST_FILE_TIME + number // 10) for number in range(len(rows))]
    assert len(rows) >= 30


@pytest.mark.parametrize(
    ("columns", "format_name", "told"),
    [
        (["interval '1' day as length"], "parquet", "length"),
        (["named_struct('deep', interval '1' day) as s"], "jsonl", "s.deep"),
        (["null as nothing"], "parquet", "nothing"),
        (["map(id, text) as m"], "jsonl", "keys"),
        (["id as Id", "id as iD"], "parquet", "named 'id'"),
    ],
)
def test_columns_that_the_format_does_not_hold_are_refused_before_the_query_starts(
    spark: Any, source: Path, columns: list[str], format_name: str, told: str
) -> None:
    with pytest.raises(lakesink.WriteError, match=told):
        into(file_stream(spark, source).selectExpr(*columns), format=format_name)
    assert not Path("out").exists()


def test_a_batch_dataframe_is_refused(spark: Any) -> None:
    with pytest.raises(lakesink.QueryError, match=r"stream_files needs a streaming"):
        into(spark.range(3))


def test_each_batch_leaves_one_line_with_its_numbers(
    spark: Any, source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lakesink")
    run(into(file_stream(spark, source)))
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("lakesink.batch.")]
    assert [line.split(" rows=")[1].split(" bytes=")[0] for line in lines] == ["10 files=1"] * 3
    assert all("/out sink=events batch=" in line for line in lines)
