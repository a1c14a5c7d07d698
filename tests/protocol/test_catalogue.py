"""The catalogue of errors and the places that raise them: one wording, and the facts that it needs."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

from lakesink_protocol.catalogue import PREFIX, Text, explanations, text_of
from lakesink_protocol.errors import CatalogError, Reason, WriteError

ROOT = Path(__file__).parents[2]
SOURCES = [
    path for name in ("protocol", "catalog", "lakesink", "tools") for path in sorted((ROOT / name).rglob("*.py"))
]
NOT_FACTS = {"data", "details"}
NAME = re.compile(r"[A-Z]+(_[A-Z0-9]+)*(\.[a-z0-9_]+)?|\.[a-z0-9_]+")
"""Of a text; without its code where that is a variable."""


def facts_of(text: Text) -> set[str]:
    """The names in braces."""
    return {name for part in (text.says, text.data, *text.do) for _, name, _, _ in Formatter().parse(part) if name}


def sites() -> Iterator[tuple[str, ast.Call]]:
    """The calls of `LakesinkError.of` and of its subclasses."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and re.fullmatch(
                r"(\w+Error|BatchRefused|CommitUnresolved|PartialBatch)\.of", ast.unparse(node.func)
            ):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def names_in(call: ast.Call) -> list[str]:
    """The names of the texts in a call; none if the code is a variable."""
    texts = [call.args[0].body, call.args[0].orelse] if isinstance(call.args[0], ast.IfExp) else call.args[:1]
    return [str(one.value) for one in texts if isinstance(one, ast.Constant)]


def texts() -> Iterator[tuple[str, Text]]:
    for explanation in explanations().values():
        code = explanation.code.removeprefix(PREFIX)
        yield code, explanation.text
        yield from ((f"{code}.{name}", text) for name, text in explanation.situations.items())


def test_a_place_gives_the_facts_that_its_text_names_and_no_others() -> None:
    wrong = []
    for place, call in sites():
        given = {keyword.arg for keyword in call.keywords}
        for name in names_in(call):
            text = text_of(name)
            needed = facts_of(text if "data" not in given else Text(text.says, text.do, ""))
            if given - NOT_FACTS != needed:
                wrong.append((place, name, given - NOT_FACTS, needed))
    assert wrong == []


def test_every_text_is_used() -> None:
    strings = {
        node.value
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value)
    }
    summaries = {one.code.removeprefix(PREFIX) for one in explanations().values() if one.situations}
    unused = {name for name, _ in texts() if name not in strings and f".{name.partition('.')[2]}" not in strings}
    assert unused - summaries - {reason.name for reason in Reason} == set()


def test_a_fact_of_several_ways_is_each_of_them_and_a_way_without_its_fact_is_left_out() -> None:
    text = Text(
        "{table} is {{new}}.", ("{ways}", "Use {other!r}. See [more](page.md).", "Run {command}."), "In {table}."
    )
    told = text.told({"table": "a.b", "ways": ("One.", "Two."), "other": "c", "command": None})
    assert told == Text("a.b is {new}.", ("One.", "Two.", "Use 'c'."), "In a.b.")
    assert text.shown().says == "<table> is {new}."
    assert facts_of(text) == {"table", "ways", "other", "command"}


def test_an_error_has_the_words_of_its_situation() -> None:
    error = CatalogError.of("EXECUTOR_PYTHON.version", driver="2", version="1")
    assert (error.code, error.what) == (
        "LAKESINK_EXECUTOR_PYTHON",
        "The driver runs lakesink 2, the Python of an executor has lakesink 1.",
    )
    with pytest.raises(KeyError):
        WriteError.of("EXECUTOR_PYTHON.unknown")


def test_an_error_is_reworded_in_some_of_its_parts() -> None:
    error = WriteError("TEXT_INVALID", "It.", action=["Do.", "Or do."], data="In.", details=["row 1"])
    again = error.reworded(data="Out.")
    assert (again.code, again.what, again.data) == ("LAKESINK_TEXT_INVALID", "It.", "Out.")
    assert (again.choices, again.details, type(again)) == (("Do.", "Or do."), ("row 1",), WriteError)
    assert error.reworded(action="Wait.", details=()).advice() == ["  Do: Wait."]
