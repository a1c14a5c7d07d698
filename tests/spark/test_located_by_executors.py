"""Executors find the rows of changed keys, also in files that lack a column whose value their partition has."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import IcebergType, StringType

import lakesink
from lakesink.spark.rows.job import Executors
from testkit.builders import TABLE, Lake
from tests.upsert.foreign_files import ID, PART, TYPES, VERSION, add_file, lake_of, live_rows

OF_SPARK = [one for one in TYPES if str(one[0]) not in ("fixed[2]", "uuid")]
"""Spark has no type of its own for the others."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many groups of files were given to executors, call by call."""
    found: list[int] = []
    real = Executors.__call__

    def call(self: Executors, function: Any, items: Sequence[Any]) -> list[bytes]:
        found.append(len(items))
        return real(self, function, items)

    monkeypatch.setattr(Executors, "__call__", call)
    return found


def change(spark: Any, lake: Lake, keys: list[str], rows: pa.Table) -> None:
    part = {"timestamp": "timestamp_ntz"}.get(kind := str(lake.table().schema().find_type("part")), kind)
    properties = {"type": "sql", "uri": f"sqlite:///{lake.folder}/catalog.db", "warehouse": f"{lake.folder}/warehouse"}
    lakesink.upsert(
        spark.createDataFrame(rows, f"id long, part {part}, version long, gone boolean"),
        TABLE,
        keys=keys,
        txn=("changes", 1),
        mode="changes",
        sequence_by="version",
        apply_as_deletes="gone",
        except_column_list="gone",
        locate_in="executors",
        catalog="test",
        catalog_properties=properties,
    )


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize(("kind", "arrow", "value"), OF_SPARK, ids=[str(one[0]) for one in OF_SPARK])
def test_executors_find_rows_by_a_key_that_only_the_partition_tells(
    spark: Any, tmp_path: Path, calls: list[int], kind: IcebergType, arrow: pa.DataType, value: Any, *, has_ids: bool
) -> None:
    lake = lake_of(tmp_path, kind, ID, PART)
    add_file(lake, {"id": pa.array([1, 2, 3]), "version": pa.array([7, 7, 7])}, value, has_ids=has_ids)
    parts = pa.array([value] * 3, {"date": pa.int32(), "timestamp": pa.int64()}.get(str(kind), arrow)).view(arrow)
    rows = {"id": [1, 2, 4], "part": parts, "version": [9, 9, 9], "gone": [False, True, True]}
    change(spark, lake, ["id", "part"], pa.table(rows))
    assert calls == [1]
    assert live_rows(lake) == [(1, 9), (3, 7)]


@pytest.mark.parametrize("has_ids", [True, False])
def test_executors_return_a_sequence_that_only_the_partition_tells(
    spark: Any, tmp_path: Path, calls: list[int], *, has_ids: bool
) -> None:
    lake = lake_of(tmp_path, StringType(), ID, source=VERSION)
    add_file(lake, {"id": pa.array([1, 2, 3]), "part": pa.array(["a", "a", "a"])}, 7, has_ids=has_ids)
    rows = {"id": [1, 2], "part": ["late", None], "version": [6, 8], "gone": [False, True]}
    change(spark, lake, ["id"], pa.table(rows))
    assert calls == [1]
    found = lake.table().scan().to_arrow().sort_by("id").to_pylist()
    assert found == [{"id": key, "part": "a", "version": 7} for key in (1, 3)]
