from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

import lakesink
from lakesink.spark.rows.batch_rows import distributed, partition_expression
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table


@pytest.fixture(autouse=True)
def zone(spark: Any) -> Iterator[None]:
    """One of half hours, with summer time."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Australia/Lord_Howe")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


ROWS = """
    select id, cast(id as int) - 500 as n, concat('key ', id % 7, ' ', id) as text, id % 5 as few,
        timestamp_micros(id * 1800000000 - 900000000000) as at,
        timestamp_ntz'1969-12-30 00:00:00' + make_dt_interval(0, 0, id * 30) as plain,
        date_add(date'1969-12-01', cast(id / 20 as int)) as day, named_struct('b`c', id % 3) as a
    from range(0, 2000, 1, 8)
"""
MICROS_OF_HOUR = "floor(unix_micros(at) / 3600000000)"
EQUAL = [
    (("few",), "identity", "few"),
    (("a", "b`c"), "identity", "a.`b``c`"),
    (("n",), "truncate[10]", "floor(n / 10)"),
    (("text",), "truncate[5]", "substring(text, 1, 5)"),
    (("at",), "hour", MICROS_OF_HOUR),
    (("at",), "day", f"floor({MICROS_OF_HOUR} / 24)"),
    (("at",), "month", f"trunc(date_from_unix_date(cast(floor({MICROS_OF_HOUR} / 24) as int)), 'month')"),
    (("plain",), "hour", "date_format(plain, 'yyyy-MM-dd HH')"),
    (("plain",), "day", "cast(plain as date)"),
    (("plain",), "year", "year(plain)"),
    (("day",), "month", "trunc(day, 'month')"),
    (("day",), "day", "day"),
]


def expressions(rows: DataFrame, fields: Sequence[tuple[Sequence[str], str]]) -> list[Column]:
    found = [partition_expression(rows, path, transform) for path, transform in fields]
    return [one.alias(f"expression_{at}") for at, one in enumerate(found) if one is not None]


def test_rows_of_a_partition_have_one_value_to_shuffle_by(spark: Any) -> None:
    rows = spark.sql(ROWS)
    values = [sf.expr(value).alias(f"value_{at}") for at, (_, _, value) in enumerate(EQUAL)]
    found = rows.select(*values, *expressions(rows, [(path, transform) for path, transform, _ in EQUAL])).toArrow()
    for at, (path, transform, _) in enumerate(EQUAL):
        pairs = set(zip(found[f"value_{at}"].to_pylist(), found[f"expression_{at}"].to_pylist(), strict=True))
        assert len({value for value, _ in pairs}) == len(pairs) > 1, (path, transform)
        assert len({expression for _, expression in pairs}) > 1, (path, transform)


def test_rows_with_one_value_come_to_one_task(spark: Any) -> None:
    found = distributed(spark.sql(ROWS), [(("few",), "identity"), (("n",), "bucket[4]")])
    tasks = found.selectExpr("few", "spark_partition_id() as task").toArrow()
    assert tasks.num_rows == 2000
    assert len(set(zip(tasks["few"].to_pylist(), tasks["task"].to_pylist(), strict=True))) == 5
    assert len(set(tasks["task"].to_pylist())) > 1


ENDS = """
    select explode(array(cast(-9223372036854775808 as bigint), 0, 9223372036854775807)) as long,
        cast(if(long < 0, -2147483648, if(long > 0, 2147483647, 0)) as int) as whole,
        cast(if(long < 0, -128, if(long > 0, 127, 0)) as tinyint) as tiny,
        timestamp_micros(long) as at, cast(timestamp_micros(long) as timestamp_ntz) as plain,
        date_from_unix_date(whole) as day
"""
AT_THE_ENDS = [
    *((column, "truncate[10]") for column in ("long", "whole", "tiny")),
    *((column, period) for column in ("at", "plain", "day") for period in ("hour", "day", "month", "year")),
]


def test_names_are_those_of_the_rows_where_spark_tells_cases_apart(spark: Any) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        rows = spark.sql("select id as k, named_struct('X', id % 3) as a, 1 as b, 2 as B from range(9)")
        fields = [(("K",), "identity"), (("A", "x"), "identity"), (("b",), "identity")]
        found = rows.select(*expressions(rows, fields)).toArrow()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert [set(column.to_pylist()) for column in found.columns] == [set(range(9)), {0, 1, 2}]


@pytest.mark.parametrize("plain", [False, True])
def test_values_at_the_ends_of_their_type_are_distributed_too(spark: Any, *, plain: bool) -> None:
    if plain:  # only in UTC each of its values is a moment
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    rows = spark.sql(ENDS)
    fields = [((column,), transform) for column, transform in AT_THE_ENDS if (column == "plain") == plain]
    found = rows.select(*expressions(rows, fields)).toArrow()
    assert (found.num_rows, found.num_columns) == (3, len(fields))


@pytest.mark.parametrize("path_and_transform", [[], [(("n",), "bucket[4]")], [(("nowhere",), "identity")]])
def test_rows_stay_where_they_are_if_there_is_nothing_to_shuffle_by(spark: Any, path_and_transform: Any) -> None:
    rows = spark.sql(ROWS)
    assert distributed(rows, path_and_transform) is rows


@pytest.mark.parametrize(("mode", "files"), [("none", 20), ("hash", 5), ("RANGE", 5)])
def test_with_hash_distribution_a_partition_has_one_file_of_a_batch(
    spark: Any, tmp_path: Path, mode: str, files: int
) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path / 'c.db'}", "warehouse": f"file://{tmp_path}"}
    catalog: dict[str, Any] = {"catalog": "lake", "catalog_properties": properties}
    rows = spark.sql(ROWS).select("id", "few").repartition(4)
    lakesink.append(
        rows, "a.b", txn=("app", 1), create_table=True, partition_by="few", distribution_mode=mode, **catalog
    )
    found = load_table(connect("lake", properties), "a.b")
    assert len(list(found.scan().plan_files())) == files
    assert found.scan().to_arrow().num_rows == 2000


@pytest.mark.parametrize("partition_by", [None, "few"])
@pytest.mark.parametrize(
    ("sort_by", "column", "of_order"),
    [
        ("n desc, text", "n", int),
        ("truncate(6, text) nulls last", "text", lambda text: text[:6]),
        ("hour(at), id", "at", lambda at: at.replace(minute=0)),
        ("bucket(4, id), id nulls last", "id", int),
    ],
)
def test_with_range_distribution_the_files_of_a_batch_follow_one_another(
    spark: Any, tmp_path: Path, sort_by: str, column: str, of_order: Callable[[Any], Any], partition_by: str | None
) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path / 'c.db'}", "warehouse": f"file://{tmp_path}"}
    rows = spark.sql(ROWS).select("id", "few", "n", "text", "at").repartition(8)
    for mode in ("none", "range"):
        given: Any = {"partition_by": partition_by, "sort_by": sort_by, "distribution_mode": mode, "create_table": True}
        lakesink.append(rows, f"a.{mode}", txn=("app", 1), catalog="lake", catalog_properties=properties, **given)
        found = load_table(connect("lake", properties), f"a.{mode}")
        files = [pq.read_table(task.file.file_path.removeprefix("file://")) for task in found.scan().plan_files()]
        by_partition = defaultdict(list)
        for file in files:
            values = list(map(of_order, file[column].to_pylist()))
            by_partition[file["few"][0].as_py() if partition_by else None].append((min(values), max(values)))
        pairs = [pair for bounds in by_partition.values() for pair in pairwise(sorted(bounds))]
        assert len(files) > 1 if partition_by else pairs
        assert all(high <= low for (_, high), (low, _) in pairs) is (mode == "range")
        assert sorted(row for file in files for row in file["id"].to_pylist()) == list(range(2000))
