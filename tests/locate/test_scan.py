"""Rows are found by key exactly as a dictionary finds them, for every type that a key can have."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import IcebergType, IntegerType, LongType, StringType, UUIDType

from lakesink.keys.key_columns import KeyColumns
from lakesink.keys.newest import CHANGE
from lakesink.keys.scan import ScanLimits, find_rows
from lakesink_protocol.errors import WriteError
from testkit.examples import examples
from tests.locate.builders import columns_of, write_rows
from tests.locate.key_values import RAW, array_of, values

LIMITS = ScanLimits(threads=1, memory_bytes=256 * 2**20)
Found = set[tuple[int, int, int]]


def changes(columns: KeyColumns, *keys: list[Any]) -> pa.Table:
    arrays = [array_of(column, raw) for column, raw in zip(columns.keys, keys, strict=True)]
    return pa.table([pa.arange(0, len(keys[0])), *arrays], [CHANGE, *columns.key_names])


def found_by(files: list[str], wanted: pa.Table, columns: KeyColumns, limits: ScanLimits = LIMITS) -> Found:
    found = find_rows(files, wanted, columns, limits).to_pydict()
    rows = list(zip(found["file"], found["pos"], found[CHANGE], strict=True))
    assert len(set(rows)) == len(rows)
    return set(rows)


@pytest.mark.parametrize("kind", RAW, ids=str)
def test_every_value_at_the_ends_of_its_type_finds_itself_and_no_other(tmp_path: Path, kind: IcebergType) -> None:
    columns, raw = columns_of([kind]), list(RAW[kind])
    for rows_in_group in (1, 1_000):
        file = write_rows(tmp_path / "a.parquet", {("c", 1): array_of(columns.keys[0], raw)}, rows_in_group)
        assert found_by([file], changes(columns, raw), columns) == {(0, place, place) for place in range(len(raw))}
        for place, value in enumerate(raw):
            assert found_by([file], changes(columns, [value]), columns) == {(0, place, 0)}


@pytest.mark.parametrize("kind", RAW, ids=str)
@examples(12)
@given(data=st.data())
def test_random_keys_are_found_where_a_dictionary_has_them(kind: IcebergType, data: st.DataObject) -> None:
    columns = columns_of([kind, LongType()])
    row = st.tuples(values(kind), st.integers(0, 1))
    stored = data.draw(st.lists(st.lists(row, min_size=1, max_size=12), min_size=1, max_size=3))
    wanted = data.draw(st.lists(st.one_of(row, st.sampled_from(stored[0])), unique=True, min_size=1, max_size=12))
    with TemporaryDirectory() as folder:
        files = [
            write_rows(
                Path(folder) / f"{number}.parquet",
                {
                    ("x", 1): array_of(columns.keys[0], [key for key, _ in rows]),
                    ("y", 2): pa.array([part for _, part in rows], pa.int64()),
                },
                rows_in_group=3,
            )
            for number, rows in enumerate(stored)
        ]
        table = changes(columns, [key for key, _ in wanted], [part for _, part in wanted])
        numbers = {key: number for number, key in enumerate(wanted)}
        assert found_by(files, table, columns) == {
            (file, place, numbers[key])
            for file, rows in enumerate(stored)
            for place, key in enumerate(rows)
            if key in numbers
        }


@pytest.mark.parametrize("keys_bytes", [1, 40, 100])
def test_keys_are_found_part_by_part_and_duckdb_keeps_nothing(tmp_path: Path, keys_bytes: int) -> None:
    columns = columns_of([LongType()])
    files = [write_rows(tmp_path / str(n), {("k", 1): pa.arange(n, n + 5)}) for n in range(3)]
    limits = ScanLimits(threads=1, keys_bytes=keys_bytes, kept_rows=0)
    expected = {(n, place, n + place) for n in range(3) for place in range(5)}
    assert found_by(files, changes(columns, list(range(9))), columns, limits) == expected


def test_columns_are_found_by_field_id_whatever_they_and_their_folders_are_called(tmp_path: Path) -> None:
    columns = columns_of([LongType()], [StringType()])
    files = [
        write_rows(tmp_path / "k1=9" / "a*[1]?.parquet", {("file_row_number", 1): pa.array([5], pa.int32())}),
        write_rows(tmp_path / "ax1.parquet", {("k1", 7): pa.array([5]), ("filename", 1): pa.array([6])}),
        write_rows(tmp_path / "b", {("s2", 9): pa.array([5]), ("ID", 1): pa.array([5]), ("id", 2): pa.array(["x"])}),
        write_rows(tmp_path / "c", {("k1", 2): pa.array(["y"]), ("s2", 1): pa.array([5])}),
        write_rows(tmp_path / "without the key", {("k1", 8): pa.array([5]), ("other", 9): pa.array([5])}),
    ]
    found = find_rows(files, changes(columns, [5]), columns, LIMITS).sort_by("file")
    assert found.to_pylist() == [
        {"file": 0, "pos": 0, CHANGE: 0, "s2": None},
        {"file": 2, "pos": 0, CHANGE: 0, "s2": "x"},
        {"file": 3, "pos": 0, CHANGE: 0, "s2": "y"},
    ]


def test_without_duckdb_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    columns = columns_of([LongType()])
    with pytest.raises(WriteError) as refused:
        find_rows(["a"], changes(columns, [1]), columns, ScanLimits(kept_rows=0))
    assert refused.value.code == "LAKESINK_UPSERT_LIBRARY_MISSING"


def test_a_database_for_many_changes_is_closed_and_one_for_few_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns, connect, opened = columns_of([LongType()]), duckdb.connect, list[duckdb.DuckDBPyConnection]()

    def recorded(**given: Any) -> duckdb.DuckDBPyConnection:
        opened.append(connect(**given))
        return opened[-1]

    monkeypatch.setattr(duckdb, "connect", recorded)
    file, wanted = write_rows(tmp_path / "a", {("k", 1): pa.array([1, 2])}), changes(columns, [1, 3])
    for kept_rows in (1, 1, 2, 2):
        limits = ScanLimits(threads=1, kept_rows=kept_rows, keys_bytes=2**20)
        assert found_by([file], wanted, columns, limits) == {(0, 0, 0)}
    *closed, kept = opened
    assert len(closed) == 2
    for database in closed:
        with pytest.raises(duckdb.ConnectionException):
            database.execute("SELECT 1")
    assert kept.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize("kind", [kind for kind in RAW if not isinstance(kind, UUIDType)], ids=str)
def test_the_sequence_of_a_found_row_is_exact(tmp_path: Path, kind: IcebergType) -> None:
    columns, raw = columns_of([LongType()], [kind]), list(RAW[kind])
    stored = array_of(columns.sequences[0], raw)
    numbers = list(range(len(raw)))
    file = write_rows(tmp_path / "a", {("k", 1): pa.array(numbers), ("s", 2): stored})
    found = find_rows([file], changes(columns, numbers), columns, LIMITS).sort_by("pos")
    assert found["s2"].combine_chunks().equals(stored)


def test_two_thousand_files_are_searched_with_one_query(tmp_path: Path) -> None:
    columns = columns_of([IntegerType()])
    files = [write_rows(tmp_path / str(n), {("k", 1): pa.array([n, -n - 1], pa.int32())}) for n in range(2_000)]
    assert found_by(files, changes(columns, [3, 1_999, -1, 5_000]), columns) == {(3, 0, 0), (1_999, 0, 1), (0, 1, 2)}


def test_a_file_that_is_torn_is_refused(tmp_path: Path) -> None:
    columns = columns_of([LongType()])
    file = write_rows(tmp_path / "a", {("k", 1): pa.array([1, 2])})
    Path(file).write_bytes(Path(file).read_bytes()[:-3])
    with pytest.raises(WriteError) as refused:
        find_rows([file], changes(columns, [1]), columns, LIMITS)
    assert refused.value.code == "LAKESINK_TABLE_FILE_UNREADABLE"
    assert file in refused.value.action
