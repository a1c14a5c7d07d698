"""Every example runs as it is in an empty folder, and a second run shows what exactly once means for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LAST_LINES = {
    "files_to_table.py": ("1 files, 1 batches, 100 orders", "2 files, 2 batches, 200 orders"),
    "nightly_load.py": ("2000 sales", "2000 sales"),
    "own_foreach_batch.py": ("bank.sums_by_batch: 1 batches, 10 rows", "bank.sums_by_batch: 2 batches, 20 rows"),
}


def run(example: str, folder: Path) -> list[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("LAKESINK_", "PYICEBERG_"))}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example)],
        cwd=folder,
        env=environment | {"PYICEBERG_HOME": str(folder), "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("example", sorted(LAST_LINES))
def test_an_example_runs_and_runs_again(tmp_path: Path, example: str) -> None:
    assert tuple(run(example, tmp_path)[-1] for _ in range(2)) == LAST_LINES[example]


def test_every_example_is_run_here_and_named_in_their_readme() -> None:
    found = {path.name for path in EXAMPLES.glob("*.py")}

    assert found == set(LAST_LINES)
    assert all(f"[{name}]({name})" in (EXAMPLES / "README.md").read_text() for name in found)
