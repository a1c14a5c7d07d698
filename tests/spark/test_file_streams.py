import logging
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql.streaming.readwriter import DataStreamWriter

import lakesink
from lakesink_protocol.errors import SettingsError
from tests.spark.streams import (
    FIRST_FILE_TIME,
    counter_stream,
    failure,
    file_stream,
    forget_commits,
    run,
    run_batches,
    stopped_at,
)

pytestmark = pytest.mark.usefixtures("home")
DEFAULTS: dict[str, Any] = {"sink_id": "events", "checkpoint": "ck"}


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


def test_a_stream_becomes_files_one_commit_a_batch(
    spark: Any, source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lakesink")
    run(into(file_stream(spark, source), "deep/out"))
    paths = lakesink.committed_files("deep/out")
    assert paths == lakesink.committed_files(tmp_path / "deep" / "out")
    assert len(lakesink.committed_files(f"file://{tmp_path}/deep/out/")) == 3
    assert sorted(row["id"] for row in spark.read.parquet(*paths).collect()) == list(range(30))
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("lakesink.batch.")]
    assert [line.split(" rows=")[1].split(" bytes=")[0] for line in lines] == ["10 files=1"] * 3
    assert all("/out sink=events batch=" in line for line in lines)


def test_a_replayed_batch_adds_neither_commit_nor_file(spark: Any, source: Path) -> None:
    run(into(file_stream(spark, source)))
    files = parts()
    forget_commits(Path("ck"), 1)
    run(into(file_stream(spark, source)))
    assert len(outcomes()) == 3
    assert parts() == files


def test_a_prepared_batch_is_completed_by_the_next_run(
    spark: Any, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESINK_FAILPOINTS", "after-prepared@1=raise")
    assert "FailpointReached" in failure(into(file_stream(spark, source)))
    monkeypatch.delenv("LAKESINK_FAILPOINTS")
    run(into(file_stream(spark, source)))
    assert ids() == list(range(30))
    assert outcomes() == [(0, 10, "committed"), (1, 10, "recovered"), (2, 10, "committed")]


def test_stopping_a_query_while_it_commits_lets_the_commit_end_and_the_replay_is_exact(
    spark: Any, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = tmp_path / "paused"
    monkeypatch.setenv("LAKESINK_FAILPOINTS", f"after-call@1=pause:{paused}")
    stopped_at(paused, into(file_stream(spark, source)).start())
    monkeypatch.delenv("LAKESINK_FAILPOINTS")
    run(into(file_stream(spark, source)))
    assert ids() == list(range(30))
    assert [batch for batch, _, _ in outcomes()] == [0, 1, 2]


def test_a_lost_checkpoint_is_noticed_before_anything_is_written(spark: Any, source: Path) -> None:
    run(into(file_stream(spark, source)))
    assert "[LAKESINK_NEW_CHECKPOINT]" in failure(into(file_stream(spark, source), checkpoint="other"))
    assert ids() == list(range(30))


def test_instants_are_the_same_in_any_session_time_zone_and_from_driver_and_executors(spark: Any) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        run_batches(into(counter_stream(spark)), 2)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    rows = duckdb.read_parquet(lakesink.committed_files("out")).order("id").project('id, epoch("at")').fetchall()
    assert rows == [(number, FIRST_FILE_TIME + number // 10) for number in range(len(rows))]
    assert len(rows) >= 30


REFUSED: list[tuple[list[str], dict[str, Any], str]] = [
    *(
        (["id"], option, "Only a table can have it")
        for option in (
            {"schema_evolution": "add"},
            {"partition_by": "id"},
            {"mode": "upsert"},
            {"changelog_table": "shop.log"},
        )
    ),
    (["id"], {"compresion_codec": "zstd"}, "compression_codec"),
    (["interval '1' day as length"], {}, "length"),
    (["named_struct('deep', interval '1' day) as s"], {}, "s.deep"),
    (["null as nothing"], {}, "nothing"),
    (["id as Id", "id as iD"], {}, "named 'id'"),
]


def test_what_a_directory_does_not_hold_is_refused_before_the_query_starts(spark: Any, source: Path) -> None:
    for columns, options, told in REFUSED:
        with pytest.raises(lakesink.LakesinkError, match=told) as refused:
            into(file_stream(spark, source).selectExpr(*columns), **options)
        kind, code = (SettingsError, "OPTION_UNKNOWN") if columns == ["id"] else (lakesink.WriteError, "")
        assert isinstance(refused.value, kind), told
        assert code in refused.value.code, told
        assert told != "Only a table can have it" or next(iter(options)) in refused.value.what
    with pytest.raises(lakesink.QueryError, match=r"stream_files needs a streaming"):
        into(spark.range(3))
    assert not Path("out").exists()
