"""Marks of expectations: they are counted, taken off, and never written."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakesink.rows.changed_rows import DELETE_MARK
from lakesink.rows.expectations import Expected, OnUnmet, Unmet, expected_in, without_marks
from lakesink.rows.letters import Fault
from lakesink.task.stages import ExpectMarked
from lakesink_protocol.measures import UNMET_ROWS, Tally
from lakesink_protocol.quality import Quality
from lakesink_protocol.receipt import Receipt
from testkit.tasks import plan_for, rows_of, write

AGE, NAMED = Expected("valid_age", OnUnmet.WARN), Expected("has_name", OnUnmet.FAIL)
ROWS = Schema(NestedField(1, "id", LongType()))


def batch(*rows: tuple[int, bool | None, bool | None]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    types = (pa.int64(), pa.bool_(), pa.bool_())
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=["id", AGE.mark, NAMED.mark])


def written(folder: Path, *batches: pa.RecordBatch) -> Receipt:
    return write(plan_for(ROWS, folder), batches, expected=(AGE, NAMED))


def test_rows_that_do_not_meet_a_warning_are_written_and_counted(tmp_path: Path) -> None:
    receipt = written(tmp_path, batch((1, True, True), (2, False, True)), batch((3, None, True)))
    assert receipt.quality == Quality(Tally({UNMET_ROWS: 2}), unmet={"valid_age": 2, "has_name": 0})
    assert (receipt.rows, receipt.refused) == (3, False)
    assert rows_of(receipt.files) == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_a_row_that_fails_the_batch_leaves_no_file_and_all_rows_are_counted(tmp_path: Path) -> None:
    receipt = written(tmp_path, batch((1, True, True)), batch((2, False, False)), batch((3, True, False)))
    assert receipt.quality == Quality(Tally({UNMET_ROWS: 2}), unmet={"valid_age": 1, "has_name": 2})
    assert (receipt.rows, receipt.files, receipt.refused) == (3, (), True)
    assert not [path for path in tmp_path.rglob("*.parquet") if path.is_file()]


def test_a_task_without_rows_says_that_all_were_met(tmp_path: Path) -> None:
    assert written(tmp_path).quality == Quality(unmet={"valid_age": 0, "has_name": 0})


def test_marks_of_a_slice_are_those_of_its_rows() -> None:
    unmet = Unmet((AGE, NAMED))
    rows = batch(*((number, number % 3 != 0, number % 2 == 0) for number in range(1_000)))
    [taken] = ExpectMarked(unmet, None).through(iter([rows.slice(7, 500)]))
    assert taken.schema.names == ["id"]
    assert taken.column("id").to_pylist() == list(range(7, 507))
    assert unmet.unmet == {
        "valid_age": sum(number % 3 == 0 for number in range(7, 507)),
        "has_name": sum(number % 2 == 1 for number in range(7, 507)),
    }
    assert unmet.unmet_rows == sum(number % 3 == 0 or number % 2 == 1 for number in range(7, 507))


def test_neither_a_delete_is_judged_nor_a_row_of_unknown_operation() -> None:
    unmet = Unmet((Expected("valid_age", OnUnmet.QUARANTINE), NAMED))
    marks = [("age", [True, False, False, False]), ("name", [False, False, False, None])]
    columns = {"id": [1, 2, 3, 4], **dict(marks), DELETE_MARK: [False, True, None, False]}
    names = {"age": unmet.expected[0].mark, "name": NAMED.mark}
    rows = pa.record_batch({names.get(name, name): values for name, values in columns.items()})
    aside: list[Any] = []
    [kept] = ExpectMarked(unmet, lambda *put: aside.append(put)).through(iter([rows]))
    assert kept.to_pylist() == [
        {"id": 1, DELETE_MARK: False},
        {"id": 2, DELETE_MARK: True},
        {"id": 3, DELETE_MARK: None},
    ]
    assert (unmet.unmet, unmet.unmet_rows) == ({"valid_age": 1, "has_name": 2}, 2)
    [(put, faults)] = aside
    assert faults == {3: Fault("EXPECTATION_UNMET", "valid_age")}
    assert put.came.schema.names == ["id"]


def test_the_marks_of_a_schema_are_its_expectations() -> None:
    schema = batch().schema
    assert expected_in(schema) == (AGE, NAMED)
    assert without_marks(schema) == pa.schema([("id", pa.int64())])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_lakesink_expect_warn_valid_age", pa.int8()),
        ("_lakesink_expect_shrug_valid_age", pa.bool_()),
        ("_lakesink_expect_warn_", pa.bool_()),
        ("_lakesink_expect_warn_9", pa.bool_()),
        ("_lakesink_expect_", pa.bool_()),
        (f"_lakesink_expect_warn_{'x' * 64}", pa.bool_()),
    ],
)
def test_a_column_with_the_name_of_a_mark_that_is_none_is_refused(name: str, kind: Any) -> None:
    with pytest.raises(ValueError, match="no expectation"):
        expected_in(pa.schema([("id", pa.int64()), (name, kind)]))


def test_two_expectations_of_one_name_are_refused() -> None:
    other = Expected("valid_age", OnUnmet.FAIL)
    with pytest.raises(ValueError, match="the same name"):
        expected_in(pa.schema([(AGE.mark, pa.bool_()), (other.mark, pa.bool_())]))


def test_more_than_fifty_expectations_are_refused() -> None:
    marks = [Expected(f"rule_{number}", OnUnmet.WARN).mark for number in range(51)]
    with pytest.raises(ValueError, match="51, and 50"):
        expected_in(pa.schema([(mark, pa.bool_()) for mark in marks]))
