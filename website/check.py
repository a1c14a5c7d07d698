"""Looks at every page of the built site in a browser: on a desk and on a phone, in light and in dark colours."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urldefrag

from playwright.sync_api import Browser as Chromium
from playwright.sync_api import ConsoleMessage, Page, Request, expect, sync_playwright
from playwright.sync_api import TimeoutError as NotFound

from website.browser import Browser
from website.serve import served

DESK, PHONE = (1280, 900), (390, 844)
WORD = "rollback"
BEHIND_THE_MANUAL = ("/decisions/0", ".py/")
PATIENCE_MS, SEARCH_MS = 120_000, 60_000
_ARGUMENTS = ("--no-sandbox", "--no-zygote", "--disable-gpu", "--font-render-hinting=none")
_LINKS = "Array.from(document.querySelectorAll('a[href]'), link => link.href)"
_ANCHORS = "Array.from(document.querySelectorAll('[id]'), element => element.id)"
_TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
_NAVIGATION = "document.querySelectorAll('nav.md-nav--primary a[href]').length"
_BACKGROUND = "getComputedStyle(document.body).backgroundColor"
ROUNDING = 1
"""Pixels."""
LEAST_LINKS = 10
"""Of a navigation."""
Colours = Literal["light", "dark"]


@dataclass(frozen=True, slots=True)
class Seen:
    """One page: where its links lead, and the anchors that it has."""

    links: frozenset[str]
    anchors: frozenset[str]


def faults(folder: Path, browser: Browser, pictures: Path | None = None) -> list[str]:
    """Everything that is wrong with the site. With `pictures`, every page is drawn into that folder."""
    with served(folder) as root, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=browser.program, args=list(_ARGUMENTS), env={**os.environ, **browser.environment}
        )
        heard: list[str] = []
        desk = _open(chromium, root, heard, DESK, "light")
        phone = _open(chromium, root, heard, PHONE, "dark")
        seen: dict[str, Seen] = {}
        found: list[str] = []
        for address in _addresses(folder, root):
            found += _look(desk, phone, address, seen)
            if pictures:
                _draw((desk, phone), address.removeprefix(root), pictures)
        found += _search(desk, root)
        chromium.close()
    return [*heard, *found, *_dead_links(root, seen)]


def _open(chromium: Chromium, root: str, heard: list[str], size: tuple[int, int], colours: Colours) -> Page:
    """A page that reports requests to other hosts and errors of scripts."""
    width, height = size
    page = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=colours).new_page()
    page.set_default_timeout(PATIENCE_MS)

    def request(asked: Request) -> None:
        if not asked.url.startswith((root, "data:", "blob:")):
            heard.append(f"{page.url}: asks another host for {asked.url}")

    def console(message: ConsoleMessage) -> None:
        if message.type == "error":
            heard.append(f"{page.url}: prints an error: {message.text}")

    page.on("request", request)
    page.on("console", console)
    page.on("pageerror", lambda error: heard.append(f"{page.url}: fails with {error}"))
    return page


def _addresses(folder: Path, root: str) -> list[str]:
    pages = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.html"))
    return [f"{root}{page.removesuffix('index.html')}" for page in pages if page != "404.html"]


def _look(desk: Page, phone: Page, address: str, seen: dict[str, Seen]) -> Iterator[str]:
    """Light on a desk, dark on a phone: one load each, for colours and widths do not depend on each other."""
    for page in (desk, phone):
        page.goto(address)
        yield from _undrawn(page, address)
        yield from _too_wide(page, address)
    seen[address] = Seen(frozenset(desk.evaluate(_LINKS)), frozenset(desk.evaluate(_ANCHORS)))
    if desk.evaluate(_NAVIGATION) < LEAST_LINKS:
        yield f"{address}: has no navigation"
    if desk.evaluate(_BACKGROUND) == phone.evaluate(_BACKGROUND):
        yield f"{address}: has the same background in light and in dark colours"


def _undrawn(page: Page, address: str) -> Iterator[str]:
    try:
        expect(page.locator("pre.mermaid, .mermaid > code")).to_have_count(0, timeout=PATIENCE_MS)
    except AssertionError:
        yield f"{address}: has a diagram that is not drawn"


def _too_wide(page: Page, address: str) -> Iterator[str]:
    pixels = page.evaluate(_TOO_WIDE)
    if pixels > ROUNDING:
        yield f"{address}: is {pixels} pixels too wide for a screen of {page.evaluate('innerWidth')}"


def _search(page: Page, root: str) -> Iterator[str]:
    """A word is typed as a reader would, and a page about it is found."""
    page.goto(root)
    field = page.locator("input[role=combobox]")
    try:
        # A script makes the field after the page has loaded; a key that is pressed before is lost.
        field.wait_for(state="attached", timeout=SEARCH_MS)
        page.keyboard.press("Control+k")
        field.fill(WORD, timeout=SEARCH_MS)
        page.locator(f"a[href*='{WORD}'][href*='?h=']").first.wait_for(timeout=SEARCH_MS)
    except NotFound:
        yield f"{root}: a search for {WORD!r} finds nothing"
        return
    first = page.locator("a[href*='?h=']").evaluate_all("links => links.slice(0, 3).map(link => link.href)")
    yield from (f"{root}: a search for {WORD!r} has {link} in front" for link in first if _is_behind(link))


def _is_behind(link: str) -> bool:
    return any(part in link for part in BEHIND_THE_MANUAL)


def _dead_links(root: str, seen: dict[str, Seen]) -> Iterator[str]:
    files = {urldefrag(address).url for address in seen}
    for address, page in seen.items():
        for link in sorted(page.links):
            target, anchor = urldefrag(link)
            if not target.startswith(root):
                continue
            if target not in files and target.endswith(("/", ".html")):
                yield f"{address}: links to {target}, which is not there"
            elif anchor and target in seen and anchor not in seen[target].anchors:
                yield f"{address}: links to {link}, and that page has no such anchor"


def _draw(pages: Iterable[Page], name: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for page, screen in zip(pages, ("desk", "phone"), strict=True):
        page.screenshot(path=folder / f"{name.strip('/').replace('/', '-') or 'index'}-{screen}.png")
