"""`llms.txt`, which lists the pages for programs that read them, and `llms-full.txt`, which has them all. Pure."""

import re
from collections.abc import Mapping, Sequence

from website.navigation import Group

SUMMARY = "Exactly-once sink from Spark Structured Streaming into Apache Iceberg tables, in Python."


def llms_txt(groups: Sequence[Group], texts: Mapping[str, str]) -> str:
    """A link to the Markdown of each page, with its first sentence."""
    lines = ["# lakesink", "", f"> {SUMMARY}"]
    for group in groups:
        lines += ["", f"## {group.title}", ""]
        lines += [f"- [{_title(texts[page])}]({page}): {_first_sentence(texts[page])}" for page in group.pages]
    return "\n".join(lines) + "\n"


def llms_full_txt(groups: Sequence[Group], texts: Mapping[str, str]) -> str:
    """Every page of the navigation, one after the other."""
    pages = [page for group in groups for page in group.pages]
    return "\n\n".join(f"<!-- {page} -->\n\n{texts[page].strip()}" for page in pages) + "\n"


def _title(text: str) -> str:
    return text.partition("\n")[0].removeprefix("# ")


def _first_sentence(text: str) -> str:
    """Of the first paragraph, without its links."""
    paragraphs = (part for part in text.split("\n\n")[1:] if re.match(r"[A-Z`\[]", part))
    words = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", " ".join(next(paragraphs, "").split()))
    return re.split(r"(?<=[.:?]) (?=[A-Z`])", words)[0]
