"""Builds the site: stages the pages, has Zensical make HTML of them, and adds what programs read."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from website.api import PLACE, api_markdown
from website.llms import llms_full_txt, llms_txt
from website.navigation import CONFIG, FOLDER, HTML, STAGED, navigation
from website.npm import packages
from website.staging import stage

MERMAID = "javascripts/mermaid.tiny.js"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_SCRIPT = re.compile(rf'<script src="[^"]*{re.escape(MERMAID)}"></script>')


class NotBuilt(Exception):
    """Zensical found a fault in the pages, such as a link that leads nowhere."""


def build() -> Path:
    """Build everything anew. Returns the folder of the HTML."""
    shutil.rmtree(STAGED, ignore_errors=True)
    stage(STAGED)
    insert(STAGED / "reference/api.md", PLACE, api_markdown())
    _copy(packages(FOLDER / "npm", browser=False) / "@mermaid-js/tiny/dist/mermaid.tiny.js", STAGED / MERMAID)
    shutil.rmtree(HTML, ignore_errors=True)
    run_zensical(CONFIG)
    _only_with_diagrams(HTML)
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


def _only_with_diagrams(folder: Path) -> None:
    """Only pages with a diagram load the script that draws it: it is larger than everything else together."""
    for page in folder.rglob("*.html"):
        text = page.read_text()
        if 'class="mermaid"' not in text:
            page.write_text(_SCRIPT.sub("", text))


def _for_programs() -> None:
    """The Markdown of every page beside its HTML, and the two lists of them."""
    groups = navigation(CONFIG.read_text())
    texts = {page: (STAGED / page).read_text() for group in groups for page in group.pages}
    for page, text in texts.items():
        (HTML / page).parent.mkdir(parents=True, exist_ok=True)
        (HTML / page).write_text(text)
    (HTML / "llms.txt").write_text(llms_txt(groups, texts))
    (HTML / "llms-full.txt").write_text(llms_full_txt(groups, texts))
