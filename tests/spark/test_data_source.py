"""``format("lakesink")`` beside `lakesink.stream`: one checkpoint for both, batch writes, and bad input."""

import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.types import LongType, StringType, StructType

import lakesink
from lakesink.spark.source.data_source import LakesinkDataSource
from lakesink.spark.source.source_tasks import StreamTask, TaskMessage
from lakesink.spark.source.source_writers import StreamWriter
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.errors import CatalogError, WriteError
from tests.spark.adapters import ADAPTERS, by_format, embedded_catalog
from tests.spark.streams import failure, file_stream, forget_commits, run, write_files

pytestmark = pytest.mark.usefixtures("home")
TABLE = "demo.events"
OPTIONS: dict[str, Any] = {"sink_id": "events", "checkpoint": "ck", "create_table": True}
SWITCHES = [pytest.param(*pair, id="-to-".join(pair)) for pair in itertools.permutations(ADAPTERS)]


def _ids(table: str = TABLE) -> list[int]:
    return sorted(load_table(connect(create=False), table).scan().to_arrow()["id"].to_pylist())


def _outcomes() -> list[tuple[int, str]]:
    return [(record.batch_id, record.outcome) for record in lakesink.history(TABLE)]


@pytest.mark.parametrize(("first", "second"), SWITCHES)
@pytest.mark.dear
def test_a_stream_goes_on_by_the_other_adapter(spark: Any, source: Path, first: str, second: str) -> None:
    run(ADAPTERS[first](file_stream(spark, source), TABLE, **OPTIONS))
    write_files(source, 2, first=3)
    run(ADAPTERS[second](file_stream(spark, source), TABLE, **OPTIONS))
    assert _ids() == list(range(50))
    assert _outcomes() == [(number, "committed") for number in range(5)]


@pytest.mark.parametrize(("first", "second"), SWITCHES)
@pytest.mark.dear
def test_a_replay_is_recognised_by_the_other_adapter(
    spark: Any, source: Path, home: Path, first: str, second: str
) -> None:
    run(ADAPTERS[first](file_stream(spark, source), TABLE, **OPTIONS))
    files = sorted(home.rglob("*.parquet"))
    forget_commits(Path("ck"), 1)
    run(ADAPTERS[second](file_stream(spark, source), TABLE, **OPTIONS))
    assert _outcomes() == [(number, "committed") for number in range(3)]
    assert sorted(home.rglob("*.parquet")) == files


@pytest.mark.parametrize(("first", "second"), SWITCHES)
def test_what_one_adapter_prepared_the_other_commits(
    spark: Any, source: Path, home: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    monkeypatch.setenv("LAKESINK_FAILPOINTS", "after-prepared@1=raise")
    assert "FailpointReached" in failure(ADAPTERS[first](file_stream(spark, source), TABLE, **OPTIONS))
    monkeypatch.delenv("LAKESINK_FAILPOINTS")
    files = set(home.rglob("*.parquet"))
    run(ADAPTERS[second](file_stream(spark, source), TABLE, **OPTIONS))
    assert _ids() == list(range(30))
    assert _outcomes() == [(0, "committed"), (1, "recovered"), (2, "committed")]
    assert len(set(home.rglob("*.parquet")) - files) == 1


def test_registered_it_writes_into_the_embedded_catalog_that_python_sees(spark: Any, source: Path) -> None:
    lakesink.register(spark)
    options = {"table": TABLE, "sink-id": "events", "create-table": "true", "checkpointLocation": f"{source}-ck"}
    run(file_stream(spark, source).writeStream.format("lakesink").options(**options))
    assert _ids() == list(range(30))


def test_a_batch_write_is_done_once_for_each_version(spark: Any) -> None:
    spark.dataSource.register(LakesinkDataSource)
    options = embedded_catalog() | {"table": TABLE, "txn-app-id": "nightly", "create-table": "true"}
    for version, rows in [("1", 10), ("1", 10), ("2", 3), ("1", 10)]:
        spark.range(rows).write.format("lakesink").mode("append").options(**options, **{"txn-version": version}).save()
    assert _ids() == sorted([*range(10), *range(3)])
    assert _outcomes() == [(1, "committed"), (2, "committed")]


def test_append_knows_the_versions_of_batch_writes(spark: Any) -> None:
    spark.dataSource.register(LakesinkDataSource)
    options = embedded_catalog() | {"table": TABLE, "txn-app-id": "nightly", "txn-version": "7", "create-table": "true"}
    spark.range(3).write.format("lakesink").mode("append").options(**options).save()
    assert isinstance(lakesink.append(spark.range(3), TABLE, txn=("nightly", 7)), lakesink.AlreadyCommitted)
    assert _ids() == [0, 1, 2]


def test_a_failed_batch_write_leaves_nothing(spark: Any) -> None:
    spark.dataSource.register(LakesinkDataSource)
    options = embedded_catalog() | {"table": TABLE, "txn-app-id": "nightly", "txn-version": "1", "create-table": "true"}
    poisoned = spark.range(10).selectExpr("1 div (id - 5) as id")
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        poisoned.write.format("lakesink").mode("append").options(**options).save()
    assert _ids() == []


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"table": "events"}, "LAKESINK_TABLE_NAME_INVALID"),
        ({"tabel": "x"}, "LAKESINK_OPTION_UNKNOWN"),
        ({"catalog.token": "canary-1234"}, "LAKESINK_OPTION_SECRET"),
        ({"create-table": "false"}, "LAKESINK_TABLE_MISSING"),
    ],
)
def test_bad_options_end_the_query_by_name_and_write_nothing(
    spark: Any, source: Path, home: Path, changed: dict[str, str], code: str
) -> None:
    text = failure(by_format(file_stream(spark, source), TABLE, **OPTIONS).options(**changed))
    assert f"[{code}]" in text
    assert not list(home.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"compression-level": "99"}, "The option compression-level is 99"),
        ({"partition-by": "day(nothing)"}, "partition-by: "),
        ({"compression-level": "none"}, "The option compression-level is 'none'"),
    ],
)
def test_errors_of_the_planner_name_the_options_of_the_format(
    spark: Any, source: Path, changed: dict[str, str], named: str
) -> None:
    text = failure(by_format(file_stream(spark, source), TABLE, **OPTIONS).options(**changed))
    assert named in text


def test_errors_of_a_batch_write_name_the_options_of_the_format(spark: Any) -> None:
    spark.dataSource.register(LakesinkDataSource)
    options = embedded_catalog() | {"table": TABLE, "txn-app-id": "nightly", "txn-version": "1"}
    options |= {"create-table": "true", "compression-level": "99"}
    with pytest.raises(PySparkException, match="The option compression-level is 99"):
        spark.range(3).write.format("lakesink").mode("append").options(**options).save()


def test_a_branch_that_a_new_table_cannot_have_is_refused_before_the_table_is_created(spark: Any, source: Path) -> None:
    text = failure(by_format(file_stream(spark, source), TABLE, **OPTIONS).options(branch="nope"))
    assert "[LAKESINK_BRANCH_MISSING] There is no branch 'nope'" in text
    with pytest.raises(CatalogError, match="LAKESINK_TABLE_MISSING"):
        load_table(connect(create=False), TABLE)


def test_sparks_own_partitions_do_not_reach_the_format(spark: Any, source: Path) -> None:
    run(by_format(file_stream(spark, source), TABLE, **OPTIONS).partitionBy("text"))
    assert load_table(connect(create=False), TABLE).spec().is_unpartitioned()  # as the page of the format says
    options = embedded_catalog() | {"table": TABLE, "txn-app-id": "nightly", "txn-version": "1"}
    writer = spark.range(3).write.partitionBy("id").format("lakesink").mode("append").options(**options)
    with pytest.raises(PySparkException, match="do not match the existing table's"):  # Spark's own words
        writer.save()


def test_a_checkpoint_of_sparks_configuration_is_not_enough(spark: Any, source: Path, tmp_path: Path) -> None:
    spark.dataSource.register(LakesinkDataSource)
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "somewhere"))
    options = embedded_catalog() | {"table": TABLE, "sink-id": "events", "create-table": "true"}
    try:
        text = failure(file_stream(spark, source).writeStream.format("lakesink").options(**options))
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert "[LAKESINK_OPTION_MISSING]" in text
    assert "checkpointLocation" in text


def test_only_appending_queries_are_taken(spark: Any, source: Path, home: Path) -> None:
    counted = file_stream(spark, source).groupBy("text").count()
    assert "[LAKESINK_OUTPUT_MODE]" in failure(by_format(counted, TABLE, **OPTIONS).outputMode("complete"))
    other = by_format(counted, TABLE, **(OPTIONS | {"checkpoint": "other"}))
    assert "lakesink does not support Update mode" in failure(other.outputMode("update"))  # Spark's own words
    assert not list(home.rglob("*.parquet"))


def test_a_continuous_query_is_told_which_triggers_there_are_and_writes_nothing(spark: Any, home: Path) -> None:
    rows = spark.readStream.format("rate").load().selectExpr("value as id")
    query = by_format(rows, TABLE, **OPTIONS).trigger(continuous="1 second").start()
    with pytest.raises(StreamingQueryException) as refused:
        query.awaitTermination(60)
    text = str(refused.value)
    assert "[LAKESINK_TRIGGER_UNSUPPORTED]" in text
    assert "Use the trigger availableNow or processingTime, and an absolute" in text
    assert "Restore the checkpoint" not in text
    assert not list(home.rglob("*.parquet"))


def test_an_overwriting_batch_write_is_refused(spark: Any) -> None:
    spark.dataSource.register(LakesinkDataSource)
    options = embedded_catalog() | {"table": TABLE, "txn-app-id": "nightly", "txn-version": "1", "create-table": "true"}
    with pytest.raises(PySparkException, match="LAKESINK_OUTPUT_MODE"):
        spark.range(3).write.format("lakesink").mode("overwrite").options(**options).save()


def test_a_source_that_is_read_twice_is_refused_where_its_log_cannot_be_told(spark: Any, source: Path) -> None:
    rows = file_stream(spark, source)
    assert "[LAKESINK_SOURCE_READ_TWICE]" in failure(by_format(rows.union(rows), TABLE, **OPTIONS))


def _prepared_by_spark(spark: Any, source: Path) -> StreamWriter:
    """The writer of a checkpoint's newest batch, which is not in the table."""
    _fail_batch_3(spark, source)
    return _new_writer()


def _fail_batch_3(spark: Any, source: Path) -> None:
    run(by_format(file_stream(spark, source), TABLE, **OPTIONS))
    write_files(source, 1, first=3)
    assert "DIVIDE_BY_ZERO" in failure(
        by_format(file_stream(spark, source).selectExpr("1 div (id - 35) as id", "text"), TABLE, **OPTIONS)
    )


def _new_writer() -> StreamWriter:
    schema = StructType().add("id", LongType()).add("text", StringType())
    options = embedded_catalog() | {
        "table": TABLE,
        "sink-id": "events",
        "checkpointlocation": str(Path("ck").resolve()),
    }
    writer = LakesinkDataSource(options).streamWriter(schema, overwrite=False)
    assert isinstance(writer, StreamWriter)
    return writer


def test_what_tasks_get_holds_no_option_and_no_client(spark: Any, source: Path) -> None:
    shipped = pickle.dumps(_prepared_by_spark(spark, source))
    assert isinstance(pickle.loads(shipped), StreamTask)  # noqa: S301 - made by the line above
    assert b"sqlite" not in shipped
    assert b"ck" not in shipped


def test_a_batch_without_all_of_its_votes_is_not_committed(spark: Any, source: Path) -> None:
    _fail_batch_3(spark, source)
    for messages in ([], [None, None], [None], [TaskMessage(0, "0.1.0", b"junk")], [TaskMessage(0, "0.1.0", None)]):
        writer = _new_writer()
        with pytest.raises(WriteError):
            writer.commit(messages, 3)
        assert _ids() == list(range(30)), messages
    run(by_format(file_stream(spark, source), TABLE, **OPTIONS))
    assert _ids() == list(range(40))


def test_an_abort_with_all_messages_deletes_nothing(spark: Any, source: Path, home: Path) -> None:
    writer = _prepared_by_spark(spark, source)
    before = sorted(path for path in home.rglob("*") if path.is_file())
    writer.abort([TaskMessage(0, "0.1.0", b""), None], 2)
    assert sorted(path for path in home.rglob("*") if path.is_file()) == before


def test_the_fingerprint_is_that_of_the_other_adapter(spark: Any, source: Path) -> None:
    run(ADAPTERS["stream"](file_stream(spark, source), TABLE, **OPTIONS))
    entry = json.loads(load_table(connect(create=False), TABLE).properties["lakesink.ledger.stream.events"])
    options = embedded_catalog() | {
        "table": TABLE,
        "sink-id": "events",
        "checkpointlocation": str(Path("ck").resolve()),
    }
    writer = LakesinkDataSource(options).streamWriter(StructType(), overwrite=False)
    assert isinstance(writer, StreamWriter)
    assert writer._batch(2).fingerprint in entry.values()  # noqa: SLF001 - what both must agree on
