"""How many files one batch runs through, and their lines: bounds as in test_house.py, with the Spark of the lock."""

from pathlib import Path
from typing import Any

import pytest

from lakesink.spark import foreach_batch
from lakesink_catalog.commit import fence
from testkit.executed import measured_in
from testkit.house import ROOT, House, read_bounds


@pytest.mark.usefixtures("home")
def test_a_batch_runs_through_no_more_files_and_lines_than_their_bounds(spark: Any, tmp_path: Path) -> None:
    found, bounds = measured_in(spark, tmp_path, House.read(ROOT)), read_bounds()
    assert [bounds[name].trouble(name, now) for name, (now, _) in found.items() if now > bounds[name].at_most] == []
    ways = {"append": found["append-files"][1], "upsert": found["upsert-files"][1]}
    for module in (foreach_batch, fence):
        path = Path(str(module.__file__)).relative_to(ROOT).as_posix()
        assert [way for way, files in ways.items() if path not in files] == []
