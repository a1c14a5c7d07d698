"""Help and errors of usage answer at once: they import no library that only a running command needs."""

import inspect
import subprocess
import sys
from dataclasses import fields
from importlib import import_module

import click
import pytest

from lakesink_tools.cli.commands import COMMANDS

CHILD = """
import sys
from lakesink_tools.cli.main import main
try:
    main(sys.argv[1:])
finally:
    print(*{"pyspark", "pyiceberg", "pyarrow", "sqlalchemy", "duckdb", "fsspec"} & set(sys.modules), file=sys.stderr)
"""


def child(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", CHILD, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_help_lists_every_command() -> None:
    result = child("--help")
    assert (result.returncode, result.stderr.split()) == (0, [])
    listed = [line.split()[0] for line in result.stdout.partition("Commands:\n")[2].splitlines()]
    assert listed == sorted(str(command.name) for command in COMMANDS)


@pytest.mark.parametrize("command", [str(command.name) for command in COMMANDS])
def test_help_of_a_command_imports_no_heavy_library(command: str) -> None:
    result = child(command, "--help")
    assert (result.returncode, result.stderr.split()) == (0, [])
    assert result.stdout.startswith(f"Usage: -c {command} ")
    assert "--output [text|json]" in result.stdout


def test_a_wrong_argument_is_refused_before_a_heavy_library_is_imported() -> None:
    result = child("log", "demo.events", "--limit", "0")
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == ""
    assert "Invalid value for '--limit'" in result.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_command_has_a_function_with_the_parameters_that_are_declared(command: click.Command) -> None:
    name = str(command.name).replace("-", "_")
    module = import_module(f"lakesink_tools.cli.run.{name}")
    declared = {parameter.name for parameter in command.params} - {"output"}
    takes = set(inspect.signature(getattr(module, name)).parameters)
    if "options" in takes:  # the rest of them, for a record
        takes = takes - {"options"} | {field.name for field in fields(module.Asked)}
    assert takes == declared


def test_python_runs_the_commands_where_no_script_is_on_the_path() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "lakesink", "explain", "NO_SUCH_CODE"], capture_output=True, text=True, check=False
    )
    assert told.returncode == 2
    assert "NO_SUCH_CODE" in told.stderr
