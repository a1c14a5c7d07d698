"""Tasks turn rows into records, refuse those that no topic could take, and tell what the topics must accept."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakesink.sinks.kafka.staged_rows import HEADERS, Needs, RecordsWriter, decode_kafka, needs_of_all, record_sizes
from lakesink.sinks.staged.parts import PartsWriter
from lakesink_protocol.errors import WriteError
from lakesink_protocol.receipt_json import ReceiptInvalid

STEM = "orders-7"
NUL = "ü\u0000€𝄞"


def header(key: str) -> dict[str, Any]:
    return {"key": key, "value": b"1"}


def written(
    folder: Path, rows: dict[str, Any] | pa.RecordBatch, *, topic: str = "orders", most_bytes: int = 10_000
) -> tuple[dict[str, Needs], list[dict[str, Any]]]:
    """The needs in the receipt of a task, and the rows of its parts."""
    writer = PartsWriter(str(folder), STEM, 7, "lz4", 10**9)
    batch = rows if isinstance(rows, pa.RecordBatch) else pa.record_batch(rows)
    receipt, needs = decode_kafka(RecordsWriter(writer, topic, most_bytes).write(3, iter([batch])), STEM)
    found = [row for part in receipt.parts for row in pq.read_table(folder / part.name).to_pylist()]
    return needs, found


def refusal(folder: Path, rows: dict[str, Any] | pa.RecordBatch, **how: Any) -> WriteError:
    with pytest.raises(WriteError) as caught:
        written(folder, rows, **how)
    assert list(folder.iterdir()) == [], "a task that fails leaves no part"
    return caught.value


def test_texts_and_bytes_become_bytes_as_they_are(tmp_path: Path) -> None:
    values = [b"", None, b"\xff\x00", NUL.encode()]
    _, found = written(tmp_path, {"key": ["", None, NUL, "k"], "value": pa.array(values, pa.binary())})
    assert found == [
        {"key": b"", "value": b""},
        {"key": None, "value": None},
        {"key": NUL.encode(), "value": b"\xff\x00"},
        {"key": b"k", "value": NUL.encode()},
    ]


def test_headers_keep_their_order_and_repetitions(tmp_path: Path) -> None:
    headers = [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}, {"key": "ü€𝄞", "value": b"\0"}], [], None]
    _, found = written(tmp_path, {"value": ["x", "y", "z"], "headers": pa.array(headers, HEADERS)})
    assert [row["headers"] for row in found] == headers


def test_the_topic_of_the_sink_counts_more_than_the_column(tmp_path: Path) -> None:
    needs, found = written(tmp_path, {"value": ["x"], "topic": pa.array([None], pa.string())})
    assert found == [{"value": b"x"}]
    assert list(needs) == ["orders"]


def test_the_receipt_tells_by_topic_the_largest_record_and_the_highest_partition(tmp_path: Path) -> None:
    rows = pa.record_batch(
        {
            "value": ["x" * 10, "x" * 500, "x"],
            "topic": ["a", "b", "a"],
            "partition": pa.array([None, None, 2], pa.int32()),
        }
    )
    needs, _ = written(tmp_path, rows, topic="")
    sizes = record_sizes(rows.set_column(0, "value", rows.column("value").cast(pa.binary()))).to_pylist()
    assert needs == {"a": Needs(sizes[0], 2), "b": Needs(sizes[1], -1)}
    both = needs_of_all([needs, {"a": Needs(1, 5)}])
    assert both == {"a": Needs(sizes[0], 5), "b": Needs(sizes[1], -1)}


def test_a_row_may_be_as_large_as_the_bound_and_no_larger(tmp_path: Path) -> None:
    largest = 10_000 - 128
    written(tmp_path / "fits", {"value": ["x" * largest]})
    (tmp_path / "none").mkdir()
    error = refusal(tmp_path / "none", {"value": ["x", "x" * (largest + 1)]})
    assert error.code == "LAKESINK_KAFKA_RECORD_TOO_LARGE"
    assert "10001 bytes" in error.what


@pytest.mark.parametrize(
    ("rows", "topic", "code", "says"),
    [
        ({"value": ["x"], "id": [1]}, "orders", "KAFKA_COLUMNS", "'id'"),
        ({"key": ["x"]}, "orders", "KAFKA_COLUMNS", "no column 'value'"),
        ({"value": [1]}, "orders", "KAFKA_COLUMNS", "BIGINT"),
        ({"value": ["x"], "partition": pa.array([1], pa.int64())}, "orders", "KAFKA_COLUMNS", "BIGINT"),
        ({"value": ["x"], "headers": ["x"]}, "orders", "KAFKA_COLUMNS", "ARRAY<STRUCT"),
        ({"value": ["x"]}, "", "KAFKA_COLUMNS", "no column 'topic'"),
        ({"value": ["x"], "topic": pa.array([None], pa.string())}, "", "KAFKA_ROW_REFUSED", "no topic"),
        ({"value": ["x"], "topic": [""]}, "", "KAFKA_ROW_REFUSED", "empty"),
        ({"value": ["x"], "topic": ["t" * 250]}, "", "KAFKA_ROW_REFUSED", "too long"),
        ({"value": ["x"], "partition": pa.array([-1], pa.int32())}, "orders", "KAFKA_ROW_REFUSED", "negative"),
        (
            {"value": ["x"], "headers": pa.array([[{"key": None, "value": b"1"}]], HEADERS)},
            "orders",
            "KAFKA_ROW_REFUSED",
            "without a key",
        ),
        (
            {"value": ["x"], "headers": pa.array([[None]], HEADERS)},
            "orders",
            "KAFKA_ROW_REFUSED",
            "without a key",
        ),
        (
            {"value": ["x", "x"], "headers": pa.array([None, [{"key": "k", "value": b""}, header("k\0l")]], HEADERS)},
            "orders",
            "KAFKA_ROW_REFUSED",
            "a header whose key contains the character NUL",
        ),
        ({"value": ["x"], "headers": pa.array([[header("\0")]], HEADERS)}, "orders", "KAFKA_ROW_REFUSED", "NUL"),
        ({"value": ["x"], "headers": pa.array([[header(NUL)]], HEADERS)}, "orders", "KAFKA_ROW_REFUSED", "NUL"),
        ({"value": ["x", "x"], "topic": ["a", "a\0b"]}, "", "KAFKA_ROW_REFUSED", "a topic whose name contains"),
    ],
)
def test_rows_that_no_record_can_have_are_refused_before_anything_is_sent(
    tmp_path: Path, rows: dict[str, Any], topic: str, code: str, says: str
) -> None:
    error = refusal(tmp_path, rows, topic=topic)
    assert error.code == f"LAKESINK_{code}"
    assert says in str(error)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"v":2,"parts":"","topics":{}}',
        b'{"v":true,"parts":"","topics":{}}',
        b'{"v":1,"parts":"","topics":{}}',
        b'{"v":1,"parts":"{}","topics":{"":[1,1]}}',
        b'{"v":1,"parts":"{}","topics":{"a":[1]}}',
        b'{"v":1,"parts":"{}","topics":{"a":[-2,1]}}',
        b'{"v":1,"parts":"{}","topics":{"a":["1",1]}}',
    ],
)
def test_a_receipt_of_another_form_is_refused(data: bytes) -> None:
    with pytest.raises(ReceiptInvalid):
        decode_kafka(data, STEM)
