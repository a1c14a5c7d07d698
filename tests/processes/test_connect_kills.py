"""On Spark Connect and in a pipeline, all processes are killed at a bad moment; the restart leaves every row once."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import Popen

import pytest

from testkit.harness import Stream, expected, wait_for
from testkit.installed import OWN_PORT
from testkit.pipeline import Pipeline

pytestmark = pytest.mark.driver

FILES = 3
LONG = pytest.mark.nightly


def kill_at(start: Callable[[str], AbstractContextManager["Popen[str]"]], place: str, window: Path) -> None:
    """Start a driver, wait until it pauses at the place, and kill it with its JVM and its Python workers."""
    with start(f"{place}=pause:{window}") as process:
        wait_for(window, process)


@pytest.mark.parametrize("place", ["after-prepared@1", pytest.param("after-call@1", marks=LONG)])
def test_a_connect_session_that_is_killed_neither_loses_nor_doubles_a_row(
    tmp_path: Path, site: Path, place: str
) -> None:
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    stream = Stream(tmp_path, adapter="connect", environment=OWN_PORT | {"PYTHONPATH": path})
    stream.add_files(0, FILES)
    kill_at(stream.driver, place, tmp_path / "paused")
    assert stream.rows() == expected(range(1 + place.startswith("after-call")))
    assert stream.run() == 0, stream.log()
    assert stream.rows() == expected(range(FILES))


@pytest.mark.parametrize("place", ["after-call@1", pytest.param("after-prepared@1", marks=LONG)])
def test_a_pipeline_that_is_killed_neither_loses_nor_doubles_a_row(tmp_path: Path, site: Path, place: str) -> None:
    pipeline = Pipeline(tmp_path, site)
    pipeline.add_files("all_numbers", 0, FILES)
    kill_at(lambda failpoints: pipeline.process(failpoints=failpoints), place, tmp_path / "paused")
    assert pipeline.rows() == expected(range(1 + place.startswith("after-call")))
    assert pipeline.run() == 0, pipeline.log()
    assert pipeline.rows() == expected(range(FILES))
