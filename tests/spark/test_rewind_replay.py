"""A table that is rolled back: the stream is refused, and goes on after what the refusal says."""

import re
import shlex
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner
from pyiceberg.table import Table

import lakesink
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from lakesink_tools.cli.main import main
from tests.spark.streams import failure, file_stream, run, write_files

pytestmark = pytest.mark.usefixtures("home")
TABLE = "demo.events"
OPTIONS: dict[str, Any] = {"sink_id": "events", "checkpoint": "ck", "create_table": True}


def _table() -> Table:
    return load_table(connect(create=False), TABLE)


def test_after_a_rollback_each_row_is_there_once_again(spark: Any, tmp_path: Path) -> None:
    write_files(tmp_path / "in", 5)
    run(lakesink.stream(file_stream(spark, tmp_path / "in"), TABLE, **OPTIONS))
    kept = next(record for record in lakesink.history(TABLE) if record.batch_id == 2)
    _table().manage_snapshots().rollback_to_snapshot(kept.snapshot_id).commit()

    write_files(tmp_path / "in", 1, first=5)
    text = failure(lakesink.stream(file_stream(spark, tmp_path / "in"), TABLE, **OPTIONS))
    assert "[LAKESINK_ROLLED_BACK]" in text
    command = re.search(r"`lakesink (rewind \S+ --to-batch 2)`", text)
    assert command is not None, text
    assert CliRunner().invoke(main, [*shlex.split(command[1]), "--yes"]).exit_code == 0

    run(lakesink.stream(file_stream(spark, tmp_path / "in"), TABLE, **OPTIONS))
    assert sorted(_table().scan().to_arrow()["id"].to_pylist()) == list(range(60))
    run(lakesink.stream(file_stream(spark, tmp_path / "in"), TABLE, **OPTIONS))
    assert sorted(_table().scan().to_arrow()["id"].to_pylist()) == list(range(60))


@pytest.mark.dear
def test_a_query_with_state_goes_on_from_the_state_of_its_batch(spark: Any, tmp_path: Path) -> None:
    def start() -> Any:
        return lakesink.stream(file_stream(spark, tmp_path / "in").dropDuplicates(["id"]), TABLE, **OPTIONS)

    write_files(tmp_path / "in", 4)
    run(start())
    kept = next(record for record in lakesink.history(TABLE) if record.batch_id == 1)
    _table().manage_snapshots().rollback_to_snapshot(kept.snapshot_id).commit()
    assert CliRunner().invoke(main, ["rewind", "ck", "--to-batch", "1", "--yes"]).exit_code == 0
    versions = {int(path.name.partition(".")[0]) for path in Path("ck/state").rglob("[0-9]*.*")}
    assert max(versions) == 2

    run(start())
    write_files(tmp_path / "again", 4)
    for number, path in enumerate(sorted((tmp_path / "again").iterdir())):
        path.rename(tmp_path / "in" / f"again-{number}.json")
    run(start())
    assert sorted(_table().scan().to_arrow()["id"].to_pylist()) == list(range(40))


@pytest.mark.dear
def test_a_directory_goes_back_with_its_checkpoint_and_a_corrected_query_with_state_writes_anew(
    spark: Any, tmp_path: Path
) -> None:
    def rows(factor: int) -> Any:
        stream = file_stream(spark, tmp_path / "in").dropDuplicates(["id"]).selectExpr(f"id * {factor} AS id")
        run(lakesink.stream_files(stream, "out", sink_id="events", checkpoint="ck"))
        return duckdb.read_parquet(lakesink.committed_files("out")).order("id").project("id").fetchall()

    write_files(tmp_path / "in", 4)
    assert rows(1) == [(number,) for number in range(40)]
    command = ["rewind", "ck", "--to-batch", "1", "--directory", "out", "--yes"]
    assert CliRunner().invoke(main, command).exit_code == 0
    assert len(list(Path("out/_lakesink/events/commits").iterdir())) == 2
    versions = {int(path.name.partition(".")[0]) for path in Path("ck/state").rglob("[0-9]*.*")}
    assert max(versions) == 2
    corrected = sorted([*range(20), *(number * 1000 for number in range(20, 40))])
    assert rows(1000) == [(number,) for number in corrected]
    assert rows(1000) == [(number,) for number in corrected]
