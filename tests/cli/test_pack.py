"""An archive for executors holds lakesink and what its tasks import, and nothing of Spark."""

import json
import subprocess
import tarfile
import venv
from pathlib import Path

import pytest
from click.testing import CliRunner

from lakesink import __version__
from lakesink_tools.cli.main import main
from lakesink_tools.cli.run.pack import closure, files

SEEN = "import lakesink, pyarrow, pyiceberg_core, pyiceberg, s3fs, lakesink.task.task; print(lakesink.__version__)"


@pytest.mark.soak
def test_a_python_that_has_nothing_imports_what_tasks_need(tmp_path: Path) -> None:
    archive = tmp_path / "executors.tar.gz"
    answer = CliRunner().invoke(main, ["pack", str(archive), "--output", "json"])
    told = json.loads(answer.stdout)
    assert answer.exit_code == 0
    assert told["packages"]["lakesink"] == __version__
    assert not {"pyspark", "py4j", "psycopg2-binary", "sqlalchemy"} & set(told["packages"])
    assert told["bytes"] == archive.stat().st_size

    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    venv.create(tmp_path / "bare", symlinks=True)
    call = [str(tmp_path / "bare" / "bin" / "python"), "-c", SEEN]
    own = {"PYTHONPATH": str(tmp_path / "unpacked")}
    assert subprocess.run(call, env=own, capture_output=True, text=True, check=True).stdout.strip() == __version__


@pytest.mark.parametrize(("name", "why"), [("there.tar.gz", "there already"), ("executors.zip", "does not end in")])
def test_what_is_there_is_not_touched_and_what_spark_cannot_unpack_is_not_made(
    tmp_path: Path, name: str, why: str
) -> None:
    (tmp_path / "there.tar.gz").write_text("mine")
    answer = CliRunner().invoke(main, ["pack", str(tmp_path / name)])
    assert answer.exit_code == 2
    assert "[LAKESINK_CANNOT_PACK]" in answer.stderr
    assert why in answer.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["there.tar.gz"]
    assert (tmp_path / "there.tar.gz").read_text() == "mine"


def test_nothing_is_left_of_an_archive_that_could_not_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakesink_tools.cli.run.pack.files", lambda _found: [("gone", tmp_path / "gone")])
    answer = CliRunner().invoke(main, ["pack", str(tmp_path / "executors.tar.gz")])
    assert answer.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_packed_twice_or_outside_of_the_archive() -> None:
    names = [name for name, _ in files(closure())]
    assert len(names) == len(set(names))
    assert "lakesink/task/task.py" in names
    assert {"lakesink_protocol/receipt.py", "lakesink_catalog/failpoints.py"} <= set(names)
    assert {"duckdb/__init__.py", "numpy/__init__.py"} <= set(names), "executors decode with them"
    assert not [name for name in names if name.startswith(("/", "..")) or "/tests/" in name]
