"""What the documents say is what the code does: tables are compared, examples are run, every code is explained."""

import ast
import datetime as dt
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import pytest

import lakesink
from lakesink.settings.table_settings import PROPERTIES
from lakesink_protocol.catalogue import explanations
from lakesink_protocol.errors import Reason
from lakesink_protocol.identity import SinkKey, SinkKind
from lakesink_protocol.ledger import Mark
from lakesink_protocol.measures import MEASURES
from lakesink_protocol.verdict import STREAM_RULES, TRANSACTION_RULES, Rule
from website.snippets import alike
from website.tables import PUBLIC_MODULES, TABLES, between

ROOT = Path(__file__).parents[1]
RECORDS = sorted((ROOT / "docs/decisions").glob("0*.md"))
NO_CODES = {
    *("SPARK_HOME", "SPARK_REMOTE", "JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"),  # others' variables
    "SPARK_JOB_ARTIFACT_UUID",  # Spark's, of the sessions of Connect
    *("PYICEBERG_HOME", "PYICEBERG_DEFAULT_CATALOG"),
    *("HOME", "FAILPOINTS", "TRACE", "VERBOSE", "METRICS", "OPENLINEAGE"),  # LAKESINK_...
    *("REGISTRY_USER", "REGISTRY_PASSWORD", "REGISTRY_TOKEN"),  # LAKESINK_..., too
    *("OPENLINEAGE_URL", "OPENLINEAGE_NAMESPACE"),  # of OpenLineage's client and integrations
    "TIMESTAMP_NTZ",  # Spark's type
    *("BIT_PACKED", "BYTE_ARRAY", "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY"),  # Parquet's words
    *("KEY_ID", "URL_STYLE", "USE_SSL"),  # DuckDB's words
    *("EMBEDDED_NAME", "HOME_VARIABLE", "MAIN_BRANCH"),  # constants that a module passes on
}
"""What the product spells like a code and is none."""
NAMED_CODE = re.compile(r"`([\w.-]+/[\w./-]+\.py)(?::([\w.]+))?`")
"""A file that a page names in code, and a class or function in it."""
ERRORS = {
    *("LakesinkError", "SettingsError", "CatalogError", "QueryError", "WriteError"),
    *("BatchRefused", "CommitUnresolved", "PartialBatch"),
}


def document(name: str) -> str:
    return (ROOT / name).read_text()


@pytest.mark.parametrize("page", TABLES)
def test_a_page_has_its_table_as_the_code_has_it(page: str) -> None:
    name, table = TABLES[page]
    assert between(document(f"docs/{page}"), name) == table(), "python -m website tables renews it"


@pytest.mark.parametrize(("name", "rules"), [("verdicts", STREAM_RULES), ("transaction verdicts", TRANSACTION_RULES)])
def test_guarantees_show_the_verdict_table_that_decides(name: str, rules: tuple[Rule, ...]) -> None:
    shown = between(document("docs/understand/guarantees.md"), name).splitlines()[2:]
    assert shown == [
        f"| {rule.number} | {rule.when} | "
        + (f"refuse `{rule.then.value}`" if isinstance(rule.then, Reason) else f"**{rule.then}**")
        + " |"
        for rule in rules
    ]


def test_options_page_names_every_table_property_that_is_honoured() -> None:
    shown = between(document("docs/reference/options.md"), "properties")
    assert re.findall(r"^\| `([^`]+)` \|", shown, re.MULTILINE) == [known.name for known in PROPERTIES]


def test_every_code_that_can_be_raised_is_explained_in_errors_toml_and_no_other() -> None:
    raised = {code for path in sources() for code in codes_in(ast.parse(path.read_text()))}
    explained = {code.removeprefix("LAKESINK_") for code in explanations()}
    assert raised | {reason.name for reason in Reason} == explained


def test_no_page_of_an_error_sends_its_reader_to_a_document_that_is_not_installed() -> None:
    assert [one.code for one in explanations().values() if re.search(r"docs/|\.md\b|\]\(", one.page())] == []


def test_no_message_sends_its_reader_to_a_document_that_is_not_installed() -> None:
    paths = [path for path in sources() if path.name != "promises.py"]  # its page is named to who writes a sink
    texts = [(path.name, text) for path in paths for text in texts_in(ast.parse(path.read_text()))]
    assert [found for found in texts if re.search(r"docs/[a-z/-]+\.md", found[1])] == []


def test_no_page_installs_lakesink_from_an_index_that_does_not_have_it() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"), *sources()]
    assert [page.name for page in pages if re.search(r"pip install '?lakesink\b", page.read_text())] == []


def texts_in(tree: ast.Module) -> list[str]:
    """Constants that are no docstrings."""
    statements = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in statements]
    return [node.value for node in texts if isinstance(node.value, str)]


def sources() -> list[Path]:
    return [path for folder in ("lakesink", "catalog", "protocol", "tools") for path in (ROOT / folder).rglob("*.py")]


def codes_in(tree: ast.Module) -> set[str]:
    """First arguments of constructed errors, and whatever else is written like a code of several words."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
    named = (call.args[0] for call in calls if ast.unparse(call.func).removesuffix(".of") in ERRORS)
    raised = {str(argument.value).partition(".")[0] for argument in named if isinstance(argument, ast.Constant)}
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    like_codes = {
        text.removeprefix("LAKESINK_").partition(".")[0]
        for text in texts
        if re.fullmatch(r"[A-Z]{2,}(_[A-Z]+)+(\.\w+)?", text)
    }
    return raised | (like_codes - NO_CODES)


@pytest.mark.driver
def test_the_readme_runs_as_it_is_printed(tmp_path: Path) -> None:
    """In a virtual environment that is active, as it says: executors find their Python on the path."""
    readme = document("README.md")
    [program] = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (tmp_path / "events.py").write_text(program)
    unset = ("LAKESINK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    for session in re.findall(r"```text\n(.*?)```", readme, re.DOTALL):
        for command, shown in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", session, re.MULTILINE):
            shell = ["bash", "-c", command]
            done = subprocess.run(
                shell, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500, check=False
            )
            if shown == "Killed\n":
                assert done.returncode in (-9, 137), done.stderr[-3000:]
            else:
                assert done.returncode == 0, done.stderr[-3000:]
                assert alike(shown, done.stdout), done.stdout
                assert "FutureWarning" not in done.stderr


@pytest.mark.page("docs/use/decoding.md", "lakesink/decode")
def test_the_page_on_decoding_runs_as_it_is_printed(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "first.txt").write_text('{"id": 1, "at": "2024-02-29T12:00:00Z"}\n{"id": 2, "name": "b"}\n')
    run_first_example("docs/use/decoding.md", tmp_path)
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
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_links_between_the_documents_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())]
    assert [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs/understand").glob("*.md")), ids=lambda page: page.stem)
def test_files_and_functions_that_a_page_names_exist(page: Path) -> None:
    named = NAMED_CODE.findall(page.read_text())
    assert [path for path, _ in named if not (ROOT / path).is_file()] == []
    found = {path: set(definitions(ast.parse((ROOT / path).read_text()))) for path, name in named if name}
    assert [f"{path}:{name}" for path, name in named if name and name not in found[path]] == []


def definitions(node: ast.AST, within: str = "") -> Iterator[str]:
    """Qualified names of the classes and functions of a module, and of its classes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.ClassDef, ast.FunctionDef)):
            yield f"{within}{child.name}"
        if isinstance(child, ast.ClassDef):
            yield from definitions(child, f"{within}{child.name}.")


@pytest.mark.parametrize("record", RECORDS, ids=[path.stem[:4] for path in RECORDS])
def test_a_decision_has_a_status_a_date_a_reason_and_tests_that_exist(record: Path) -> None:
    _, status, date, tests, reason = head_of(record)
    later = [int(number) for number in re.findall(r"\[(\d{4})\]", status)]
    assert re.fullmatch(r"accepted(, changed by \S+)?|replaced by \S+", status)
    assert (len(later), all(number > int(record.name[:4]) for number in later)) == (" by " in status, True)
    assert dt.date.fromisoformat(date)
    assert [test for test in tests.split(", ") if not (ROOT / test.strip("`")).is_file()] == []
    assert reason


def test_the_index_of_decisions_has_each_record_as_it_states_itself() -> None:
    index = document("docs/decisions/README.md")
    for record in RECORDS:
        title, status, date, _, _ = head_of(record)
        assert f"| [{record.name[:4]}]({record.name}) | {title} | {status} | {date} |" in index
    numbers = [int(number) for number in re.findall(r"^\| \[?(\d{4})", index, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1)), "a record that moved keeps its number"


def test_the_changelog_groups_the_changes_of_every_version_up_to_this_one() -> None:
    versions = re.split(r"^## ", document("CHANGELOG.md"), flags=re.MULTILINE)[1:]
    newest = "Unreleased" if "dev" in lakesink.__version__ else lakesink.__version__
    assert versions[0].partition("\n")[0] == newest
    for version in versions:
        names = re.findall(r"^### (.+)$", version, re.MULTILINE)
        assert names == [name for name in ("Added", "Changed", "Fixed", "Removed", "Security") if name in names] != []
        changes = re.sub(r"^### .+$", "", version.partition("\n")[2], flags=re.MULTILINE)
        assert [line for line in changes.splitlines() if line and not line.startswith(("- ", "  "))] == []


def test_the_page_on_stability_names_what_each_public_module_exports() -> None:
    shown = dict(row[:2] for row in rows_of("docs/reference/stability.md", "names"))
    assert list(shown) == [f"`{module}`" for module in PUBLIC_MODULES]
    for name in PUBLIC_MODULES:
        module, names = import_module(name), re.findall(r"`(\w+)`", shown[f"`{name}`"])
        assert sorted(names) == sorted(getattr(module, "__all__", names))
        assert [name for name in names if not hasattr(module, name)] == []


def test_the_page_on_stability_has_the_version_of_every_stored_format() -> None:
    shown = {
        constant.strip("`"): int(version)
        for _, _, version, constant, _ in rows_of("docs/reference/stability.md", "formats")
    }
    formats = {name: value for name, value in constants() if re.fullmatch(r"[A-Z_]+_VERSION", name)}
    assert shown == {
        name: value
        for name, value in formats.items()
        if isinstance(value, int) and not name.endswith("FORMAT_VERSION")  # Iceberg's own
    }


def test_the_page_on_stability_names_every_property_of_ours() -> None:
    known = list(constants())
    key = SinkKey("events", kind=SinkKind.TXN)
    mark = Mark(key, 1, "q", "f", "e", "accepted", "Gap", ledger_batch_id=2, offsets="{}", missing_inputs=1)
    texts = [
        text for name, value in known if name[0] != "_" for text in (value if isinstance(value, tuple) else [value])
    ]
    others = [text for text in texts if re.fullmatch(r"lakesink(\.[a-z-]+)", str(text))]
    shown = [row[0].strip("`") for row in rows_of("docs/reference/stability.md", "properties")]
    counted = [measure.key for measure in MEASURES]
    assert sorted(shown) == sorted([*mark.to_summary(), *others, *counted])


def rows_of(page: str, name: str) -> list[list[str]]:
    """Cells of a table between two comments, without its head."""
    lines = between(document(page), name).splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def constants() -> Iterator[tuple[str, Any]]:
    """Names and values of literals at the top of the product's modules, wherever these are."""
    for path in sources():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign):
                yield from literals_in(node)


def literals_in(node: ast.Assign) -> Iterator[tuple[str, Any]]:
    with suppress(ValueError):
        value = ast.literal_eval(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id, value
            elif isinstance(target, ast.Tuple):
                yield from zip((name.id for name in target.elts if isinstance(name, ast.Name)), value, strict=True)


def head_of(record: Path) -> tuple[str, ...]:
    """Title, status, date, tests and reason of a decision."""
    head = re.match(
        r"# \d{4}: (.+)\n\nStatus: (.+) · Date: (.+) · Test: (.+)\n\nReason: (.+\.)\n\n", record.read_text()
    )
    assert head is not None, f"{record.name} does not begin like the other records"
    return head.groups()
