from pathlib import Path
from typing import Any

import pytest

from lakesink.checkpoint.sources import Replay, Source, gives_uncommitted, guarantee, replay_of
from lakesink.spark.query import FAIL_ON_DATA_LOSS, RunningQuery, absolute_checkpoint, option_of, sources_of
from lakesink_protocol.errors import QueryError, SettingsError
from tests.spark.streams import file_stream, write_files


@pytest.mark.parametrize(
    ("name", "fail_on_data_loss", "expected"),
    [
        ("kafka", None, Replay.YES),
        ("kafka", "true", Replay.YES),
        ("kafka", " False ", Replay.MAY_LOSE),
        ("FileSource[/in]", None, Replay.YES),
        ("rate", None, Replay.YES),
        ("rate-micro-batch", None, Replay.YES),
        ("socket", None, Replay.NO),
        ("kinesis", None, Replay.UNKNOWN),
    ],
)
def test_each_source_has_its_cell_of_the_guarantee(name: str, fail_on_data_loss: str | None, expected: Replay) -> None:
    assert replay_of(name, fail_on_data_loss) is expected


@pytest.mark.parametrize(
    ("name", "isolation_level", "expected"),
    [
        ("kafka", None, True),
        ("kafka", "read_uncommitted", True),
        ("kafka", " Read_Committed ", False),
        ("rate", None, False),
    ],
)
def test_a_kafka_source_gives_aborted_records_unless_told_otherwise(
    name: str, isolation_level: str | None, *, expected: bool
) -> None:
    assert gives_uncommitted(name, isolation_level) is expected


@pytest.mark.parametrize(
    ("replays", "expected"),
    [
        ([Replay.YES, Replay.YES], Replay.YES),
        ([Replay.YES, Replay.NO, Replay.MAY_LOSE], Replay.NO),
        ([Replay.UNKNOWN, Replay.MAY_LOSE], Replay.UNKNOWN),
        ([], Replay.UNKNOWN),
    ],
)
def test_the_weakest_source_decides(replays: list[Replay], expected: Replay) -> None:
    assert guarantee([Source("s", replay) for replay in replays]) is expected


def test_streaming_sources_are_found_in_the_plan_and_static_tables_are_not(spark: Any, tmp_path: Path) -> None:
    write_files(tmp_path / "in", 1)
    static = spark.range(5)
    socket = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", 1).load()
    rows = file_stream(spark, tmp_path / "in").join(static, "id").select("text").union(socket)
    assert sources_of(rows) == [Source("FileSource", Replay.YES), Source("socket", Replay.NO)]


@pytest.mark.parametrize("format_name", ["rate", "json"])
def test_an_option_of_a_source_is_found_whatever_its_case(spark: Any, tmp_path: Path, format_name: str) -> None:
    reader = spark.readStream.schema("a long") if format_name == "json" else spark.readStream
    rows = reader.format(format_name).option("FAILONDATALOSS", "false").load(str(tmp_path))
    leaf = rows._jdf.queryExecution().analyzed().collectLeaves().apply(0)  # noqa: SLF001 - Kafka is not installed
    assert option_of(leaf, FAIL_ON_DATA_LOSS) == "false"
    assert option_of(leaf, "other") is None


@pytest.mark.parametrize("query_id", ["00000000-0000-0000-0000-000000000000", None])
def test_a_query_that_the_session_does_not_run_is_refused(spark: Any, query_id: str | None) -> None:
    with pytest.raises(QueryError) as caught:
        RunningQuery(spark, query_id)
    assert caught.value.code == "LAKESINK_QUERY_UNKNOWN"
    assert "PYSPARK_PIN_THREAD" in caught.value.action


@pytest.mark.parametrize("given", ["/a/b", "s3a://bucket/ck", "file:/a/b"])
def test_an_absolute_checkpoint_stays_as_it_is(spark: Any, given: str) -> None:
    assert absolute_checkpoint(spark, given) == given


def test_a_relative_checkpoint_is_pythons_folder_not_the_jvms(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_checkpoint(spark, "ck/./events") == str(tmp_path / "ck" / "events")


def test_a_relative_checkpoint_is_refused_where_sparks_default_file_system_is_not_local(spark: Any) -> None:
    other = spark.newSession()
    other.conf.set("fs.defaultFS", "hdfs://namenode:8020")
    with pytest.raises(SettingsError) as caught:
        absolute_checkpoint(other, "ck")
    assert caught.value.code == "LAKESINK_CHECKPOINT_RELATIVE"
