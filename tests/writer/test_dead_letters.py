"""Dead letters as a task writes them: each row once, in the files of one of the two tables, exactly as it came."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, LongType, NestedField, StringType

from lakesink.rows.expectations import Expected, OnUnmet
from lakesink.rows.letters import LETTERS, payload_digest
from lakesink.rows.plan import OnMalformed
from lakesink.rows.side_rows import SidePlan, digest_sum
from lakesink.settings.conditions import condition_of
from lakesink.task.task import ParquetTaskWriter
from lakesink_catalog.tables.arrow_schema import iceberg_schema
from lakesink_protocol.errors import WriteError
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.measures import DEAD_LETTERS, UNMET_ROWS
from lakesink_protocol.quality import letters_since, may_have_letters
from lakesink_protocol.receipt import Receipt, decode
from testkit.examples import examples
from testkit.tasks import plan_for, rows_of, spec_of

UUID = "7f7c9d0e-3d4b-4b8e-9c56-2f6f6a0e8d11"
POSITIVE = Expected("positive", OnUnmet.QUARANTINE)
TABLE = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "small", LongType()),
    NestedField(3, "text", StringType()),
)


def writer_for(folder: Path, table: Schema = TABLE, *, expected: tuple[Expected, ...] = (), **plan: Any) -> Any:
    rows = plan_for(table, folder / "rows", on_malformed=OnMalformed.QUARANTINE, **plan)
    of_letters = plan_for(iceberg_schema(LETTERS), folder / "letters", batch_id=7, file_stem="letters-7")
    side = SidePlan("t__dead_letters@main", SinkKey("events"), UUID, "", of_letters)
    return ParquetTaskWriter(rows, expected, (side,))


def written(writer: Any, batches: Sequence[pa.RecordBatch]) -> tuple[Receipt, Receipt]:
    found = writer.receipts("t@main", writer.write(0, iter(batches)))
    return decode(found["t@main"]), decode(found["t__dead_letters@main"])


ROW = st.tuples(
    st.none() | st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1), st.sampled_from([b"a", b"\xff", None])
)


@examples(14)
@given(st.lists(st.lists(ROW, max_size=40), max_size=4))
def test_each_row_is_once_in_one_of_the_tables(tmp_path: Path, parts: list[list[tuple[Any, Any, Any]]]) -> None:
    names, kinds = ["id", "small", "text"], [pa.int64(), pa.int64(), pa.binary()]
    batches = []
    for part in parts:
        columns = [pa.array([row[at] for row in part], kind) for at, kind in enumerate(kinds)]
        text = pa.Array.from_buffers(pa.string(), len(part), columns[2].buffers(), columns[2].null_count)
        batches.append(pa.RecordBatch.from_arrays([*columns[:2], text], names=names))
    every = [row for part in parts for row in part]
    good = [row for row in every if row[0] is not None and row[2] != b"\xff"]
    table, letters = written(writer_for(tmp_path), batches)
    found = [(row["id"], row["small"], row["text"]) for row in rows_of(table.files)]
    assert sorted(found, key=str) == sorted(
        [(row[0], row[1], None if row[2] is None else row[2].decode()) for row in good], key=str
    )
    assert (table.rows, table.quality.counts[DEAD_LETTERS], letters.rows) == (
        len(every),
        len(every) - len(good),
        len(every) - len(good),
    )
    dead = rows_of(letters.files)
    digests = [payload_digest(row["payload"], row["payload_bytes"]) for row in dead]
    assert letters.payload_digest == digest_sum(*digests)
    for row in dead:
        whole = _row_of(row)
        assert whole[0] is None or whole[2] == b"\xff"
        assert whole in every


def _row_of(letter: dict[str, Any]) -> tuple[Any, Any, Any]:
    if letter["payload"] is not None:
        row = json.loads(letter["payload"])
        return row["id"], row["small"], None if row["text"] is None else row["text"].encode()
    [row] = pa.ipc.open_stream(letter["payload_bytes"]).read_all().to_batches()
    text = row.column("text").cast(pa.binary(), safe=False)[0].as_py()
    return row.column("id")[0].as_py(), row.column("small")[0].as_py(), text


def test_a_row_is_written_as_json_that_says_every_value_exactly(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "id": pa.array([None], pa.int64()),
            "price": pa.array([Decimal("12345678901234567890.10")], pa.decimal128(38, 2)),
            "at": pa.array([1_700_000_000_123_456], pa.timestamp("us", "UTC")),
            "raw": pa.array([b"\x00\xff"], pa.binary()),
            "ratio": pa.array([float("nan")], pa.float64()),
            "by_number": pa.array([[(1, "a")]], pa.map_(pa.int32(), pa.string())),
            "nested": pa.array([{"a": [1, None]}], pa.struct([("a", pa.list_(pa.int64()))])),
        }
    )
    _, letters = written(writer_for(tmp_path, ignore_unknown=True), rows.to_batches())
    [letter] = rows_of(letters.files)
    assert json.loads(letter["payload"]) == {
        "id": None,
        "price": "12345678901234567890.10",
        "at": "2023-11-14T22:13:20.123456Z",
        "raw": "AP8=",
        "ratio": "NaN",
        "by_number": [{"key": 1, "value": "a"}],
        "nested": {"a": [1, None]},
    }
    assert (letter["reason"], letter["column_name"], letter["sink"], letter["batch_id"]) == (
        "NULL_IN_REQUIRED",
        "id",
        "events",
        7,
    )


@pytest.mark.parametrize("decode", [None, "json"])
def test_a_partition_value_that_does_not_fit_is_a_letter(tmp_path: Path, decode: str | None) -> None:
    fields = plan_for(TABLE, tmp_path, spec_of("truncate[10]")).partition_fields
    rows = [{"id": one, "small": one, "text": "a"} for one in (1, -(2**63), 5)]
    came = rows if decode is None else [{"value": json.dumps(row)} for row in rows]
    writer = writer_for(tmp_path, partition_fields=fields, decode=decode)
    table, letters = written(writer, [pa.RecordBatch.from_pylist(came)])
    assert sorted(row["id"] for row in rows_of(table.files)) == [1, 5]
    [letter] = rows_of(letters.files)
    assert (letter["reason"], json.loads(letter["payload"])) == ("PARTITION_VALUE_UNFIT", rows[1])


def test_rows_that_do_not_meet_an_expectation_name_all_rules(tmp_path: Path) -> None:
    other = Expected("even", OnUnmet.QUARANTINE)
    ids = pa.array([1, 2, -3], pa.int64())
    marks = {POSITIVE.mark: [True, True, False], other.mark: [False, True, None]}
    batch = pa.RecordBatch.from_pydict({"id": ids, **marks})
    table, letters = written(writer_for(tmp_path, expected=(POSITIVE, other)), [batch])
    assert [row["id"] for row in rows_of(table.files)] == [2]
    found = [(row["payload"], row["column_name"], row["detail"]) for row in rows_of(letters.files)]
    assert found == [('{"id":1}', "even", None), ('{"id":-3}', "positive", "also even")]
    assert dict(table.quality.unmet) == {"positive": 1, "even": 2}
    assert table.quality.counts[UNMET_ROWS] == 2


def test_documents_that_are_not_text_are_kept_as_bytes(tmp_path: Path) -> None:
    documents = pa.array([b'{"id": 1}', b"\xff\x00", None, b"[]"], pa.binary())
    batch = pa.RecordBatch.from_pydict(
        {"value": documents, "topic": ["t"] * 4, "partition": [3] * 4, "offset": [5, 6, 7, 8]}
    )
    table, letters = written(writer_for(tmp_path, decode="json"), [batch])
    assert [row["id"] for row in rows_of(table.files)] == [1]
    found = [(row["payload"], row["payload_bytes"], row["topic"], row["offset"]) for row in rows_of(letters.files)]
    assert found == [(None, b"\xff\x00", "t", 6), (None, None, "t", 7), ("[]", None, "t", 8)]


DAY = date(2024, 1, 1)
PLACES = [
    ("partition", pa.array(["p1", "17"]), [None, 17]),
    ("partition", pa.array([DAY, None], pa.date32()), [None, None]),
    ("partition", pa.array([3_000_000_000, -(2**31)]), [None, -(2**31)]),
    ("partition", pa.array([True, False]), [None, None]),
    ("partition", pa.array([[1], None], pa.list_(pa.int64())), [None, None]),
    ("offset", pa.array([1.5, 17.0]), [None, 17]),
    ("offset", pa.array([float("nan"), float("inf")]), [None, None]),
    ("offset", pa.array([1e300, -(2.0**63)]), [None, -(2**63)]),
    ("offset", pa.array([Decimal("1E30"), Decimal("17.00")], pa.decimal128(38, 2)), [None, 17]),
    ("offset", pa.array([Decimal("0.5"), None], pa.decimal128(38, 1)), [None, None]),
    ("offset", pa.array(["9223372036854775808", "9223372036854775807"]), [None, 2**63 - 1]),
    ("offset", pa.array([1, None], pa.timestamp("us", "UTC")), [None, None]),
    ("offset", pa.array([1, None], pa.timestamp("us")), [None, None]),
    ("offset", pa.array([1, None], pa.time64("us")), [None, None]),
    ("offset", pa.array([1, None], pa.duration("us")), [None, None]),
    ("offset", pa.array([b"17", None]), [None, None]),
    ("key", pa.array(["k", None]), [b"k", None]),
    ("key", pa.array([5, None]), [None, None]),
    ("key", pa.array([{"a": 1}, None]), [None, None]),
    ("key", pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())), [None, None]),
    ("topic", pa.array([9, None]), ["9", None]),
    ("topic", pa.array([Decimal("1.50"), None]), ["1.50", None]),
    ("topic", pa.array([b"t", b"\xff"]), ["t", None]),
    ("topic", pa.array([b"t", b"\xff"]).cast(pa.string(), safe=False), ["t", None]),
    ("topic", pa.array([DAY, None], pa.date32()), [None, None]),
    ("topic", pa.array([{"a": 1}, None]), [None, None]),
    ("file_path", pa.array([{"a": 1}, None]), [None, None]),
    ("file_path", pa.array([7, None]), ["7", None]),
    ("file_path", pa.nulls(2), [None, None]),
]


@pytest.mark.parametrize(("number", "reason"), [('"x"', "VALUE_MALFORMED"), ("-1", "EXPECTATION_UNMET")])
@pytest.mark.parametrize(
    ("name", "values", "found"), PLACES, ids=[f"{name}-{values.type}" for name, values, _ in PLACES]
)
def test_a_column_with_a_name_of_kafka_s_and_another_type_leaves_its_place_unknown(
    tmp_path: Path, name: str, values: pa.Array, found: list[Any], number: str, reason: str
) -> None:
    documents = pa.array([f'{{"id": {number}}}'.encode()] * 2)
    batch = pa.RecordBatch.from_pydict({"value": documents, name: values})
    positive = replace(POSITIVE, condition=condition_of("id > 0"))
    _, letters = written(writer_for(tmp_path, decode="json", expected=(positive,)), [batch])
    place = "source" if name == "file_path" else name
    assert [(row[place], row["reason"]) for row in rows_of(letters.files)] == [(one, reason) for one in found]


def test_a_table_s_own_row_with_such_names_is_a_letter_with_its_whole_row(tmp_path: Path) -> None:
    table = Schema(NestedField(1, "partition", StringType(), required=True), NestedField(2, "offset", DateType()))
    batch = pa.RecordBatch.from_pydict({"partition": pa.array([None], pa.string()), "offset": pa.array([DAY])})
    _, letters = written(writer_for(tmp_path, table), [batch])
    [letter] = rows_of(letters.files)
    assert (letter["partition"], letter["offset"]) == (None, None)
    assert json.loads(letter["payload"]) == {"partition": None, "offset": "2024-01-01"}


def test_an_error_that_is_not_about_a_value_fails_the_task(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array([1], pa.int64()), "other": [1]})
    with pytest.raises(WriteError, match="SCHEMA_MISMATCH"):
        written(writer_for(tmp_path), rows.to_batches())


@pytest.mark.parametrize(
    "bad", [b"", b"\x00\x00\x00\x05ab", b"\xff\xff\xff\xffabc", b"\x00\x00\x00\x00abc", b"\x00\x00\x00\x03abc"]
)
def test_bytes_that_are_not_two_receipts_are_rejected(tmp_path: Path, bad: bytes) -> None:
    with pytest.raises(WriteError, match="RECEIPT_REJECTED"):
        writer_for(tmp_path).receipts("t@main", bad)


def test_the_digest_of_a_payload_is_the_same_in_every_version() -> None:
    assert payload_digest("a", None) == payload_digest(None, b"a") == 0xCA978112CA1BBDCAFAC231B39A23DC4D


def test_batches_say_since_when_which_table_has_the_letters_of_their_query() -> None:
    a, b = UUID, UUID[::-1]
    since = letters_since("", 2, a)
    assert since == letters_since(since, 3, a) == "2:7f7c9d0e3d4b"
    since = letters_since(letters_since(letters_since(since, 4, b), 6, ""), 7, a)
    assert [may_have_letters(since, at, a) for at in range(9)] == [True] * 4 + [False] * 3 + [True] * 2
    assert [may_have_letters(since, at, b) for at in range(9)] == [True] * 2 + [False] * 2 + [True] * 2 + [False] * 3
    assert letters_since(since, 4, a) == "2:7f7c9d0e3d4b", "batch 4 is written again"
    assert letters_since("", 0, "") == "", "a query that puts no rows aside"
    assert may_have_letters("malformed", 0, a)


def test_the_oldest_of_many_tables_of_letters_are_unknown() -> None:
    since = ""
    for batch_id in range(100):
        since = letters_since(since, batch_id, UUID if batch_id % 2 else "")
    assert len(since) < 300
    assert may_have_letters(since, 0, UUID)
    assert not may_have_letters(since, 98, UUID)
