"""The processes of `format("lakesink")`: each may be killed alone, and the restart leaves every row once."""

from pathlib import Path

import pytest

from testkit.harness import Stream, expected

pytestmark = pytest.mark.driver

FILES = 3


@pytest.mark.parametrize(
    "place",
    [
        pytest.param("batch-start@1", id="the-planner"),
        pytest.param("after-prepared@1", id="the-committer-with-the-batch-prepared", marks=pytest.mark.nightly),
        pytest.param("after-call@1", id="the-committer-with-the-batch-committed", marks=pytest.mark.nightly),
    ],
)
def test_a_process_of_the_format_that_is_killed_neither_loses_nor_doubles_a_row(tmp_path: Path, place: str) -> None:
    stream = Stream(tmp_path, adapter="format")
    stream.add_files(0, FILES)
    assert stream.run(f"{place}=kill") > 0, stream.log()  # the driver lives on, and the query ends with an error
    landed = 1 + place.startswith("after-call")
    assert stream.rows() == expected(range(landed))
    assert stream.run() == 0, stream.log()
    assert stream.rows() == expected(range(FILES))
