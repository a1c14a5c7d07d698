"""What tests of streams look at."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from lakesink.spark.rows.arrow_limits import MAX_BYTES, MAX_RECORDS
from lakesink.spark.rows.batch_rows import FrameRows, PlanRows
from tests.spark.adapters import ADAPTERS, Adapter
from tests.spark.streams import write_files

NAMES_SOURCES = (4, 2)
collect_ignore = (
    ["test_source_evolution.py"] if tuple(map(int, pyspark.__version__.split(".")[:2])) < NAMES_SOURCES else []
)
"""Tests of what older versions of Spark do not have; `make matrix` runs them on those that do."""


@pytest.fixture(autouse=True)
def limits_of_arrow_batches_end_with_the_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """A job that a test runs by itself sets them in the session, which all tests of a process share."""
    yield
    if "spark" in request.fixturenames:
        conf = request.getfixturevalue("spark").conf
        for key in (MAX_BYTES, MAX_RECORDS):
            conf.unset(key)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three files, a batch each."""
    write_files(tmp_path / "in", 3)
    return tmp_path / "in"


@pytest.fixture(params=ADAPTERS)
def either(request: pytest.FixtureRequest) -> Adapter:
    """Each of the adapters in turn, for what an adapter decides itself. What the sink decides is tested by one."""
    return ADAPTERS[request.param]


@pytest.fixture
def votes_by(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ways in which jobs have got their rows, one name a job."""
    seen: list[str] = []
    for kind in (FrameRows, PlanRows):

        def reports(self: Any, *given: Any, kind: Any = kind, reports: Any = kind.reports) -> Any:
            seen.append(kind.__name__)
            return reports(self, *given)

        monkeypatch.setattr(kind, "reports", reports)
    return seen
