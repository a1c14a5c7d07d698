"""The digest of rows: the same for the same rows in any order and form, and another one for other rows."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakesink.rows.side_rows import digest_sum
from lakesink.task.changelog import rows_digest

VALUES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.bool_(), True, False),
    (pa.int32(), -(2**31), 2**31 - 1),
    (pa.int64(), -(2**63), 2**63 - 1),
    (pa.float32(), 0.5, 0.25),
    (pa.float64(), 0.0, -0.0),
    (pa.float64(), float("inf"), float("nan")),
    (pa.decimal128(38, 2), Decimal(10**35), Decimal(-(10**35))),
    (pa.date32(), date.min, date.max),
    (pa.time64("us"), time.min, time.max),
    (pa.timestamp("us"), datetime.min, datetime.max),  # noqa: DTZ901 - columns without a zone
    (pa.timestamp("us", "UTC"), datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)),
    (pa.string(), "", "a\0b\u1234"),
    (pa.binary(), b"", b"\xff\0"),
    (pa.binary(16), bytes(16), bytes(15) + b"\1"),
    (pa.list_(pa.string()), [], [""]),
    (pa.struct([("a", pa.int32())]), {"a": None}, {"a": 1}),
    (pa.map_(pa.string(), pa.float64()), [("k", 0.5)], [("k", 1.5)]),
]


def of(kind: pa.DataType, *values: Any, name: str = "c") -> int:
    return rows_digest(pa.RecordBatch.from_arrays([pa.array(values, kind)], names=[name]))


@pytest.mark.parametrize(("kind", "one", "other"), VALUES)
def test_other_values_have_another_digest_and_rows_any_order(kind: pa.DataType, one: Any, other: Any) -> None:
    digests = {of(kind, one), of(kind, other), of(kind, None), of(kind, one, one), of(kind, one, other)}
    assert len(digests) == 5
    assert of(kind, one, other) == of(kind, other, one) == digest_sum(of(kind, one), of(kind, other))
    sliced = pa.RecordBatch.from_arrays([pa.array([None, other, one, None], kind)], names=["c"]).slice(1, 2)
    assert rows_digest(sliced) == of(kind, one, other)


def test_a_widened_or_new_column_changes_no_digest_and_another_name_does() -> None:
    assert of(pa.int32(), 7) == of(pa.int64(), 7)
    assert of(pa.float32(), 0.1) == of(pa.float64(), pa.scalar(0.1, pa.float32()).as_py())
    assert of(pa.decimal128(9, 2), Decimal("1.50")) == of(pa.decimal128(38, 2), Decimal("1.50"))
    new = pa.RecordBatch.from_pydict({"new": pa.nulls(1, pa.string()), "c": pa.array([7], pa.int64())})
    assert rows_digest(new) == of(pa.int64(), 7)
    assert of(pa.int64(), 7) != of(pa.int64(), 7, name="d")


def test_values_that_change_places_between_rows_change_the_digest() -> None:
    def rows(*texts: str) -> int:
        return rows_digest(pa.RecordBatch.from_pydict({"id": pa.array([1, 2]), "text": pa.array(texts)}))

    assert rows("a", "b") != rows("b", "a")


def test_no_rows_have_the_digest_0() -> None:
    assert of(pa.string()) == 0
