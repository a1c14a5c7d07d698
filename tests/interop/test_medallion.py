"""The example with three tables runs as its page shows it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.harness import PATIENCE_SECONDS

pytestmark = [pytest.mark.interop, pytest.mark.nightly]
EXAMPLE = Path(__file__).parents[2] / "examples" / "medallion"
_ONE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
_TIME = re.compile(f"{_ONE}(?: to {_ONE})?")


def test_the_example_prints_what_its_page_shows(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(EXAMPLE / "run.py")],
        cwd=tmp_path,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
    )
    shown = (EXAMPLE / "README.md").read_text().split("```\n")[3]
    assert _words(run.stdout) == _words(shown)


def _words(text: str) -> list[list[str]]:
    """Line by line, without times: columns are as wide as these."""
    return [_TIME.sub("TIME", line).split() for line in text.splitlines()]
