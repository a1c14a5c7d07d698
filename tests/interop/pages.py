"""What a page of the documents tells its reader to run, taken from between two marks in it."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def block(page: str, name: str) -> str:
    """The one fenced block between ``<!-- name -->`` and ``<!-- /name -->``."""
    text = (DOCS / page).read_text().partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0]
    [code] = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    return str(code)
