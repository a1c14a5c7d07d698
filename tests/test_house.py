"""What the house says of itself holds: modules that call themselves pure are checked to be, and figures have bounds."""

import ast
import re
import tomllib
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from testkit import house
from testkit.house import PACKAGES, ROOT, Bound, House

LONGEST_FUNCTION = 50
MADE_UP = {
    "lakesink/__init__.py": "",
    "lakesink/sinks/__init__.py": "",
    "lakesink/sinks/sink.py": "from lakesink.writer import rows\nfrom lakesink_protocol.batch import Batch\n",
    "lakesink/writer/rows.py": "def write():\n    import lakesink.sinks.sink\n    return {'dead_letters': 0}\n",
    "lakesink/writer/words.py": "import lakesink.writer.rows\n",
    "protocol/lakesink_protocol/batch.py": """
        class Batch:
            '''One batch; see dead_letters.'''
            def _once(self): return 1
            def _twice(self): return self._once()
            def run(self): return self._twice() + self._twice()
    """,
}


@pytest.fixture(scope="module")
def product() -> House:
    return House.read(ROOT)


@pytest.fixture
def made_up(tmp_path: Path) -> House:
    for path, text in MADE_UP.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(dedent(text))
    return House.read(tmp_path)


def contract(name: str) -> dict[str, Any]:
    """An import contract by its name."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    [found] = [one for one in settings["tool"]["importlinter"]["contracts"] if one["name"] == name]
    return found  # type: ignore[no-any-return] # TOML


def test_modules_that_call_themselves_pure_are_in_the_contract_and_no_others(product: House) -> None:
    told = {
        name
        for name, module in product.modules.items()
        if name.split(".")[0] != "lakesink_protocol" and re.search(r"\bPure\b", ast.get_docstring(module.tree) or "")
    }
    assert told == set(contract("Modules that call themselves pure do no I/O either")["source_modules"])


def test_every_module_says_what_it_is_for(product: House) -> None:
    assert {name.split(".")[0] for name in product.modules} == PACKAGES.keys()
    assert [name for name, module in product.modules.items() if not ast.get_docstring(module.tree)] == []


def test_no_function_is_longer_than_a_screen(product: House) -> None:
    functions = [(name, one.name, length(one)) for name, module in product.modules.items() for one in module.functions]
    assert [found for found in functions if found[2] > LONGEST_FUNCTION] == []


def length(function: ast.FunctionDef) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def test_no_figure_of_the_product_is_above_its_bound(product: House) -> None:
    bounds = house.read_bounds()
    figures = {name: measure(product)[0] for name, measure in house.MEASURES.items()}
    assert [bounds[name].trouble(name, now) for name, now in figures.items() if now > bounds[name].at_most] == []


def test_a_circle_is_found_though_a_part_of_it_is_imported_in_a_function(made_up: House) -> None:
    assert house.circles(made_up) == (1, ["lakesink.sinks.sink, lakesink.writer.rows"])


def test_arrows_that_close_a_circle_make_no_floor(made_up: House) -> None:
    assert house.arrows(made_up) == (2, ["sinks -> writer", "writer -> sinks"])
    assert house.floors(made_up)[0] == 2


def test_a_file_with_one_importer_is_found(made_up: House) -> None:
    assert [one.split()[0] for one in house.one_importer(made_up)[1]] == [
        "lakesink.sinks.sink",
        "lakesink_protocol.batch",
    ]


def test_a_method_that_is_used_once_is_found(made_up: House) -> None:
    assert house.one_caller(made_up) == (1, ["protocol/lakesink_protocol/batch.py:4 _once"])


def test_a_measure_that_a_docstring_names_is_not_in_its_file(made_up: House) -> None:
    assert house.files_of_a_measure(made_up)[0] == 1


def test_words_are_counted_of_the_pages_for_users_alone(tmp_path: Path) -> None:
    for page in ("docs/use/kafka.md", "docs/use/more/avro.md", "docs/understand/terms.md", "docs/use/figure.svg"):
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / page).write_text("# Three more words\n")
    assert house.words_of_docs(House.read(tmp_path)) == (8, ["4 docs/use/kafka.md", "4 docs/use/more/avro.md"])


def test_a_figure_above_its_bound_is_a_failure_and_one_far_below_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    bounds = {"lines": Bound(at_most=1000, goal=900), "floors": Bound(at_most=8, goal=8)}
    assert house.shown({"lines": 1001, "floors": 6}, bounds) == 1
    assert "lines is 1001, above its bound of 1000" in capsys.readouterr().out
    assert house.shown({"lines": 979, "floors": 6}, bounds) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "lines is 979: lower its bound of 1000, in testkit/house.toml."
