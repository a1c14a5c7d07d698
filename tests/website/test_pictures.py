"""The picture of a terminal has the lines that the command prints now."""

import re
from html import unescape

from website.pictures import WATCH, drawn, watched


def lines_in(picture: str) -> list[str]:
    return [unescape(text).replace("\xa0", " ") for text in re.findall(r"<text[^>]*>([^<]*)</text>", picture)]


def test_the_picture_of_watch_has_the_lines_that_it_prints() -> None:
    assert lines_in(WATCH.read_text()) == lines_in(drawn(watched()))  # python -m website pictures


def test_a_picture_loads_nothing() -> None:
    assert re.findall(r"url\((?!#)[^)]*\)|href=", WATCH.read_text()) == []
