"""What the page about engines says of a changelog: Spark streams from it, and shows its changes, also of deletes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from servers.jars import ICEBERG_SPARK, ROOT, fetched
from testkit.builders import Lake
from testkit.change_table import Reference, rows_of, upsert_lake
from testkit.harness import PATIENCE_SECONDS
from testkit.http_servers import skipped_where_missing
from tests.interop.changelog_reader import CATALOG
from tests.upsert.test_changelog import LOG, folded, log_of, logging

pytestmark = pytest.mark.interop
OF_SPARK = ("_change_type", "_change_ordinal", "_commit_snapshot_id")


@pytest.fixture(scope="module", autouse=True)
def _jars() -> None:
    with skipped_where_missing():
        fetched(ICEBERG_SPARK)


def read(lake: Lake, folder: Path, table: str, step: int = 0) -> str:
    """Let the reader take a step in a process of its own; returns what Spark says if it refuses."""
    folder.mkdir(exist_ok=True)
    catalog = f"spark.sql.catalog.{CATALOG}"
    conf = {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{lake.folder / 'catalog.db'}",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": f"file://{lake.folder / 'warehouse'}",
    }
    config = {"conf": conf, "folder": str(folder), "table": table, "step": step}
    done = subprocess.run(
        [sys.executable, "-m", "tests.interop.changelog_reader", json.dumps(config)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def rows_in(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ds.dataset(folder, format="parquet").to_table().to_pylist()
    return sorted(rows, key=lambda row: (row["_batch_id"], row["version"], row["id"]))


def test_spark_streams_every_change_once_from_a_changelog_and_shows_it_in_a_view(tmp_path: Path) -> None:
    lake, reference, folder = upsert_lake(tmp_path), Reference(), tmp_path / "reader"
    stream = logging(lake, 5)
    for step, batches in enumerate((range(4), range(4, 9))):
        for number in batches:
            stream.run(number)
            reference.apply(stream.changes(number))
        assert read(lake, folder, LOG, step) == ""
        streamed, viewed = rows_in(folder / "streamed"), rows_in(folder / f"viewed-{step}")
        assert {row["_operation"] for row in streamed} == {"upsert", "delete"}
        assert streamed == log_of(lake)
        assert folded(streamed) == rows_of(lake) == reference.table
        assert {row["_change_type"] for row in viewed} == {"INSERT"}
        assert [{name: row[name] for name in row if name not in OF_SPARK} for row in viewed] == streamed
        ordinals = {row["_batch_id"]: row["_change_ordinal"] for row in viewed}
        assert sorted(ordinals, key=lambda batch: ordinals[batch]) == sorted(ordinals)


def test_spark_does_not_stream_from_the_table_itself(tmp_path: Path) -> None:
    lake = upsert_lake(tmp_path)
    stream = logging(lake, 5)
    for number in range(4):
        stream.run(number)
    assert "Cannot process overwrite snapshot" in read(lake, tmp_path / "reader", "demo.events")
