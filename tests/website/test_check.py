"""The browser sees each fault that a page can have: the good page has none, each bad one its own."""

import re
from pathlib import Path

import pytest

from website.navigation import FOLDER

pytestmark = pytest.mark.site
NAVIGATION = "<nav class='md-nav--primary'>" + "<a href='./'>page</a>" * 10 + "</nav>"
DARK = "<style>@media (prefers-color-scheme: dark) { body { background: black } }</style>"
GOOD = f"<title>t</title>{DARK}<body>{NAVIGATION}<h1 id='here'>Title</h1>FAULT</body>"
BAD = {
    "links to .*, which is not there": "<a href='nowhere/'>x</a>",
    "no such anchor": "<a href='./#there'>x</a>",
    "pixels too wide for a screen of 390": "<div style='width: 600px'>x</div>",
    "asks another host": "<img src='http://127.0.0.2:1/x.png'>",
    "prints an error": "<script>console.error('oh')</script>",
    "fails with": "<script>oh()</script>",
    "has no navigation": "<script>document.querySelector('nav').remove()</script>",
    "same background": "<style>body { background: white !important }</style>",
    "a search for 'rollback' finds nothing": "",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    from website import check  # noqa: PLC0415 - the tools of the site are installed for these tests alone
    from website.browser import browser  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("bad")
    for number, fault in enumerate(["", *BAD.values()]):
        (folder / str(number)).mkdir()
        (folder / str(number) / "index.html").write_text(GOOD.replace("FAULT", fault))
    (folder / "index.html").write_text(GOOD.replace("FAULT", ""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "SEARCH_MS", 5_000)  # the search that finds nothing is waited for
        return check.faults(folder, browser(FOLDER / "browser"))


@pytest.mark.parametrize("fault", BAD)
def test_a_fault_is_seen(fault: str, found: list[str]) -> None:
    assert [one for one in found if re.search(fault, one)], found


def test_a_good_page_has_no_fault(found: list[str]) -> None:
    assert [one for one in found if re.search(r":\d+/0/: ", one)] == []


def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path) -> None:
    from website.build import NotBuilt, run_zensical  # noqa: PLC0415

    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# Home\n\n[x](nowhere.md)\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: x\n")
    with pytest.raises(NotBuilt, match="page does not exist"):
        run_zensical(tmp_path / "mkdocs.yml")
