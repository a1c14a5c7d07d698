"""Every value in a part comes back from independent readers as it went in, and odd ones are refused by name."""

import datetime as dt
import gc
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

from lakesink.sinks.directory.settings import CODECS
from lakesink.sinks.staged.part_receipt import PartsReceipt, decode_parts
from lakesink.sinks.staged.parts import PartsWriter, check_part_schema
from lakesink_protocol.errors import WriteError
from testkit.examples import examples

STEM = "clicks-7"
NEW_YORK = pa.timestamp("us", "America/New_York")
NOON = dt.datetime(2024, 7, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)


def plan(folder: Path, **fields: Any) -> PartsWriter:
    defaults: dict[str, Any] = {
        "folder": str(folder),
        "stem": STEM,
        "batch_id": 7,
        "codec": CODECS[0],
        "target_file_size_bytes": 512 * 1024**2,
    }
    return PartsWriter(**(defaults | fields))


def write(rows: pa.Table, parts: PartsWriter, *, batch_rows: int = 1000) -> PartsReceipt:
    batches = iter(rows.to_batches(max_chunksize=batch_rows))
    return decode_parts(parts.write(3, batches), STEM)


def read(folder: Path, receipt: PartsReceipt) -> pa.Table:
    return pa.concat_tables([pq.read_table(folder / part.name) for part in receipt.parts])


def one(kind: pa.DataType, *values: Any) -> pa.Table:
    return pa.table({"v": pa.array(values, kind)})


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "booleans": (pa.bool_(), [True, False]),
    "long": (pa.int64(), [2**63 - 1, -(2**63)]),
    "double": (pa.float64(), [0.1, 1e308, -0.0]),
    "not a number": (pa.float64(), [math.nan, math.inf, -math.inf]),
    "float": (pa.float32(), [0.5, math.nan]),
    "decimal": (pa.decimal128(38, 9), [Decimal("0.000000001"), Decimal("-12345678901234567890123456789.100000000")]),
    "text": (pa.string(), ["", 'a\nb\u2028"\\', "\U0001f30a", "\x00"]),
    "binary": (pa.binary(), [b"", b"\xff\x00"]),
    "fixed": (pa.binary(2), [b"\xff\x00"]),
    "date": (pa.date32(), [dt.date(2024, 2, 29), dt.date(1, 1, 1)]),
    "instant": (NEW_YORK, [NOON]),
    "local time": (pa.timestamp("us"), [NOON.replace(tzinfo=None)]),
    "time of day": (pa.time64("us"), [dt.time(23, 59, 59, 1)]),
    "list": (pa.list_(pa.float64()), [[1.0, None, math.nan], []]),
    "list of instants": (pa.list_(NEW_YORK), [[NOON, None]]),
    "struct": (
        pa.struct([("at", NEW_YORK), ("deep", pa.struct([("b", pa.binary())]))]),
        [{"at": NOON, "deep": {"b": b"\xff"}}, {"at": None, "deep": None}],
    ),
    "map": (pa.map_(pa.string(), pa.decimal128(4, 1)), [[("a", Decimal("1.5")), ("b", None)]]),
}


def told(value: Any) -> str:
    """A value as text that tells all of it, and an instant in UTC, whoever spells that zone."""
    return re.sub(r"tzinfo=[^)]*(\(key='UTC'\))?", "tzinfo=UTC", repr(_utc(value)))


def _utc(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _utc(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_utc(inner) for inner in value]
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo else value


@pytest.mark.parametrize("name", VALUES)
def test_parquet_holds_what_arrow_had(tmp_path: Path, name: str) -> None:
    kind, values = VALUES[name]
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
def test_any_rows_come_back(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    parquet = duckdb.read_parquet(paths(tmp_path, write(table, plan(tmp_path))))
    assert [repr(row) for row in parquet.fetchall()] == [
        repr(tuple(row[name] for name in SCHEMA.names)) for row in rows
    ]


def paths(folder: Path, receipt: PartsReceipt) -> list[str]:
    return [str(folder / part.name) for part in receipt.parts]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_read_by_others(tmp_path: Path, codec: str) -> None:
    receipt = write(pa.table({"v": range(5000)}), plan(tmp_path, codec=codec))
    [path] = paths(tmp_path, receipt)
    assert [value for (value,) in duckdb.read_parquet(path).fetchall()] == list(range(5000))
    assert Path(path).stat().st_size == receipt.parts[0].size_bytes


def test_a_new_part_begins_at_the_target_size(tmp_path: Path) -> None:
    rows = pa.table({"v": [os.urandom(100) for _ in range(10_000)]})
    target = 200_000
    receipt = write(rows, plan(tmp_path, target_file_size_bytes=target))
    assert receipt.rows == sum(part.rows for part in receipt.parts) == 10_000
    assert len(receipt.parts) >= 4
    assert all(target <= part.size_bytes < 3 * target for part in receipt.parts[:-1])


def test_a_task_without_rows_votes_without_a_file(tmp_path: Path) -> None:
    receipt = write(pa.table({"v": pa.array([], pa.int64())}), plan(tmp_path / "parts"))
    assert (receipt.task, receipt.rows, receipt.parts) == (3, 0, ())
    assert not (tmp_path / "parts").exists()


def test_a_part_that_never_closed_is_removed_and_closed_ones_stay(tmp_path: Path) -> None:
    def rows() -> Any:
        for _ in range(3):
            yield pa.record_batch({"v": pa.array([os.urandom(1000) for _ in range(200)])})
        raise RuntimeError("the query's own code")

    parts = plan(tmp_path, target_file_size_bytes=150_000)
    with pytest.raises(RuntimeError, match="own code"):
        parts.write(0, rows())
    kept = list(tmp_path.iterdir())
    assert kept
    for path in kept:
        assert len(duckdb.read_parquet(str(path)).fetchall()) == 200


@pytest.mark.filterwarnings("error")  # also what a writer says that is left open
def test_a_part_that_is_open_when_the_query_fails_never_looks_like_a_whole_one(tmp_path: Path) -> None:
    def rows() -> Any:
        yield pa.record_batch({"v": pa.array(["the same"] * 20_000)})
        assert len(list(tmp_path.iterdir())) == 1
        raise RuntimeError("the query's own code")

    parts = plan(tmp_path, codec="gzip", target_file_size_bytes=100_000)
    with pytest.raises(RuntimeError, match="own code"):
        parts.write(0, rows())
    gc.collect()
    assert list(tmp_path.iterdir()) == []


UNSUITABLE: dict[str, tuple[pa.DataType, str]] = {
    "duration": (pa.duration("us"), "duration"),
    "interval": (pa.month_day_nano_interval(), "interval"),
    "nothing": (pa.null(), "VOID"),
    "deep": (pa.list_(pa.struct([("a", pa.duration("s"))])), "v.element.a"),
    "no fields": (pa.struct([]), "at least one field"),
    "fields of one name": (pa.struct([("a", pa.int8()), ("A", pa.int8())]), "names are equal"),
    "keys": (pa.map_(pa.duration("s"), pa.string()), "v.key"),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), "dictionary"),
}


@pytest.mark.parametrize("name", UNSUITABLE)
def test_a_type_that_a_part_does_not_hold_is_refused_by_driver_and_task(tmp_path: Path, name: str) -> None:
    kind, told = UNSUITABLE[name]
    rows = pa.table({"v": pa.nulls(1, kind)})
    for refuse in (lambda: check_part_schema(rows.schema), lambda: write(rows, plan(tmp_path))):
        with pytest.raises(WriteError, match=r"LAKESINK_TYPE_UNSUPPORTED") as refused:
            refuse()
        assert told in str(refused.value)
        assert len(str(refused.value).splitlines()[0]) < 200


def test_a_writer_travels_as_plain_data(tmp_path: Path) -> None:
    writer = plan(tmp_path)
    assert pickle.loads(pickle.dumps(writer)) == writer  # noqa: S301 - its own bytes


def test_a_disk_without_room_for_the_first_byte_is_named(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(WriteError, match="LAKESINK_STORAGE_WRITE"):
            write(pa.table({"v": [1]}), plan(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_storage_that_refuses_is_named(tmp_path: Path) -> None:
    (tmp_path / "parts").write_text("a file")
    with pytest.raises(WriteError, match="LAKESINK_STORAGE_WRITE"):
        write(pa.table({"v": [1]}), plan(tmp_path / "parts"))
