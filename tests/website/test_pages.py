"""What a page tells its reader to run does what the page shows, and every page is in the navigation."""

import re
from pathlib import Path

import pytest

from lakesink_tools.cli.main import main
from tests.test_docs import document
from website.navigation import CONFIG, navigation
from website.snippets import Folders, PageFailed, alike, blocks, predecessor, run_page, unmarked
from website.staging import DOCS, ROOT
from website.tables import errors_table

CHECKED = sorted(
    path.relative_to(DOCS).as_posix()
    for path in [
        *(DOCS / "start").glob("*.md"),
        *(DOCS / "operate").glob("*.md"),
        DOCS / "use/json-files.md",
        DOCS / "use/upserts.md",
        DOCS / "reference/commands.md",
    ]
)
WITH_COMMANDS = [page for page in CHECKED if "\n```console\n" in document(f"docs/{page}")]
RUN = sorted(WITH_COMMANDS, key=lambda page: predecessor(document(f"docs/{page}")) is not None)
"""Pages that others continue come first, so that they run once."""


def shown_by(page: str) -> list[str]:
    """The page, the page that it continues, and its commands: a change of one of these can change what is shown."""
    text = document(f"docs/{page}")
    named = {name.replace("-", "_") for name in re.findall(r"^\$ lakesink ([\w-]+)", text, re.MULTILINE)}
    commands = [f"tools/lakesink_tools/cli/{name}.py" for name in sorted(named)]
    return [f"docs/{one}" for one in (page, predecessor(text)) if one] + [*commands, "website/snippets.py"]


NAVIGATION = navigation(CONFIG.read_text())


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory.mktemp("pages"))


@pytest.mark.parametrize("page", [pytest.param(page, marks=pytest.mark.page(*shown_by(page))) for page in RUN])
def test_a_page_shows_what_its_commands_print(page: str, folders: Folders) -> None:
    run_page(DOCS / page, folders.begin(page))
    folders.keep(page)


@pytest.mark.parametrize("page", CHECKED)
def test_a_block_is_run_or_says_why_not(page: str) -> None:
    text = (DOCS / page).read_text()
    assert unmarked(text) == []
    reasons = [block.marks["not run"] for block in blocks(text) if "not run" in block.marks]
    named = [path for reason in reasons for path in re.findall(r"(?:tests|operate)/[\w./-]+\w", reason)]
    assert [path for path in named if not ((ROOT / path).exists() or (DOCS / path).exists())] == []


def test_every_page_is_in_the_navigation() -> None:
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    archive = {page for page in pages if page.startswith("decisions/")}  # its index lists the records
    assert pages - archive == {page for group in NAVIGATION[1:] for page in group.pages}


def test_the_page_of_commands_has_every_command_with_its_help() -> None:
    page = document("docs/reference/commands.md")
    assert sorted(re.findall(r"^### (.+)$", page, re.MULTILINE)) == sorted(main.commands)
    assert sorted(re.findall(r"^\$ lakesink (\S+) --help$", page, re.MULTILINE)) == sorted(main.commands)


@pytest.mark.parametrize("name", main.commands)
def test_the_page_of_commands_leaves_out_only_the_options_that_its_head_names(name: str) -> None:
    page = document("docs/reference/commands.md")
    shown = page.partition(f"$ lakesink {name} --help\n")[2].partition("```")[0]
    options = {option for parameter in main.commands[name].params for option in parameter.opts if option[:2] == "--"}
    left_out = {option for option in options if not re.search(rf"{option}\b", shown)}
    assert left_out <= {"--catalog", "--output"} & set(re.findall("--[a-z]+", page.partition("## ")[0]))


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a  b\n", "a b\n"),
        ("first\n...\nlast\n", "first\none\ntwo\nlast\n"),
        ("snapshot 1234567890123456789 in 3.2 s\n", "snapshot 9876543210987654321 in 41 s\n"),
    ],
)
def test_output_is_alike_if_only_ids_times_and_spaces_differ(shown: str, printed: str) -> None:
    assert alike(shown, printed)


@pytest.mark.parametrize(("shown", "printed"), [("3 rows\n", "4 rows\n"), ("a\n", "a\nb\n"), ("...\nend\n", "start\n")])
def test_other_output_is_not_alike(shown: str, printed: str) -> None:
    assert not alike(shown, printed)


PAGE = """<!-- file: greet.sh -->
```sh
echo hello
```
```console
$ sh greet.sh
hello
$ echo two; exit 3
{}
```
"""


def test_a_page_that_shows_something_else_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.format("two").replace("```console", "<!-- exit: 3 -->\n```console"))
    run_page(page, tmp_path)
    page.write_text(PAGE.format("two"))
    with pytest.raises(PageFailed, match="ended with 3, not 0"):
        run_page(page, tmp_path)
    page.write_text(PAGE.format("three").replace("```console", "<!-- exit: 3 -->\n```console"))
    with pytest.raises(PageFailed, match="It printed:\ntwo"):
        run_page(page, tmp_path)


def test_a_page_is_renewed_with_what_its_commands_print(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.format("").replace("; exit 3\n\n", "\n"))
    run_page(page, tmp_path, write=True)
    assert page.read_text() == PAGE.format("two").replace("; exit 3", "")


def test_a_block_that_nothing_runs_is_found() -> None:
    assert unmarked("```python\nimport os\n```\n") == ["import os"]
    assert unmarked("<!-- not run: why -->\n```python\nimport os\n```\n```json\n{}\n```\n") == []


def test_the_facts_of_an_error_are_text_and_no_markup() -> None:
    others = re.sub(r'<a id="\w+"></a>|`[^`]*`', "", errors_table())
    assert "&lt;table&gt;" in others
    assert "<" not in others
