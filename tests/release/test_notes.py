"""A tag gets the notes of its version, or one sentence that says why it cannot be released."""

import subprocess
import sys

import pytest

from release.notes import NotReleasable, check_address, check_tag, notes
from release.tree import ROOT

CHANGELOG = """# Changelog

## 1.1.0

### Added

- A second thing,
  in two lines.

## 1.0.0

### Added

- A thing.

## 0.9.0
"""


def test_the_notes_are_the_section_of_the_version() -> None:
    assert notes(CHANGELOG, "1.1.0") == "### Added\n\n- A second thing,\n  in two lines.\n"
    assert notes(CHANGELOG, "1.0.0") == "### Added\n\n- A thing.\n"


@pytest.mark.parametrize(
    ("version", "said"), [("1.2.0", "no section 1.2.0"), ("0.9.0", "lists no change"), ("1.1", "no section 1.1")]
)
def test_a_version_without_changes_is_not_released(version: str, said: str) -> None:
    with pytest.raises(NotReleasable, match=said):
        notes(CHANGELOG, version)


def test_the_changelog_of_the_first_version_is_cut_as_it_stands() -> None:
    assert notes((ROOT / "CHANGELOG.md").read_text(), "0.1.0").startswith("### Added\n\n- ")


@pytest.mark.parametrize("version", ["1.0.0", "1.2.3", "1.0.0rc1"])
def test_a_tag_names_its_version(version: str) -> None:
    check_tag(f"v{version}", version)


@pytest.mark.parametrize(
    ("tag", "version", "said"),
    [
        ("v1.0.1", "1.0.0", "tag v1.0.0, or change it"),
        ("1.0.0", "1.0.0", "tag v1.0.0, or change it"),
        ("v1.0.0.dev0", "1.0.0.dev0", "no version to release"),
        ("v1.0", "1.0", "no version to release"),
    ],
)
def test_another_tag_and_a_development_version_are_refused(tag: str, version: str, said: str) -> None:
    with pytest.raises(NotReleasable, match=said):
        check_tag(tag, version)


def test_a_project_without_an_address_is_not_released() -> None:
    with pytest.raises(NotReleasable, match="no address"):
        check_address({"name": "lakesink"})
    check_address({"urls": {"Repository": "https://example.org/lakesink"}})


def test_the_command_refuses_in_one_line() -> None:
    call = [sys.executable, "-m", "release", "notes", "v0.0.0"]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("The tag is v0.0.0 and lakesink.__version__ is ")
    assert len(done.stderr.splitlines()) == 1
