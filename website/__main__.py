"""``python -m website``: build the site, look at it, look at it in a browser, and renew what pages show."""

import sys
import tempfile
import threading
from pathlib import Path

import click

from website.navigation import FOLDER, HTML
from website.npm import NotInstalled
from website.pictures import draw
from website.serve import served
from website.snippets import Folders, run_page
from website.staging import DOCS
from website.tables import TABLES, renewed


@click.group()
def main() -> None:
    """The site of the documentation."""


@main.command(name="build")
@click.option("--serve", is_flag=True, help="Then serve it on this machine until Ctrl-C.")
def build_site(*, serve: bool) -> None:
    """Build the site. Exit code 1: a link leads nowhere."""
    from website.build import NotBuilt, build  # noqa: PLC0415 - its packages are installed for the site alone

    try:
        build()
    except (NotBuilt, NotInstalled) as error:
        sys.exit(str(error))
    print(f"The site is in {HTML}: {len(list(HTML.rglob('*.html')))} pages.")
    if serve:
        with served(HTML, 8000) as url:
            print(f"Open {url}. Ctrl-C ends it.")
            threading.Event().wait()


@main.command()
@click.option("--pictures", type=click.Path(path_type=Path), help="Draw every page into this folder.")
def check(*, pictures: Path | None) -> None:
    """Look at every page of the built site in a browser. Exit code 1: something is wrong; 2: there is no browser."""
    from website.browser import NoBrowser, browser  # noqa: PLC0415
    from website.check import faults  # noqa: PLC0415

    try:
        found = faults(HTML, browser(FOLDER / "browser"), pictures)
    except (NoBrowser, NotInstalled) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    print("\n".join(found) or "Every page is well: links, layout, colours, search; no request left the site.")
    sys.exit(1 if found else 0)


@main.command()
@click.argument("page", nargs=-1, required=True)
def snippets(page: tuple[str, ...]) -> None:
    """Run the commands of these pages, such as start/first-stream.md, and put what they print into the pages."""
    with tempfile.TemporaryDirectory() as root:
        folders = Folders(Path(root))
        for name in page:
            run_page(DOCS / name, folders.begin(name), write=True)
            folders.keep(name)
            print(f"{name}: renewed")


@main.command()
def tables() -> None:
    """Put the tables that the code has into the pages."""
    for page, (name, table) in TABLES.items():
        path = DOCS / page
        path.write_text(renewed(path.read_text(), name, table()))
        print(f"{page}: renewed")


@main.command()
def pictures() -> None:
    """Draw what a terminal shows, for pages."""
    for path in draw():
        print(f"{path.relative_to(DOCS)}: drawn")


if __name__ == "__main__":
    main()
