"""Every command on the page about engines runs, and every code on it is one that is raised."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from lakesink_tools.cli.main import main
from testkit.builders import Lake, Stream

PAGE = (Path(__file__).parents[2] / "docs/operate/engines.md").read_text()
COMMANDS = re.findall(r"^lakesink (.+)$", PAGE, re.MULTILINE)


def test_the_page_has_a_command_for_every_engine() -> None:
    engines = {command.split("--for ")[1].split()[0] for command in COMMANDS}
    assert engines == {"trino", "spark", "duckdb", "flink", "pyiceberg"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(Lake.make(tmp_path)).filled(2)
    monkeypatch.setenv("PYICEBERG_CATALOG__TEST__URI", f"sqlite:///{tmp_path}/catalog.db")
    done = CliRunner().invoke(main, [*shlex.split(command), "--catalog", "test"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert str(stream.snapshot_of(1)) in done.stdout
