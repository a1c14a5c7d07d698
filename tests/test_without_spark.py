"""Where PySpark is not installed: tables are looked at, and a stream says what it needs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HIDES = "raise ModuleNotFoundError(\"No module named 'pyspark'\", name='pyspark')"


def run(folder: Path, code: str) -> "subprocess.CompletedProcess[str]":
    """Run Python as if PySpark were not there."""
    (folder / "pyspark.py").write_text(HIDES)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", ["stream", "append", "stream_to", "stream_files", "register", "replay_dead_letters"])
def test_what_needs_spark_says_so_and_how_to_get_it(tmp_path: Path, name: str) -> None:
    said = run(tmp_path, f"import lakesink; lakesink.{name}").stderr
    assert f"[LAKESINK_SPARK_MISSING] lakesink.{name} needs PySpark, which this Python does not have." in said
    assert 'Do: pip install "lakesink[spark]" "pyspark==4.1.*"' in said
    assert "During handling" not in said


def test_history_audit_and_the_command_line_need_none(tmp_path: Path) -> None:
    modules = "lakesink, lakesink.two_phase, lakesink_tools.cli.main"
    code = f"import {modules}; print(lakesink.history, lakesink.committed_files)"
    done = run(tmp_path, code)
    assert done.returncode == 0, done.stderr
    shown = run(tmp_path, "from lakesink_tools.cli.main import main; main(['explain', 'SPARK_MISSING'])")
    assert "LAKESINK_SPARK_MISSING" in shown.stdout
