import re
from pathlib import Path
from typing import Any

import pytest

import lakesink
from lakesink.spark.rows.arrow_limits import MAX_BYTES, MAX_RECORDS
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from tests.spark.streams import file_stream, run, write_files

pytestmark = pytest.mark.usefixtures("home")
TABLE = "demo.loads"


def _append(rows: Any, version: int, app: str = "nightly", **options: Any) -> lakesink.Outcome:
    return lakesink.append(rows, TABLE, txn=(app, version), **{"create_table": True} | options)


def _ids() -> list[int]:
    table = load_table(connect(create=False), TABLE)
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def test_a_version_is_appended_once_however_often_it_is_asked_for(spark: Any) -> None:
    first = _append(spark.range(10), 1)
    assert isinstance(first, lakesink.Committed)
    assert first.rows == 10
    again = _append(spark.range(10), 1)
    assert again == lakesink.AlreadyCommitted(first.snapshot_id)
    assert _ids() == list(range(10))


def test_the_time_of_the_job_over_the_rows_is_logged(spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lakesink")
    _append(spark.range(10), 1)
    assert re.search(r"write_seconds=(?!0\.000)\d+\.\d{3}", caplog.text)


def test_a_version_that_is_in_the_table_is_not_evaluated(spark: Any) -> None:
    _append(spark.range(1), 1)
    poisoned = spark.range(1).selectExpr("cast(raise_error('evaluated') as long) as id")
    assert isinstance(_append(poisoned, 1), lakesink.AlreadyCommitted)


def test_versions_may_leave_gaps_and_applications_do_not_meet(spark: Any) -> None:
    for version, app in [(1, "a"), (5, "a"), (1, "b")]:
        assert isinstance(_append(spark.range(version), version, app), lakesink.Committed)
    assert _ids() == [0, 0, 0, 1, 2, 3, 4]


def test_a_dataframe_that_fails_leaves_nothing_and_can_be_appended_later(spark: Any) -> None:
    with pytest.raises(lakesink.WriteError) as caught:
        _append(spark.range(10).selectExpr("1 div (id - 5) as id"), 1)
    assert caught.value.code == "LAKESINK_JOB_FAILED"
    assert "DIVIDE_BY_ZERO" in str(caught.value)
    assert _ids() == []
    assert isinstance(_append(spark.range(2), 1), lakesink.Committed)


@pytest.mark.parametrize("before", [{}, {MAX_BYTES: "1m"}, {MAX_RECORDS: "7"}, {MAX_BYTES: "1m", MAX_RECORDS: "20000"}])
@pytest.mark.parametrize("query", ["select id from range(3)", "select 1 div (id - id) as id from range(3)"])
def test_the_session_is_left_as_it_was_found(spark: Any, before: dict[str, str], query: str) -> None:
    for key, value in before.items():
        spark.conf.set(key, value)
    try:
        try:
            _append(spark.sql(query), 1)
        except lakesink.WriteError:
            assert "div" in query
        assert {key: spark.conf.get(key, None) for key in (MAX_BYTES, MAX_RECORDS)} == {
            key: before.get(key) for key in (MAX_BYTES, MAX_RECORDS)
        }
    finally:
        for key in before:
            spark.conf.unset(key)


def test_append_makes_a_users_own_foreach_batch_exactly_once(spark: Any, tmp_path: Path) -> None:
    write_files(tmp_path / "in", 3)

    def batch(rows: Any, batch_id: int) -> None:
        _append(rows, batch_id, "own")

    def start() -> None:
        stream = file_stream(spark, tmp_path / "in").writeStream.foreachBatch(batch)
        run(stream.option("checkpointLocation", str(tmp_path / "ck")))

    start()
    (tmp_path / "ck" / "commits" / "2").unlink()
    (tmp_path / "ck" / "commits" / ".2.crc").unlink()
    start()
    assert _ids() == list(range(30))
    assert [record.batch_id for record in lakesink.history(TABLE)] == [0, 1, 2]


def test_rows_of_many_types_arrive_as_they_were(spark: Any) -> None:
    rows = spark.sql(
        """select id, cast(id as string) as s, cast(id as decimal(10, 2)) as d, date'2024-01-01' as day,
        timestamp_seconds(id) as t, timestamp_ntz'2024-01-01 00:00:00' as n, array(id, null) as a,
        map('k', id) as m, struct(id as x, cast(null as string) as y) as st, double('NaN') as f, binary('x') as b
        from range(5)"""
    )
    _append(rows, 1)
    table = load_table(connect(create=False), TABLE).scan().to_arrow().sort_by("id")
    assert table["a"].to_pylist() == [[number, None] for number in range(5)]
    assert table["st"].to_pylist() == [{"x": number, "y": None} for number in range(5)]
    assert [str(value) for value in table["d"].to_pylist()] == [f"{number}.00" for number in range(5)]
