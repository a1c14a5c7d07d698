from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakesink.spark.rows.transport import as_whole_numbers, short_decimals
from tests.spark.test_job import _job


class Echo:
    """Sends back what arrives, as Arrow."""

    def write(self, _: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        table = pa.Table.from_batches(list(batches))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return bytes(sink.getvalue())


def _echoed(rows: Any) -> pa.Table:
    job = _job(rows.coalesce(1))
    [receipt] = job.write({"it": Echo()}).receipts("it")
    job.limits.restore()
    return pa.ipc.open_stream(receipt).read_all()


@pytest.mark.parametrize(
    ("precision", "scale"), [(1, 0), (4, 4), (9, 2), (10, 2), (18, 0), (18, 18), (19, 2), (38, 10)]
)
def test_decimals_arrive_as_they_were_sent(spark: Any, precision: int, scale: int) -> None:
    numbers = [10**precision - 1, 1 - 10**precision, 0, None, 1, -3]
    values = [None if n is None else Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)) for n in numbers]
    kind = f"decimal({precision},{scale})"
    rows = spark.createDataFrame([(value, n) for n, value in enumerate(values)], f"d {kind}, n int").selectExpr(
        "n", "d", "d as `other one`", "named_struct('d', d) as s"
    )
    found = _echoed(rows)
    assert found.schema.field("d").type == pa.decimal128(precision, scale)
    assert found.schema.names == ["n", "d", "other one", "s"]
    by_place = sorted(found.to_pylist(), key=lambda row: row["n"])
    assert [row["d"] for row in by_place] == [row["other one"] for row in by_place] == values
    assert [row["s"]["d"] for row in by_place] == values


def test_decimals_of_columns_with_odd_names_arrive_too(spark: Any) -> None:
    rows = spark.sql("select cast(1.5 as decimal(3,1)) as a, 2 as b, cast(-2.5 as decimal(3,1)) as c").toDF(
        "a.b", "x", "a.b"
    )
    found = _echoed(rows)
    assert found.schema.names == ["a.b", "x", "a.b"]
    assert [column.to_pylist() for column in found.columns] == [[Decimal("1.5")], [2], [Decimal("-2.5")]]


def test_only_what_spark_keeps_in_a_long_travels_as_one(spark: Any) -> None:
    rows = spark.sql("select cast(1 as decimal(18,3)) as short, cast(1 as decimal(19,3)) as long, 1 as number")
    assert short_decimals(rows) == {0: (18, 3)}
    travelling = as_whole_numbers(rows, short_decimals(rows))
    assert [field.dataType.simpleString() for field in travelling.schema] == ["bigint", "decimal(19,3)", "int"]
    assert travelling.collect()[0]["short"] == 1000
