"""Links that leave the pages lead to pages of their own."""

from pathlib import Path

from website.llms import llms_full_txt, llms_txt
from website.navigation import Group
from website.search import manual_first
from website.staging import ROOT, place, relinked, stage


def test_a_link_to_a_program_leads_to_its_text() -> None:
    page = ROOT / "docs/evidence/model.md"
    assert relinked(page, "[x](../../proof/oracle.py)") == "[x](../project/proof/oracle.py.md)"
    assert relinked(page, "[x](proof.md#a) [y](https://e.org/z)") == "[x](proof.md#a) [y](https://e.org/z)"


def test_a_link_to_a_folder_leads_to_its_readme() -> None:
    assert relinked(ROOT / "CONTRIBUTING.md", "[x](docs/decisions)") == "[x](../decisions/README.md)"


def test_the_readme_is_the_home_of_the_site() -> None:
    assert relinked(ROOT / "README.md", "[x](docs/use/kafka.md#a)") == "[x](use/kafka.md#a)"
    assert relinked(ROOT / "docs/use/choose.md", "[x](../../README.md#install)") == "[x](../index.md#install)"


def test_no_page_lies_in_a_hidden_folder_which_the_generator_leaves_out() -> None:
    page = ROOT / "docs/understand/releasing.md"
    link = "[x](../../.github/workflows/release.yml)"
    assert relinked(page, link) == "[x](../project/github/workflows/release.yml.md)"


def test_every_page_is_staged_and_every_file_that_it_links_to(tmp_path: Path) -> None:
    stage(tmp_path)
    for path in (ROOT / "docs").rglob("*.md"):
        assert (tmp_path / place(path)).is_file()
    assert (tmp_path / "project/CONTRIBUTING.md").is_file()
    assert "def " in (tmp_path / "project/proof/oracle.py.md").read_text()


def test_programs_that_read_get_a_list_of_the_pages_and_all_of_them() -> None:
    groups, texts = [Group("Use", ["use/a.md"])], {"use/a.md": "# A\n\nOne [two](b.md). Three.\n"}
    assert "## Use\n\n- [A](use/a.md): One two.\n" in llms_txt(groups, texts)
    assert llms_full_txt(groups, texts) == "<!-- use/a.md -->\n\n# A\n\nOne [two](b.md). Three.\n"


def test_titles_of_decisions_and_programs_do_not_rank_above_the_manual_and_are_still_found() -> None:
    page = {"location": "use/dead-letters/#replay", "title": "Replay", "text": "<p>Letters</p>"}
    decision = {"location": "decisions/0068-letters/", "title": "0068: Dead letters", "text": "<p>Status</p>"}
    part = {"location": "decisions/0068-letters/#why", "title": "Why", "text": "<p>Since</p>"}
    program = {"location": "project/examples/dead_letters.py/", "title": "examples/dead_letters.py", "text": "def"}
    whole = "<p>0068: Dead letters</p>\n<p>Status</p>\n<p>Why</p>\n<p>Since</p>"
    assert list(manual_first([page, decision, part, program])) == [
        page,
        {**decision, "title": "Decision 0068", "path": ["Decision 0068"], "text": whole},
        {**program, "title": "Program", "path": ["Program"], "text": "<p>examples/dead_letters.py</p>\ndef"},
    ]
