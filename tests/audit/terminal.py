"""The commands, run on a lake that a test has filled."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lakesink_tools.cli.main import main
from testkit.builders import TABLE, Lake

Run = Callable[..., Result]


def terminal(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command on the lake's table: the command's name, then its options."""
    for name, value in {"TYPE": "sql", "URI": f"sqlite:///{lake.folder}/catalog.db"}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__TEST__{name}", value)
    runner = CliRunner()
    return lambda command, *options: runner.invoke(
        main, [command, TABLE, "--catalog", "test", *map(str, options)], catch_exceptions=False
    )


def found(result: Result, exit_code: int = 0) -> Any:
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


def refused(result: Result) -> dict[str, str]:
    """What the command says instead of an answer."""
    error: dict[str, str] = found(result, 2)["error"]
    assert len(error["what"]) < 200
    return error
