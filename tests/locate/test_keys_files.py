"""Keys files are read as their tasks wrote them, or refused."""

from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import DateType, DecimalType, IcebergType, IntegerType, LongType, StringType

from lakesink.keys.keys_file import read_changes
from lakesink_protocol.errors import WriteError
from lakesink_protocol.row_changes import KeysFile
from tests.locate.builders import DELETE, UPSERT, changes_table, columns_of, opened, write_keys

COLUMNS = columns_of([LongType()], [StringType()])
ROWS = [(1, "a", UPSERT, 0, 7), (2**63 - 1, "b\0", DELETE, None, None)]


def refused(file: KeysFile, **limits: int) -> WriteError:
    with pytest.raises(WriteError) as error:
        read_changes([file], COLUMNS, opened, **limits)
    return error.value


def test_the_changes_of_all_files_come_in_order_with_their_task(tmp_path: Path) -> None:
    files = [write_keys(tmp_path, changes_table(COLUMNS, [row]), task) for task, row in enumerate(ROWS)]
    found = read_changes(files, COLUMNS, opened)
    assert found.column_names == ["k1", "s2", "op", "place", "offset", "task"]
    assert [tuple(row.values()) for row in found.to_pylist()] == [(*ROWS[0], 0), (*ROWS[1], 1)]


def test_without_files_there_are_no_changes() -> None:
    assert read_changes([], COLUMNS, opened).num_rows == 0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:],
        lambda data: b"",  # noqa: ARG005 - an empty file
    ],
    ids=["torn", "longer", "changed", "empty"],
)
def test_a_file_that_is_not_as_the_task_wrote_it_is_refused(tmp_path: Path, spoil: Any) -> None:
    file = write_keys(tmp_path, changes_table(COLUMNS, ROWS))
    Path(file.path).write_bytes(spoil(Path(file.path).read_bytes()))
    error = refused(file)
    assert error.code == "LAKESINK_KEYS_FILE_DAMAGED"
    assert file.path in error.action


def test_another_file_of_the_same_size_is_refused(tmp_path: Path) -> None:
    own = write_keys(tmp_path, changes_table(COLUMNS, [(1, "a", UPSERT, 0, 7)]), 0)
    other = write_keys(tmp_path, changes_table(COLUMNS, [(2, "a", UPSERT, 0, 7)]), 1)
    assert other.size_bytes == own.size_bytes
    Path(other.path).replace(own.path)
    assert refused(own).code == "LAKESINK_KEYS_FILE_DAMAGED"


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    file = write_keys(tmp_path, changes_table(COLUMNS, ROWS))
    Path(file.path).unlink()
    assert refused(file).code == "LAKESINK_KEYS_FILE_DAMAGED"


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("k1", pa.array([1, None], pa.int64())),
        ("s2", pa.array(["a", None])),
        ("op", pa.array([0, 3], pa.int8())),
        ("op", pa.array([-1, 0], pa.int8())),
        ("place", pa.array([None, None], pa.int64())),
        ("k1", pa.array([1.0, 2.0])),
        ("k1", pa.array(["1", "2"])),
    ],
)
def test_a_file_with_a_wrong_value_or_type_is_refused(tmp_path: Path, column: str, values: pa.Array) -> None:
    table = changes_table(COLUMNS, ROWS)
    spoilt = table.set_column(table.column_names.index(column), column, values)
    assert refused(write_keys(tmp_path, spoilt)).code == "LAKESINK_KEYS_FILE_DAMAGED"


def test_a_file_with_other_columns_or_another_number_of_rows_is_refused(tmp_path: Path) -> None:
    table = changes_table(COLUMNS, ROWS)
    assert refused(write_keys(tmp_path, table.drop_columns("s2"))).code == "LAKESINK_KEYS_FILE_DAMAGED"
    assert refused(replace(write_keys(tmp_path, table), rows=3)).code == "LAKESINK_KEYS_FILE_DAMAGED"


@pytest.mark.parametrize(
    ("older", "key", "present"),
    [
        (DecimalType(9, 3), Decimal(1), DecimalType(9, 2)),
        (DecimalType(10, 2), Decimal(1), DecimalType(9, 2)),
        (DecimalType(8, 1), Decimal(1), DecimalType(9, 2)),
        (IntegerType(), 1, DecimalType(9, 0)),
        (DecimalType(9, 0), Decimal(1), LongType()),
        (LongType(), 1, IntegerType()),
        (IntegerType(), 1, StringType()),
        (DateType(), date(2026, 1, 1), LongType()),
    ],
    ids=str,
)
def test_keys_of_a_type_that_no_change_of_a_schema_makes_the_present_one_are_refused(
    tmp_path: Path, older: IcebergType, key: Any, present: IcebergType
) -> None:
    file = write_keys(tmp_path, changes_table(columns_of([older]), [(key, UPSERT, None, None)]))
    with pytest.raises(WriteError) as error:
        read_changes([file], columns_of([present]), opened)
    assert error.value.code == "LAKESINK_KEYS_FILE_DAMAGED"


def test_keys_of_an_older_schema_are_widened(tmp_path: Path) -> None:
    narrow = columns_of([IntegerType(), DecimalType(9, 2)])
    wide = columns_of([LongType(), DecimalType(38, 2)])
    table = changes_table(narrow, [(-(2**31), None, UPSERT, None, None)]).set_column(
        1, "k2", pa.array(["9999999.99"]).cast(pa.decimal128(9, 2))
    )
    found = read_changes([write_keys(tmp_path, table)], wide, opened)
    [row] = found.select(["k1", "k2"]).to_pylist()
    assert row == {"k1": -(2**31), "k2": Decimal("9999999.99")}
    assert found["k2"].type == pa.decimal128(38, 2)


def test_more_changes_than_fit_into_memory_are_refused(tmp_path: Path) -> None:
    table = changes_table(COLUMNS, [(number, "x" * 1_000, UPSERT, None, None) for number in range(3_000)])
    file = write_keys(tmp_path, table)
    assert file.size_bytes < 2**20 < table.nbytes  # only the content is too large
    assert refused(file, most_bytes=2**20).code == "LAKESINK_TOO_MANY_CHANGES"
    assert refused(file, most_bytes=2**10).code == "LAKESINK_TOO_MANY_CHANGES"
