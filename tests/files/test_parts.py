"""Every value in every format comes back from independent readers as it went in, and odd ones are refused by name."""

import datetime as dt
import gc
import gzip
import json
import math
import os
import pickle
import re
import resource
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesink.rows.lines import LineEncoder
from lakesink.sinks.directory.part_formats import FORMATS, check_part_schema
from lakesink.sinks.directory.part_receipt import PartsReceipt, decode_parts
from lakesink.sinks.directory.parts import PartsPlan, PartsWriter
from lakesink_protocol.errors import WriteError
from testkit.examples import examples

STEM = "clicks-7"
NEW_YORK = pa.timestamp("us", "America/New_York")
NOON = dt.datetime(2024, 7, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)


def plan(folder: Path, **fields: Any) -> PartsPlan:
    format_name = fields.get("format", "parquet")
    defaults: dict[str, Any] = {
        "folder": str(folder),
        "stem": STEM,
        "batch_id": 7,
        "format": format_name,
        "codec": next(iter(FORMATS[format_name].extensions)),
        "target_file_size_bytes": 512 * 1024**2,
    }
    return PartsPlan(**(defaults | fields))


def write(rows: pa.Table, parts: PartsPlan, *, batch_rows: int = 1000) -> PartsReceipt:
    batches = iter(rows.to_batches(max_chunksize=batch_rows))
    return decode_parts(PartsWriter(parts).write(3, batches), STEM)


def read(folder: Path, receipt: PartsReceipt) -> pa.Table:
    return pa.concat_tables([pq.read_table(folder / part.name) for part in receipt.parts])


def lines(rows: pa.Table) -> list[dict[str, Any]]:
    data = b"".join(LineEncoder(rows.schema).encode(batch) for batch in rows.to_batches())
    return [json.loads(line) for line in data.decode().split("\n")[:-1]]


def one(kind: pa.DataType, *values: Any) -> pa.Table:
    return pa.table({"v": pa.array(values, kind)})


VALUES: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "booleans": (pa.bool_(), [True, False], [True, False]),
    "long": (pa.int64(), [2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)]),
    "double": (pa.float64(), [0.1, 1e308, -0.0], [0.1, 1e308, -0.0]),
    "not a number": (pa.float64(), [math.nan, math.inf, -math.inf], ["NaN", "Infinity", "-Infinity"]),
    "float": (pa.float32(), [0.5, math.nan], [0.5, "NaN"]),
    "decimal": (
        pa.decimal128(38, 9),
        [Decimal("0.000000001"), Decimal("-12345678901234567890123456789.100000000")],
        ["0.000000001", "-12345678901234567890123456789.100000000"],
    ),
    "text": (pa.string(), ["", 'a\nb\u2028"\\', "\U0001f30a", "\x00"], ["", 'a\nb\u2028"\\', "\U0001f30a", "\x00"]),
    "binary": (pa.binary(), [b"", b"\xff\x00"], ["", "/wA="]),
    "fixed": (pa.binary(2), [b"\xff\x00"], ["/wA="]),
    "date": (pa.date32(), [dt.date(2024, 2, 29), dt.date(1, 1, 1)], ["2024-02-29", "0001-01-01"]),
    "instant": (NEW_YORK, [NOON], ["2024-07-01T12:00:00.123456Z"]),
    "local time": (pa.timestamp("us"), [NOON.replace(tzinfo=None)], ["2024-07-01T12:00:00.123456"]),
    "time of day": (pa.time64("us"), [dt.time(23, 59, 59, 1)], ["23:59:59.000001"]),
    "list": (pa.list_(pa.float64()), [[1.0, None, math.nan], []], [[1.0, None, "NaN"], []]),
    "list of instants": (pa.list_(NEW_YORK), [[NOON, None]], [["2024-07-01T12:00:00.123456Z", None]]),
    "struct": (
        pa.struct([("at", NEW_YORK), ("deep", pa.struct([("b", pa.binary())]))]),
        [{"at": NOON, "deep": {"b": b"\xff"}}, {"at": None, "deep": None}],
        [{"at": "2024-07-01T12:00:00.123456Z", "deep": {"b": "/w=="}}, {"at": None, "deep": None}],
    ),
    "map": (
        pa.map_(pa.string(), pa.decimal128(4, 1)), [[("a", Decimal("1.5")), ("b", None)]], [{"a": "1.5", "b": None}],
    ),
    "nothing": (pa.null(), [None], [None]),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_each_value_has_one_spelling_in_json(name: str) -> None:
    kind, values, spelled = VALUES[name]
    found = [line["v"] for line in lines(one(kind, *values, None))]
    assert [repr(value) for value in found] == [repr(value) for value in [*spelled, None]]


READ_BACK = {
    "decimal": "decimal(38,9)",
    "date": "date",
    "instant": "timestamptz",
    "local time": "timestamp",
    "time of day": "time",
    "not a number": "double",
    "list": "double[]",
    "map": "map(varchar, decimal(4,1))",
}


@pytest.mark.parametrize("name", READ_BACK)
def test_duckdb_reads_lines_back_as_the_values_they_were(tmp_path: Path, name: str) -> None:
    kind, values, _ = VALUES[name]
    receipt = write(one(kind, *values, None), plan(tmp_path, format="jsonl"))
    found = duckdb.read_json([str(tmp_path / part.name) for part in receipt.parts], columns={"v": READ_BACK[name]})
    values_read = found.to_arrow_table()["v"].to_pylist()
    assert [told(value) for value in values_read] == [told(value) for value in [*values, None]]


def told(value: Any) -> str:
    """A value as text that tells all of it, and an instant in UTC, whoever spells that zone."""
    return re.sub(r"tzinfo=[^)]*(\(key='UTC'\))?", "tzinfo=UTC", repr(_utc(value)))


def _utc(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _utc(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_utc(inner) for inner in value]
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo else value


@pytest.mark.parametrize("name", [name for name in VALUES if name != "nothing"])
def test_parquet_holds_what_arrow_had(tmp_path: Path, name: str) -> None:
    kind, values, _ = VALUES[name]
    rows = one(kind, *values, None)
    found = read(tmp_path, write(rows, plan(tmp_path)))
    assert [told(value) for value in found["v"].to_pylist()] == [told(value) for value in rows["v"].to_pylist()]


CELLS = st.fixed_dictionaries(
    {
        "whole": st.none() | st.integers(-(2**63), 2**63 - 1),
        "number": st.none() | st.floats(),
        "text": st.none() | st.text(),
        "data": st.none() | st.binary(max_size=20),
        "list": st.none() | st.lists(st.none() | st.text(max_size=5), max_size=4),
    }
)
SCHEMA = pa.schema(
    [("whole", pa.int64()), ("number", pa.float64()), ("text", pa.string()), ("data", pa.binary()),
     ("list", pa.list_(pa.string()))]
)  # fmt: skip


@examples(24)
@given(rows=st.lists(CELLS, min_size=1, max_size=20))
def test_any_rows_come_back_from_both_formats(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    parquet = duckdb.read_parquet(paths(tmp_path, write(table, plan(tmp_path))))
    spelled = {"whole": "bigint", "number": "double", "text": "varchar", "data": "varchar", "list": "varchar[]"}
    read_lines = duckdb.read_json(paths(tmp_path, write(table, plan(tmp_path, format="jsonl"))), columns=spelled)
    as_values = read_lines.project("whole, number, text, from_base64(data), list")
    written = [repr(tuple(row[name] for name in SCHEMA.names)) for row in rows]
    assert [repr(row) for row in parquet.fetchall()] == written
    assert [repr(row) for row in as_values.fetchall()] == written


def paths(folder: Path, receipt: PartsReceipt) -> list[str]:
    return [str(folder / part.name) for part in receipt.parts]


@pytest.mark.parametrize(
    ("format_name", "codec"), [(name, codec) for name, kind in FORMATS.items() for codec in kind.extensions]
)
def test_every_codec_is_read_by_others(tmp_path: Path, format_name: str, codec: str) -> None:
    receipt = write(pa.table({"v": range(5000)}), plan(tmp_path, format=format_name, codec=codec))
    [path] = paths(tmp_path, receipt)
    found = duckdb.read_parquet(path) if format_name == "parquet" else duckdb.read_json(path)
    assert [value for (value,) in found.fetchall()] == list(range(5000))
    assert Path(path).stat().st_size == receipt.parts[0].size_bytes
    if codec == "gzip" and format_name == "jsonl":
        assert len(gzip.decompress(Path(path).read_bytes()).splitlines()) == 5000


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_new_part_begins_at_the_target_size(tmp_path: Path, format_name: str) -> None:
    rows = pa.table({"v": [os.urandom(100) for _ in range(10_000)]})
    target = 200_000
    receipt = write(rows, plan(tmp_path, format=format_name, target_file_size_bytes=target))
    assert receipt.rows == sum(part.rows for part in receipt.parts) == 10_000
    assert len(receipt.parts) >= 4
    assert all(target <= part.size_bytes < 3 * target for part in receipt.parts[:-1])


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_task_without_rows_votes_without_a_file(tmp_path: Path, format_name: str) -> None:
    receipt = write(pa.table({"v": pa.array([], pa.int64())}), plan(tmp_path / "parts", format=format_name))
    assert (receipt.task, receipt.rows, receipt.parts) == (3, 0, ())
    assert not (tmp_path / "parts").exists()


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_part_that_never_closed_is_removed_and_closed_ones_stay(tmp_path: Path, format_name: str) -> None:
    def rows() -> Any:
        for _ in range(3):
            yield pa.record_batch({"v": pa.array([os.urandom(1000) for _ in range(200)])})
        raise RuntimeError("the query's own code")

    parts = plan(tmp_path, format=format_name, target_file_size_bytes=150_000)
    with pytest.raises(RuntimeError, match="own code"):
        PartsWriter(parts).write(0, rows())
    kept = list(tmp_path.iterdir())
    assert kept
    for path in kept:
        found = duckdb.read_parquet(str(path)) if format_name == "parquet" else duckdb.read_json(str(path))
        assert len(found.fetchall()) == 200


@pytest.mark.filterwarnings("error")  # also what a writer says that is left open
@pytest.mark.parametrize("format_name", FORMATS)
def test_a_part_that_is_open_when_the_query_fails_never_looks_like_a_whole_one(
    tmp_path: Path, format_name: str
) -> None:
    def rows() -> Any:
        yield pa.record_batch({"v": pa.array(["the same"] * 20_000)})
        assert len(list(tmp_path.iterdir())) == 1
        raise RuntimeError("the query's own code")

    parts = plan(tmp_path, format=format_name, codec="gzip", target_file_size_bytes=100_000)
    with pytest.raises(RuntimeError, match="own code"):
        PartsWriter(parts).write(0, rows())
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_date_beyond_all_calendars_is_refused_by_name(tmp_path: Path) -> None:
    rows = pa.table({"v": pa.array([10**8], pa.int32()).cast(pa.date32())})
    with pytest.raises(WriteError, match="LAKESINK_LOSSY_VALUE"):
        write(rows, plan(tmp_path, format="jsonl"))
    assert list(tmp_path.iterdir()) == []


UNSUITABLE: dict[str, tuple[pa.DataType, str, str]] = {
    "duration": (pa.duration("us"), "parquet", "duration"),
    "interval": (pa.month_day_nano_interval(), "jsonl", "interval"),
    "nothing in parquet": (pa.null(), "parquet", "VOID"),
    "deep": (pa.list_(pa.struct([("a", pa.duration("s"))])), "parquet", "v.element.a"),
    "no fields": (pa.struct([]), "parquet", "at least one field"),
    "fields of one name": (pa.struct([("a", pa.int8()), ("A", pa.int8())]), "jsonl", "names are equal"),
    "keys that are no text": (pa.map_(pa.int64(), pa.string()), "jsonl", "keys"),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), "jsonl", "dictionary"),
}


@pytest.mark.parametrize("name", UNSUITABLE)
def test_a_type_that_the_format_does_not_hold_is_refused_by_driver_and_task(tmp_path: Path, name: str) -> None:
    kind, format_name, told = UNSUITABLE[name]
    rows = pa.table({"v": pa.nulls(1, kind)})
    for refuse in (
        lambda: check_part_schema(rows.schema, FORMATS[format_name]),
        lambda: write(rows, plan(tmp_path, format=format_name)),
    ):
        with pytest.raises(WriteError, match=r"LAKESINK_TYPE_UNSUPPORTED") as refused:
            refuse()
        assert told in str(refused.value)
        assert len(str(refused.value).splitlines()[0]) < 200


def test_a_writer_travels_as_plain_data(tmp_path: Path) -> None:
    writer = PartsWriter(plan(tmp_path))
    assert pickle.loads(pickle.dumps(writer)) == writer  # noqa: S301 - its own bytes


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_disk_without_room_for_the_first_byte_is_named(tmp_path: Path, format_name: str) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(WriteError, match="LAKESINK_STORAGE_WRITE"):
            write(pa.table({"v": [1]}), plan(tmp_path, format=format_name))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_storage_that_refuses_is_named(tmp_path: Path) -> None:
    (tmp_path / "parts").write_text("a file")
    with pytest.raises(WriteError, match="LAKESINK_STORAGE_WRITE"):
        write(pa.table({"v": [1]}), plan(tmp_path / "parts"))
