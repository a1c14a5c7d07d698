"""What travels between tasks and the driver: messages of rows, and reports."""

import pickle

import pyarrow as pa
import pytest

from lakesink.rows.batches import joined
from lakesink.spark.rows.task import (
    JOINED_BYTES,
    JOINED_ROWS,
    MEASURED_ROWS,
    OF_ROWS,
    MeasuredBatches,
    RawBytes,
    TaskReport,
    refused_or,
)
from lakesink.spark.spark_errors import job_error
from lakesink_protocol.catalogue import explanations
from lakesink_protocol.errors import WriteError


def measured(*rows_of_bytes: tuple[int, int]) -> int:
    """The widest row of batches with so many rows of so many bytes, and 4 for an offset."""
    batches = [pa.record_batch({"t": pa.array(["x" * width] * rows, pa.string())}) for rows, width in rows_of_bytes]
    measured = MeasuredBatches(batches)
    assert [batch.num_rows for batch in measured] == [rows for rows, _ in rows_of_bytes]
    return measured.widest_row_bytes


def test_rows_are_measured_as_the_widest_mean_of_many() -> None:
    assert measured((4, 96), (0, 0), (4, 296)) == pytest.approx(200, abs=4)
    assert measured((MEASURED_ROWS, 96), (10, 996), (10, 996)) == pytest.approx(1000, abs=4)  # those at the end
    assert measured() == 0


def test_one_wide_row_among_small_messages_makes_no_later_message_small() -> None:
    messages = [(512, 96)] * 100
    assert measured(*messages, (1, 1_000_000), *messages) < 100 + 1_000_000 // MEASURED_ROWS + 4


def test_small_batches_are_joined_and_large_ones_pass_uncopied() -> None:
    small = [pa.record_batch({"n": pa.array([at] * 3000, pa.int64())}) for at in range(4)]
    large = pa.record_batch({"n": pa.array(range(JOINED_ROWS + 1), pa.int64())})
    empty = small[0].slice(0, 0)
    found = list(joined([*small, empty, large, empty, small[0]], JOINED_BYTES, JOINED_ROWS))
    assert [batch.num_rows for batch in found] == [6000, 6000, JOINED_ROWS + 1, 3000]
    assert found[2] is large
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches([*small, large, small[0]]))
    wide = pa.record_batch({"t": pa.array(["x" * (JOINED_BYTES - 100)])})
    assert [batch.num_rows for batch in joined([wide, wide], JOINED_BYTES)] == [1, 1]
    assert list(joined([], JOINED_BYTES)) == []


def refuses(code: str, details: tuple[str, ...] = ()) -> bytes:
    raise WriteError(code, "Key ä is there twice.", action=["Keep one.", "Order them."], details=details)


def test_an_error_for_rows_comes_back_whole_and_the_other_rows_are_read() -> None:
    rows = iter([pa.record_batch({"n": [1]})] * 3)
    next(rows)
    receipt, refusal = refused_or(lambda: refuses("KEY_TWICE", ("row 1 of ü", "row 7")), rows)
    assert (receipt, list(rows)) == (b"", [])
    error = job_error(refusal)
    assert isinstance(error, WriteError)
    assert (str(error), error.code) == (refusal, "LAKESINK_KEY_TWICE")
    assert (error.choices, error.details) == (("Keep one.", "Order them."), ("row 1 of ü", "row 7"))


@pytest.mark.parametrize("code", ["STORAGE_UNREACHABLE", "EXECUTOR_PYTHON", "REGISTRY_UNREACHABLE"])
def test_an_error_that_another_run_of_the_task_may_not_meet_is_raised(code: str) -> None:
    with pytest.raises(WriteError, match=code):
        refused_or(lambda: refuses(code), [])


def test_every_error_for_rows_is_explained() -> None:
    assert explanations().keys() >= OF_ROWS


@pytest.mark.parametrize("refusal", ["", "[LAKESINK_X] ä"])
def test_a_report_is_bytes_that_nobody_unpickles(refusal: str) -> None:
    report = TaskReport(3, "0.1.0-ä", 2**40, 2**50, 0.125, b"\x80\x04receipt", refusal)
    assert TaskReport.decoded(report.encoded()) == report
    evil = pickle.dumps(report)
    assert RawBytes().loads(RawBytes().dumps(evil)) is evil
