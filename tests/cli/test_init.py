"""What ``init`` writes runs as it is, for somebody who has nothing else, and nothing is ever overwritten."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lakesink_tools.cli.main import main

WRITTEN = [".pyiceberg.yaml", "first_stream.py"]


def init(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["init", *arguments], catch_exceptions=False)


def newcomer(home: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in a folder, without any variable or configuration of ours."""
    foreign = ("LAKESINK_", "PYICEBERG_", "PYSPARK_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return subprocess.run(
        command, cwd=home, env=environment | {"HOME": str(home)}, capture_output=True, text=True, check=False
    )


def lakesink(home: Path, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    code = f"import os; os.chdir({str(folder)!r}); from lakesink_tools.cli.main import main; main()"
    return newcomer(home, sys.executable, "-c", code, *arguments)


@pytest.mark.driver
def test_the_first_program_runs_as_it_is_and_again_from_any_folder(tmp_path: Path) -> None:
    project = tmp_path / "a project"
    written = lakesink(tmp_path, tmp_path, "init", str(project))
    assert (written.returncode, written.stderr) == (0, "")
    assert sorted(path.name for path in project.iterdir()) == WRITTEN
    assert written.stdout.splitlines()[-1].startswith(f"Next: python '{project}/first_stream.py', then in ")
    for runs in (1, 2):
        done = newcomer(tmp_path, sys.executable, str(project / "first_stream.py"))
        assert done.returncode == 0, done.stderr[-3000:]
        lines = done.stdout.splitlines()
        assert [line.partition(", snapshot")[0] for line in lines] == [f"batch {n}: 1000 rows" for n in range(runs)]
        assert all(line.endswith(", committed") for line in lines)
    status = lakesink(tmp_path, project, "status", "--output", "json")
    assert [(table["table"], len(table["sinks"])) for table in json.loads(status.stdout)["tables"]] == [
        ("demo.events", 1)
    ]
    assert (project / "lakehouse").is_dir()


@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_that_is_there_stays_and_nothing_is_written_beside_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    result = init(str(tmp_path))
    assert result.exit_code == 2
    assert result.stderr.startswith("[LAKESINK_FILE_EXISTS] There is already")
    assert "Data: Nothing was written.\n  Do: Choose one of these.\n    - Name another folder" in result.stderr
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "mine")]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_link_to_nothing_stays_and_nothing_is_written_beside_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to(tmp_path / "missing")
    result = init(str(tmp_path))
    assert result.exit_code == 2
    assert "Data: Nothing was written." in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_second_init_overwrites_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert json.loads(init("--output", "json").stdout) == {"folder": ".", "written": WRITTEN}
    (tmp_path / "first_stream.py").write_text("changed")
    assert init().exit_code == 2
    assert (tmp_path / "first_stream.py").read_text() == "changed"


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = init(str(tmp_path / "file" / "project"))
    assert result.exit_code == 2
    assert result.stderr.startswith("[LAKESINK_DIRECTORY_UNWRITABLE] ")
    assert init(str(tmp_path / "file")).exit_code == 2


@pytest.mark.parametrize("catalog", ["postgresql+psycopg2://db.example.com/iceberg", "https://catalog.example.com"])
def test_each_catalog_of_the_configuration_is_there_when_its_lines_are_uncommented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, catalog: str
) -> None:
    init(str(tmp_path))
    path = tmp_path / ".pyiceberg.yaml"
    paragraphs = path.read_text().split("\n\n")
    shown = [
        "\n".join(line.removeprefix("# ") for line in paragraph.splitlines()) if catalog in paragraph else paragraph
        for paragraph in paragraphs
    ]
    path.write_text("\n\n".join(shown))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    code = "from lakesink_catalog.connect.catalog import CatalogConfig as C; print(C().find().properties['uri'])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.stdout.startswith(catalog), found.stderr
