"""Where the site is built, and the groups of its pages, as `mkdocs.yml` lists them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from website.staging import ROOT

CONFIG = ROOT / "mkdocs.yml"
FOLDER = ROOT / "build/site"
STAGED, HTML = FOLDER / "docs", FOLDER / "html"
_GROUP = re.compile(r"^  - (.+?):(?: (\S+\.md))?$")
_PAGE = re.compile(r"^      - (?:.+: )?(\S+\.md)$")


@dataclass(frozen=True, slots=True)
class Group:
    """A group of pages, in reading order."""

    title: str
    pages: Sequence[str]  # places among the staged pages


def navigation(config: str) -> list[Group]:
    """The groups of a configuration."""
    groups: list[Group] = []
    for line in config.partition("\nnav:\n")[2].splitlines():
        if found := _GROUP.match(line):
            groups.append(Group(found[1], [found[2]] if found[2] else []))
        elif found := _PAGE.match(line):
            groups[-1] = Group(groups[-1].title, [*groups[-1].pages, found[1]])
    return groups
