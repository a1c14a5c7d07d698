"""How many files one batch runs through, and their lines: bounds as in test_house.py, with the Spark of the lock.

The page that follows a batch through the code names functions in the order in which they run.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from lakesink.spark import foreach_batch
from lakesink_catalog.commit import batch_commit
from lakesink_catalog.connect.catalog import HOME_VARIABLE
from testkit.executed import Calls, executed_in, measured
from testkit.house import ROOT, House, read_bounds
from tests.test_docs import NAMED_CODE, document

STEP = re.compile(r"^\d+\. ((?:`[^`]+`,?\s+)*`[^`]+`)", re.MULTILINE)
"""An item of the page, up to its sentences: the functions that it follows."""


@pytest.fixture(scope="module")
def ran(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Calls]:
    folder = tmp_path_factory.mktemp("executed")
    with patch.dict(os.environ, {HOME_VARIABLE: str(folder / "home"), "PYICEBERG_HOME": str(folder)}):
        return executed_in(spark, folder)


def test_a_batch_runs_through_no_more_files_and_lines_than_their_bounds(ran: Mapping[str, Calls]) -> None:
    found, bounds = measured(ran, House.read(ROOT)), read_bounds()
    assert [bounds[name].trouble(name, now) for name, (now, _) in found.items() if now > bounds[name].at_most] == []
    ways = {"append": found["append-files"][1], "upsert": found["upsert-files"][1]}
    for module in (foreach_batch, batch_commit):
        path = Path(str(module.__file__)).relative_to(ROOT).as_posix()
        assert [way for way, files in ways.items() if path not in files] == []


@pytest.mark.parametrize("batch", ["append", "upsert"])
def test_the_page_on_one_batch_has_the_functions_in_the_order_in_which_they_run(
    batch: str, ran: Mapping[str, Calls]
) -> None:
    part = document("docs/understand/one-batch.md").partition(f"## An {batch}\n")[2].partition("\n## ")[0]
    steps = [function for step in STEP.findall(part) for function in NAMED_CODE.findall(step)]
    called = [
        (str(Path(path).relative_to(ROOT)), name) for path, name in ran[batch].functions if path.startswith(f"{ROOT}/")
    ]
    assert steps != []
    assert [function for function in called if function in steps] == steps
