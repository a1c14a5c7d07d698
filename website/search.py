"""The index of the search, in which pages of the manual come before decisions and programs. Pure."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

_DECISION = re.compile(r"decisions/(\d{4})-[^/]*/")
_PROGRAM = re.compile(r"project/.*\.\w+/")


def manual_first(items: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The entries of Zensical's index, which ranks titles above texts and knows no other weights.

    A decision or a program becomes one text, without a title of its own.
    """
    for place, entries in groupby(items, lambda item: str(item["location"]).partition("#")[0]):
        if not (found := _DECISION.fullmatch(place) or _PROGRAM.fullmatch(place)):
            yield from entries
            continue
        first, *others = entries
        texts = [part for one in (first, *others) for part in (f"<p>{one['title']}</p>", one["text"])]
        title = f"Decision {found[1]}" if found.re is _DECISION else "Program"
        yield first | {"title": title, "path": [title], "text": "\n".join(texts)}
