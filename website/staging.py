"""Copies the pages to where they are built, with every file of the repository that they link to.

A link that leaves `docs` would be dead on the site. Such a file becomes a page too: Markdown as it is, a program as its
highlighted text. The README is the home of the site.
"""

import os
import re
import shutil
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
HOME = ROOT / "README.md"
OUTSIDE = "project"
_LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]*)?\)")
_FENCED = re.compile(r"^ *(```+).*?^ *\1", re.DOTALL | re.MULTILINE)
_LANGUAGES = {".py": "python", ".sh": "bash", ".toml": "toml", ".pml": "c"}


def stage(folder: Path) -> None:
    """Fill an empty folder with all pages, pictures and linked files."""
    waiting = [HOME, *sorted(path for path in DOCS.rglob("*") if path.is_file())]
    known = set(waiting)
    while waiting:
        path = waiting.pop()
        target = folder / place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in (".svg", ".json", ".png"):
            shutil.copyfile(path, target)
            continue
        text = path.read_text()
        found = [linked(path, link) for link, _ in _LINK.findall(_FENCED.sub("", text))] if path.suffix == ".md" else []
        waiting += sorted({one for one in found if one is not None} - known)
        known.update(waiting)
        target.write_text(relinked(path, text) if path.suffix == ".md" else source_page(path, text))


def place(path: Path) -> PurePosixPath:
    """Where a file of the repository lies among the staged pages."""
    if path == HOME:
        return PurePosixPath("index.md")
    if path.is_relative_to(DOCS):
        return PurePosixPath(path.relative_to(DOCS))
    # The generator leaves out folders whose names begin with a dot, such as `.github`.
    inside = PurePosixPath(OUTSIDE, *(part.lstrip(".") for part in path.relative_to(ROOT).parts))
    return inside if path.suffix == ".md" else inside.with_name(f"{path.name}.md")


def linked(page: Path, link: str) -> Path | None:
    """The file that a link leads to; a folder means its README. None: there is no such file in the repository."""
    path = Path(os.path.normpath(page.parent / link))
    path = path / "README.md" if path.is_dir() else path
    return path if path.is_file() and path.is_relative_to(ROOT) else None


def relinked(page: Path, text: str) -> str:
    """The page with links as they lead from its new place."""

    def changed(found: re.Match[str]) -> str:
        target = linked(page, found[1])
        if target is None:
            return found[0]
        return f"]({os.path.relpath(place(target), place(page).parent)}{found[2] or ''})"

    return _LINK.sub(changed, text)


def source_page(path: Path, text: str) -> str:
    """A program as a page."""
    return f"# {path.relative_to(ROOT)}\n\n````{_LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n````\n"
