"""The example runs as its page shows it."""

import subprocess
import sys
from pathlib import Path

import pytest

from testkit.harness import PATIENCE_SECONDS

pytestmark = pytest.mark.interop
EXAMPLE = Path(__file__).parents[3] / "examples" / "transactional_sinks"


def test_the_example_prints_what_its_page_shows(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(EXAMPLE / "run.py"), str(tmp_path / "shop")],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    shown = (EXAMPLE / "README.md").read_text().split("```\n")[3]
    assert run.stdout == shown
