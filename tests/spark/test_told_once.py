"""Of an error that ends a stream, a person reads the whole message once, and before what Spark prints of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.driver


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the driver beside this file prints of each failure, Python and Spark together."""
    folder = tmp_path_factory.mktemp("refused")
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.refused_driver", str(folder)],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"LAKESINK_HOME": str(folder / "home")},
    )
    _, *parts = done.stderr.split("\n== ")
    return {name: text for name, _, text in (part.partition("\n") for part in parts)}


@pytest.mark.parametrize(
    ("part", "code", "whole", "first_lines"),
    [
        ("refused", "ROLLED_BACK", 1, 4),
        ("found by a task", "KEY_NULL", 1, 4),
        ("before the start", "OPTION_INVALID", 1, 1),
        ("refused without a log", "ROLLED_BACK", 3, 3),
    ],
)
def test_the_whole_message_is_printed_once_where_the_log_or_a_terminal_has_it(
    printed: dict[str, str], part: str, code: str, whole: int, first_lines: int
) -> None:
    text = printed[part]
    assert text.count(f"[LAKESINK_{code}] ") == first_lines
    assert (text.count("\n  Data: "), text.count("\n  Do: ")) == (whole, whole)
    assert text.count("The driver's log has the whole message") == first_lines - whole
    if first_lines > 1:
        assert (text.index("\n  Do: ") < text.index("terminated with error")) is (whole == 1)
