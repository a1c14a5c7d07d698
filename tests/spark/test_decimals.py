from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

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


KINDS = [(1, 0), (4, 4), (9, 2), (10, 2), (18, 0), (18, 18), (19, 2), (38, 10)]


def test_decimals_arrive_as_they_were_sent(spark: Any) -> None:
    values = {f"decimal({precision},{scale})": _values(precision, scale) for precision, scale in KINDS}
    schema = ", ".join(["n int", *(f"`{kind}` {kind}" for kind in values)])
    rows = spark.createDataFrame(list(zip(range(6), *values.values(), strict=True)), schema).selectExpr(
        "*",
        *(f"`{kind}` as `other {kind}`" for kind in values),
        *(f"named_struct('d', `{kind}`) as `in {kind}`" for kind in values),
    )
    found = _echoed(rows).sort_by("n")
    assert found.schema.names == rows.columns
    for (precision, scale), (kind, sent) in zip(KINDS, values.items(), strict=True):
        assert found.schema.field(kind).type == pa.decimal128(precision, scale)
        assert found[kind].to_pylist() == found[f"other {kind}"].to_pylist() == sent, kind
        assert [row["d"] for row in found[f"in {kind}"].to_pylist()] == sent, kind


def _values(precision: int, scale: int) -> list[Decimal | None]:
    """The ends of the type, and others."""
    numbers = [10**precision - 1, 1 - 10**precision, 0, None, 1, -3]
    return [None if n is None else Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)) for n in numbers]


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
