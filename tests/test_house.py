"""What the house says of itself holds: modules that call themselves pure are checked to be."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LONGEST_FUNCTION = 50
PACKAGES = {
    "lakesink": ROOT,
    "lakesink_catalog": ROOT / "catalog",
    "lakesink_protocol": ROOT / "protocol",
    "lakesink_tools": ROOT / "tools",
    "pyspark_lakesink": ROOT,
}


def contract(name: str) -> dict[str, list[str]]:
    """An import contract by its name."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    [found] = [one for one in settings["tool"]["importlinter"]["contracts"] if one["name"] == name]
    return found  # type: ignore[no-any-return] # TOML


def trees(package: str) -> dict[str, ast.Module]:
    """A package's modules by their names."""
    root = PACKAGES[package]
    return {
        ".".join(path.relative_to(root).with_suffix("").parts): ast.parse(path.read_text())
        for path in (root / package).rglob("*.py")
    }


def modules(package: str) -> dict[str, str]:
    """Docstrings of a package's modules by their names."""
    return {name: ast.get_docstring(tree) or "" for name, tree in trees(package).items()}


def test_modules_that_call_themselves_pure_are_in_the_contract_and_no_others() -> None:
    told = {
        name
        for package in ("lakesink", "lakesink_catalog", "lakesink_tools")
        for name, text in modules(package).items()
        if _pure(text)
    }
    assert told == set(contract("Modules that call themselves pure do no I/O either")["source_modules"])


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_says_what_it_is_for(package: str) -> None:
    assert [name for name, text in modules(package).items() if not text] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_function_is_longer_than_a_screen(package: str) -> None:
    functions = (
        (name, node.name, _length(node))
        for name, tree in trees(package).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    )
    assert [found for found in functions if found[2] > LONGEST_FUNCTION] == []


def _length(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def _pure(text: str) -> bool:
    return re.search(r"\bPure\b", text) is not None
