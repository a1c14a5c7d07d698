"""`lakesink lineage` of real streams of files: the checkpoint has the paths, and the table proves them."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import lakesink
from lakesink_tools.cli.main import main
from tests.spark.streams import file_stream, run, write_files

pytestmark = pytest.mark.usefixtures("home")
TABLE = "demo.both"


def told(batch: int, *options: str) -> Any:
    done = CliRunner().invoke(main, ["lineage", TABLE, "--batch", str(batch), *options, "--output", "json"])
    return json.loads(done.stdout) | {"exit_code": done.exit_code}


def names(source: dict[str, Any]) -> list[str]:
    return [Path(path).parent.name + "/" + Path(path).name for path in source["files"]]


def test_each_of_two_sources_has_its_own_files(spark: Any, tmp_path: Path) -> None:
    left, right = tmp_path / "left", tmp_path / "right"
    for number in range(2):
        write_files(left, 1, first=number)
        write_files(right, 1, first=50 + number)
        rows = file_stream(spark, left).union(file_stream(spark, right))
        run(lakesink.stream(rows, TABLE, sink_id="both", checkpoint="ck-both", create_table=True))
    for number in range(2):
        found = told(number, "--checkpoint", "ck-both")
        assert (found["complete"], found["exit_code"], found["batch"]["known_by"]) == (True, 0, "proven")
        one, other = found["batch"]["sources"]
        assert [len(names(one)), len(names(other))] == [1, 1]
        assert {path.partition("/")[0] for path in (*names(one), *names(other))} == {"left", "right"}
        assert (one["after_log"], one["to_log"]) == (number - 1 if number else None, number)
    without = told(1)
    assert (without["exit_code"], without["batch"]["known_by"]) == (1, "offsets")
    assert "are in the query's checkpoint only" in without["not_known"][0]
