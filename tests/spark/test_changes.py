"""Changes by key as a user starts them: what Spark sends to the tasks, what is refused before the start, and how."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakesink
from lakesink.api.streams import trusts_order, with_operations
from lakesink.rows.changed_rows import DELETE_MARK
from lakesink.settings.settings import Settings
from lakesink.spark.rows.arrow_limits import ArrowBatchLimits
from lakesink.spark.rows.batch_rows import FrameRows
from lakesink.spark.rows.job import Executors, RowsJob
from lakesink.spark.rows.task_count import BatchTasks, InputSize, TaskCount, Unit
from lakesink.spark.rows.transport import encode_for_transport
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_protocol.errors import LakesinkError, QueryError, SettingsError, WriteError
from tests.spark.adapters import ADAPTERS
from tests.spark.streams import counter_stream, failure, file_stream, write_files

TABLE = "demo.orders"
STREAM: dict[str, Any] = {"sink_id": "orders", "checkpoint": "ck"}
CHANGES = """
    select * from values (1, 'u', 10L), (2, 'd', 11L), (3, null, 12L) as changes(id, op, lsn)
"""


def changes(**options: Any) -> Settings:
    return Settings.parse(STREAM | {"mode": "changes", "apply_as_deletes": "op = 'd'", **options})


def keyed_table(*keys: str) -> None:
    rows = pa.schema([("id", pa.int64()), ("text", pa.string())])
    create_table(connect(), TABLE, rows, keys=keys)


# The mark of deletes


def test_a_row_is_marked_with_what_the_condition_is_for_it(spark: Any) -> None:
    rows = with_operations(spark.sql(CHANGES), changes()).collect()
    assert [row[DELETE_MARK] for row in rows] == [False, True, None]


def test_columns_that_are_left_out_do_not_travel(spark: Any) -> None:
    rows = with_operations(spark.sql(CHANGES), changes(except_column_list=["OP"]))
    assert rows.columns == ["id", "lsn", DELETE_MARK]
    assert [row[DELETE_MARK] for row in rows.collect()] == [False, True, None]
    with pytest.raises(SettingsError, match=r"except_column_list names the column 'opp'.*Did you mean 'op'"):
        with_operations(spark.sql(CHANGES), changes(except_column_list="opp"))


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("lsn + 1", "is BIGINT, not a condition"),
        ("nope = 1", "Spark cannot evaluate the condition apply_as_deletes"),
        ("op = ", "Spark cannot evaluate the condition apply_as_deletes"),
        ("count(*) = 1", "Spark cannot evaluate the condition apply_as_deletes"),
    ],
)
def test_a_condition_that_spark_cannot_evaluate_is_refused(spark: Any, condition: str, said: str) -> None:
    with pytest.raises(SettingsError, match="LAKESINK_OPTION_INVALID") as refused:
        with_operations(spark.sql(CHANGES), changes(apply_as_deletes=condition))
    assert said in refused.value.what


def test_rows_that_bring_a_mark_are_refused(spark: Any) -> None:
    with pytest.raises(SettingsError, match="a name for lakesink alone"):
        with_operations(spark.sql(f"select true as `{DELETE_MARK}`, 'd' as op"), changes())


# Before the start


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"keys": "id"}, "KEYS_UNKNOWN"),
        ({"keys": "nope"}, "OPTION_INVALID"),
        ({"keys": "id", "sequence_by": "nope"}, "OPTION_INVALID"),
    ],
)
def test_a_stream_without_a_usable_key_does_not_start(
    spark: Any, tmp_path: Path, options: dict[str, Any], code: str
) -> None:
    keyed_table()
    with pytest.raises(SettingsError, match=f"LAKESINK_{code}"):
        lakesink.stream(file_stream(spark, tmp_path), TABLE, **STREAM, mode="upsert", **options)
    assert load_table(connect(create=False), TABLE).current_snapshot() is None


@pytest.mark.usefixtures("home")
def test_the_format_refuses_other_keys_in_its_first_batch(spark: Any, tmp_path: Path) -> None:
    keyed_table("id")
    write_files(tmp_path / "in", 1)
    options = STREAM | {"mode": "upsert", "keys": "id,text"}
    assert "[LAKESINK_KEYS_DIFFER]" in failure(
        ADAPTERS["format"](file_stream(spark, tmp_path / "in"), TABLE, **options)
    )


@pytest.mark.usefixtures("home")
def test_append_and_upsert_refuse_the_mode_of_each_other(spark: Any) -> None:
    rows = spark.range(1)
    with pytest.raises(SettingsError, match=r"lakesink.append has no mode='upsert'"):
        lakesink.append(rows, TABLE, txn=("job", 1), mode="upsert")
    with pytest.raises(SettingsError, match=r"lakesink.upsert has no mode='append'"):
        lakesink.upsert(rows, TABLE, txn=("job", 1), mode="append")
    with pytest.raises(QueryError, match=r"LAKESINK_WRONG_DATAFRAME.*lakesink.upsert needs a batch"):
        lakesink.upsert(counter_stream(spark), TABLE, txn=("job", 1))


# Output mode


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(("asked", "changed"), [("update", "append"), ("update", "complete"), ("append", "update")])
def test_a_changed_output_mode_is_refused(spark: Any, tmp_path: Path, asked: str, changed: str) -> None:
    write_files(tmp_path / "in", 1)
    rows = file_stream(spark, tmp_path / "in")
    counted = rows if "append" in (asked, changed) else rows.groupBy("text").count()  # Spark appends no counts
    options = STREAM | {"mode": "upsert", "keys": "text", "output_mode": asked, "create_table": True}
    stream = lakesink.stream(counted, TABLE, **options)
    said = failure(stream.outputMode(changed))
    assert f"LAKESINK_OUTPUT_MODE] The query runs in output mode '{changed}'" in said
    assert f"as it is: {asked}" in said


@pytest.mark.usefixtures("home")
def test_an_aggregation_without_a_watermark_learns_before_the_start_how_its_results_can_be_written(
    spark: Any, tmp_path: Path
) -> None:
    counted = file_stream(spark, tmp_path).groupBy("text").count()
    with pytest.raises(QueryError, match="LAKESINK_OUTPUT_MODE") as refused:
        lakesink.stream(counted, TABLE, **STREAM, create_table=True)
    assert "withWatermark" in refused.value.choices[0]
    assert "mode='upsert', output_mode='update'" in refused.value.choices[1]


# The order of a stream


def test_a_stream_says_that_its_order_is_trusted_unless_something_orders_its_changes(
    spark: Any, tmp_path: Path
) -> None:
    rows = file_stream(spark, tmp_path)
    assert trusts_order(rows, changes())
    assert not trusts_order(rows, changes(sequence_by="id"))
    assert not trusts_order(rows, Settings.parse(STREAM))
    assert not trusts_order(rows, Settings.parse(STREAM | {"mode": "upsert", "output_mode": "update"}))
    events = Settings.parse(STREAM | {"mode": "changes", "decode": "debezium-json"})
    assert trusts_order(rows, events)
    assert not trusts_order(rows.selectExpr("*", "1 AS partition", "2L AS offset"), events)


# The format


# One task for a key


@dataclass(frozen=True)
class KeysSeen:
    """Returns the keys that a task got."""

    clustered_by: tuple[tuple[tuple[str, ...], str], ...] = ((("key",), "identity"),)
    by_range: bool = False

    def write(self, _task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        return json.dumps(sorted({key for batch in batches for key in batch.column("key").to_pylist()})).encode()


def tasks_of(rows: Any, tasks: BatchTasks | None) -> list[list[str]]:
    limits = ArrowBatchLimits(rows.sparkSession.conf, rows.schema.jsonValue())
    job = RowsJob(FrameRows(*encode_for_transport(rows)), limits, lambda _: False, tasks=tasks)
    return [json.loads(receipt) for receipt in job.write({"it": KeysSeen()}).receipts("it")]


ROWS = "select concat('k', id % 50) as key from range(0, 1000, 1, 4)"


def test_all_changes_of_a_key_come_to_one_task(spark: Any) -> None:
    large = BatchTasks(TaskCount(4), InputSize(Unit.INPUT_BYTES, 2**30))
    found = tasks_of(spark.sql(ROWS), large)
    assert len(found) > 1
    assert sorted(key for keys in found for key in keys) == sorted(f"k{number}" for number in range(50))


def test_a_batch_that_is_worth_one_task_is_not_shuffled(spark: Any) -> None:
    small = BatchTasks(TaskCount(4), InputSize(Unit.ROWS, 1000))
    assert len(tasks_of(spark.sql(ROWS), small)) == 1


# Functions in executors


def squared(number: int, *, plus: int) -> bytes:
    if number == 13:
        raise WriteError("LOSSY_VALUE", "13 is refused.", action="Leave it out.")
    return str(number * number + plus).encode()


def test_executors_return_the_bytes_of_every_item_in_their_order(spark: Any) -> None:
    run_there = Executors(spark)
    assert run_there(partial(squared, plus=1), list(range(9))) == [str(n * n + 1).encode() for n in range(9)]
    assert run_there(partial(squared, plus=1), []) == []


def test_a_function_that_fails_in_an_executor_fails_with_its_own_error(spark: Any) -> None:
    with pytest.raises(LakesinkError, match=r"LAKESINK_LOSSY_VALUE.*13 is refused"):
        Executors(spark)(partial(squared, plus=1), [12, 13])
