"""Builds the site: stages the pages, has Zensical make HTML of them, and adds what programs read."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from website.api import PLACE, api_markdown
from website.llms import llms_full_txt, llms_txt
from website.navigation import CONFIG, FOLDER, HTML, STAGED, navigation
from website.npm import packages
from website.search import manual_first
from website.staging import stage

MERMAID = "javascripts/mermaid.tiny.js"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_MERMAID_SCRIPT = re.compile(rf'<script src="[^"]*{re.escape(MERMAID)}"></script>')
_FIRST_SCRIPT = re.compile(r'<script src="[^"]*assets/javascripts/bundle')


class NotBuilt(Exception):
    """Zensical found a fault in the pages, such as a link that leads nowhere."""


def build() -> Path:
    """Build everything anew. Returns the folder of the HTML."""
    shutil.rmtree(STAGED, ignore_errors=True)
    stage(STAGED)
    insert(STAGED / "reference/api.md", PLACE, api_markdown())
    _copy(packages(FOLDER / "npm", browser=False) / "@mermaid-js/tiny/dist/mermaid.tiny.js", STAGED / MERMAID)
    _copy(Path(__file__).with_name("site.css"), STAGED / "stylesheets/site.css")
    shutil.rmtree(HTML, ignore_errors=True)
    run_zensical(CONFIG)
    _draw_diagrams(HTML)
    _rank(HTML / "search.json")
    _for_programs()
    return HTML


def insert(page: Path, mark: str, text: str) -> None:
    """Put generated text into a staged page."""
    before = page.read_text()
    assert mark in before, f"{page.name} has no {mark}"
    page.write_text(before.replace(mark, text))


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def run_zensical(config: Path) -> None:
    """Strict: a link or an anchor that leads nowhere ends the build."""
    program = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", str(config)]
    done = subprocess.run(program, cwd=config.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotBuilt(_COLOURS.sub("", done.stdout + done.stderr))


def _draw_diagrams(folder: Path) -> None:
    """Pages with a diagram load Mermaid, before the script that would otherwise fetch it from another host.

    Other pages do not load it: it is larger than everything else together.
    """
    for page in folder.rglob("*.html"):
        text = page.read_text()
        [script] = _MERMAID_SCRIPT.findall(text)
        without = text.replace(script, "")
        drawn = _FIRST_SCRIPT.sub(lambda first: f"{script}{first[0]}", without, count=1)  # noqa: B023 - called at once
        page.write_text(drawn if 'class="mermaid"' in text else without)


def _rank(index: Path) -> None:
    document = json.loads(index.read_text())
    index.write_text(json.dumps(document | {"items": list(manual_first(document["items"]))}))


def _for_programs() -> None:
    """The Markdown of every page beside its HTML, and the two lists of them."""
    groups = navigation(CONFIG.read_text())
    texts = {page: (STAGED / page).read_text() for group in groups for page in group.pages}
    for page, text in texts.items():
        (HTML / page).parent.mkdir(parents=True, exist_ok=True)
        (HTML / page).write_text(text)
    (HTML / "llms.txt").write_text(llms_txt(groups, texts))
    (HTML / "llms-full.txt").write_text(llms_full_txt(groups, texts))
