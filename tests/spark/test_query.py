from pathlib import Path
from typing import Any

import pytest

from lakesink.checkpoint.query_facts import Replay, Source
from lakesink.spark.query import RunningQuery, same_checkpoint
from lakesink.spark.query_plan import FAIL_ON_DATA_LOSS, absolute_checkpoint, option_of, sources_of
from lakesink_protocol.errors import QueryError, SettingsError
from tests.spark.streams import file_stream, write_files


def test_streaming_sources_are_found_in_the_plan_and_static_tables_are_not(spark: Any, tmp_path: Path) -> None:
    write_files(tmp_path / "in", 1)
    static = spark.range(5)
    socket = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", 1).load()
    rows = file_stream(spark, tmp_path / "in").join(static, "id").select("text").union(socket)
    assert sources_of(rows) == [Source("FileSource", Replay.YES, lenient=True), Source("socket", Replay.NO)]


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


@pytest.mark.parametrize(
    ("given", "resolved", "same"),
    [
        ("/tmp/ck", "file:/tmp/ck", True),  # noqa: S108 - a path, never opened
        ("file:///tmp/ck", "file:/tmp/ck", True),
        ("/tmp/ck/", "file:/tmp/ck", True),  # noqa: S108 - as above
        ("/tmp/ck2", "file:/tmp/ck", False),  # noqa: S108 - as above
    ],
)
def test_a_checkpoint_is_compared_as_spark_resolves_it(
    spark: Any,
    given: str,
    resolved: str,
    same: bool,  # noqa: FBT001
) -> None:
    assert same_checkpoint(spark, given, resolved) is same
