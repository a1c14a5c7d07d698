"""Cuts the notes of a version from the changelog, and checks that the tree is ready for its tag."""

import re
from collections.abc import Mapping
from typing import Any


class NotReleasable(Exception):
    """This version cannot be released: one sentence that says what to change."""


def notes(changelog: str, version: str) -> str:
    """The section of a version, without its head."""
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    found = {head.strip(): text.strip() for head, _, text in (section.partition("\n") for section in sections)}
    if version not in found:
        raise NotReleasable(f"CHANGELOG.md has no section {version}: rename its section 'Unreleased' to '{version}'.")
    if "\n- " not in found[version]:
        raise NotReleasable(f"The section {version} of CHANGELOG.md lists no change.")
    return found[version] + "\n"


def check_tag(tag: str, version: str) -> None:
    """A tag names the version of the tree, which is no development version."""
    if tag != f"v{version}":
        raise NotReleasable(f"The tag is {tag} and lakesink.__version__ is {version}: tag v{version}, or change it.")
    if re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version) is None:
        raise NotReleasable(f"{version} is no version to release: take MAJOR.MINOR.PATCH, without .dev.")


def check_address(project: Mapping[str, Any]) -> None:
    """The page of the package index will lead to the sources."""
    if "Repository" not in project.get("urls", {}):
        raise NotReleasable("pyproject.toml has no address of the project: add [project.urls] with Repository.")
