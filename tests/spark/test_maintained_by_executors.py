"""A session's executors rewrite the files of a table, at the end of a query too; the driver only commits."""

from pathlib import Path
from typing import Any, NoReturn

import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

import lakesink
from lakesink.sinks.iceberg.upkeep import maintenance
from testkit.builders import TABLE
from testkit.tasks import local
from tests.faults.test_sort_orders import ordered_by
from tests.upkeep.lake import Kept, rows

BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))


def not_in_the_driver(*_: Any) -> NoReturn:
    raise AssertionError


def test_executors_rewrite_the_groups_of_a_sorted_table(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "EXECUTORS_FROM_BYTES", 0)
    monkeypatch.setattr(maintenance, "rewrite", not_in_the_driver)
    kept = Kept.make(tmp_path, spec=BY_PART)
    for number in range(6):
        kept.table.append(rows(number * 100, 100, "ab"[number % 2]))
    ordered_by(kept.table, "id")
    kept.delete(lambda row: row["id"] % 7 == 0)
    before = kept.rows()
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/warehouse"}
    report = lakesink.maintain_table(
        TABLE, catalog="test", catalog_properties=properties, min_input_files=2, spark=spark
    )
    assert report is not None
    assert (report.left, [(group.files, group.into) for group in report.groups]) == ((), [(3, 1), (3, 1)])
    assert kept.rows() == before
    for file in kept.table.inspect.data_files().to_pylist():
        ids = pq.read_table(local(file["file_path"])).column("id").to_pylist()
        assert (file["sort_order_id"], ids) == (1, sorted(ids, reverse=True))
