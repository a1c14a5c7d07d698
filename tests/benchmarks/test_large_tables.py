"""Benchmarks of upserts into large tables: the table has the rows of the kept files, and figures are judged."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks import large_table, many_rows, read_upserted
from benchmarks.large_table import LargeFiles, RandomChanges
from benchmarks.many_rows import DRIVER, EXECUTORS, Run
from benchmarks.read_upserted import CHANGED, COMPACTED, LOADED
from lakesink_catalog.connect.catalog import connect


def test_tables_take_the_kept_files_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_table, "FOLDER", tmp_path / "kept")
    said: list[str] = []
    catalog = connect("bench", {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"})
    catalog.create_namespace("bench")
    for name in ("bench.first", "bench.second"):
        table = LargeFiles.made(1_000, 4, said.append).table(catalog, name)
        assert table.scan().to_arrow()["id"].to_pylist() == list(range(1_000))
        found = table.scan("id >= 300 and id < 400").plan_files()
        assert [Path(task.file.file_path).name for task in found] == ["001.parquet"]
    assert len(said) == 4


def test_changes_are_of_keys_all_over_the_table_and_some_new_ones(tmp_path: Path) -> None:
    changes = RandomChanges(tmp_path, rows=100_000, changes=1_000)
    [first, second] = [pq.read_table(changes.write(number))["id"].to_pylist() for number in range(2)]
    assert len(set(first)) == len(first) > 980
    assert sorted(key for key in first if key >= 100_000) == [100_000 + place * 100 for place in range(10)]
    assert max(key for key in first if key < 100_000) - min(first) > 90_000
    assert len(set(first) & set(second)) < 100


def test_a_read_is_judged_against_the_compacted_table() -> None:
    times = {LOADED: [1.0, 1.0, 1.0], CHANGED: [3.0, 4.0, 2.0], COMPACTED: [2.0, 2.0, 2.0]}
    found = read_upserted.report({"Spark": times, "DuckDB": times | {CHANGED: [9.0, 9.0, 9.0]}}, 1_000)
    assert found.rows[0] == ("Spark", 1.0, 3.0, 2.0, "1.50 (1.00-2.00)")
    assert [goal.reached for goal in found.goals] == [True, False]


def test_two_cores_are_judged_against_one() -> None:
    def run(where: str, cores: int, locate_ms: int) -> Run:
        return Run(where, cores, [locate_ms] * 3, [locate_ms + 100] * 3, 1.0, 2**20, 2**21)

    found = many_rows.report([run(EXECUTORS, 1, 3000), run(EXECUTORS, 2, 1500), run(DRIVER, 2, 1600)], 1_000)
    assert found.rows == (
        (EXECUTORS, 1, 3000, 3100, 1, 2),
        (EXECUTORS, 2, 1500, 1600, 1, 2),
        (DRIVER, 2, 1600, 1700, "-", 2),
    )
    assert [goal.measured for goal in found.goals] == [2.0]
