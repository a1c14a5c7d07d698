"""What the documents say is what the code does: tables are compared, examples are run, every code is explained."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from lakesink.options import options_table_markdown
from lakesink.table_settings import PROPERTIES
from lakesink_catalog.errors import Reason
from lakesink_catalog.verdict import STREAM_RULES, TRANSACTION_RULES, Rule

ROOT = Path(__file__).parents[1]
ERRORS = {"LakesinkError", "SettingsError", "CatalogError", "QueryError", "WriteError", "CommitUnresolved"}


def document(name: str) -> str:
    return (ROOT / name).read_text()


def between(text: str, name: str) -> str:
    return text.partition(f"<!-- {name} -->\n")[2].partition(f"<!-- /{name} -->")[0]


def test_readme_lists_every_option_as_the_code_has_it() -> None:
    assert options_table_markdown().strip() in document("README.md")


@pytest.mark.parametrize(("name", "rules"), [("verdicts", STREAM_RULES), ("transaction verdicts", TRANSACTION_RULES)])
def test_guarantees_show_the_verdict_table_that_decides(name: str, rules: tuple[Rule, ...]) -> None:
    shown = between(document("docs/guarantees.md"), name).splitlines()[2:]
    assert shown == [
        f"| {rule.number} | {rule.when} | "
        + (f"refuse `{rule.then.value}`" if isinstance(rule.then, Reason) else f"**{rule.then}**")
        + " |"
        for rule in rules
    ]


def test_options_page_names_every_table_property_that_is_honoured() -> None:
    shown = between(document("docs/options.md"), "properties")
    assert re.findall(r"^\| `([^`]+)` \|", shown, re.MULTILINE) == [known.name for known in PROPERTIES]


def test_operations_page_explains_every_error_code() -> None:
    explained = set(re.findall(r"`LAKESINK_([A-Z_]+)`", document("docs/operations.md")))
    raised = {code for path in sources() for code in codes_in(ast.parse(path.read_text()))}
    assert raised | {reason.name for reason in Reason} | {"PARTIAL_BATCH"} <= explained


def sources() -> list[Path]:
    return [*(ROOT / "lakesink").rglob("*.py"), *(ROOT / "catalog").rglob("*.py")]


def codes_in(tree: ast.Module) -> set[str]:
    """First arguments of constructed errors."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
    named = (call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id in ERRORS)
    return {str(argument.value) for argument in named if isinstance(argument, ast.Constant)}


def test_the_readme_example_runs_as_it_is_printed(tmp_path: Path) -> None:
    said = run_first_example("README.md", tmp_path)
    assert re.search(r"^0 \d+ 1000 committed$", said, re.MULTILINE), said


def test_the_page_on_decoding_runs_as_it_is_printed(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "first.txt").write_text('{"id": 1, "at": "2024-02-29T12:00:00Z"}\n{"id": 2, "name": "b"}\n')
    run_first_example("docs/decode.md", tmp_path)
    [data_file] = (tmp_path / "lakehouse").rglob("*.parquet")
    assert [
        row[0] for row in duckdb.execute("select id from read_parquet(?) order by id", [str(data_file)]).fetchall()
    ] == [1, 2]


def run_first_example(page: str, folder: Path) -> str:
    """What the first program of a page says when it runs in a folder."""
    example = re.findall(r"```python\n(.*?)```", document(page), re.DOTALL)[0]
    (folder / "example.py").write_text(example)
    environment = {name: value for name, value in os.environ.items() if name not in ("LAKESINK_HOME", "PYSPARK_PYTHON")}
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_links_between_the_documents_lead_somewhere() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())]
    assert [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()] == []
