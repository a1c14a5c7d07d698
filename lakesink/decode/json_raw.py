"""The parts of JSON documents in their original spelling, where DuckDB would change it. Pure, and slow: it is Python.

DuckDB has already accepted the documents as valid.
"""

import json
import re
from collections.abc import Iterator, Sequence

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^ \t\r\n\[\]{},:"]+')
_WRITTEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:]|,(?![ \t\r\n]*[\]}])|[^ \t\r\n\[\]{},:"]+')
"""Tokens without blanks and trailing commas."""


def members(text: str) -> list[tuple[str, str]]:
    """Keys, unescaped, and values of an object, in order."""
    parts = _parts(text)
    return [(_unquoted(key), next(parts)) for key in parts]


def first_members(text: str, names: Sequence[str]) -> list[str | None]:
    """The values of these keys in an object, the first one of a duplicate key; None for a missing key."""
    found = dict(reversed(members(text)))
    return [found.get(name) for name in names]


def unique_members(text: str) -> list[tuple[str, str]] | None:
    """Keys and values of an object; None if it has a duplicate key."""
    found = members(text)
    return found if len(dict(found)) == len(found) else None


def items(text: str) -> list[str]:
    """The items of an array."""
    return list(_parts(text))


def as_text(part: str | None) -> str | None:
    """The characters of a string, or the JSON of any other value without blanks; None for null."""
    if part is None or part == "null":
        return None
    return _unquoted(part) if part.startswith('"') else "".join(_WRITTEN.findall(part))


def _unquoted(part: str) -> str:
    return str(json.loads(part)) if "\\" in part else part[1:-1]


def _parts(text: str) -> Iterator[str]:
    """The parts that commas and colons separate inside the outermost brackets."""
    depth, start, end = 0, -1, -1
    for token in _TOKEN.finditer(text):
        sign = token[0]
        closes = sign in ("]", "}")
        depth -= closes
        if (closes and depth == 0) or (depth == 1 and sign in (",", ":")):
            if start >= 0:  # there may be a trailing comma
                yield text[start:end]
            start = -1
            continue
        if depth >= 1 and start < 0:
            start = token.start()
        end = token.end()
        depth += sign in ("[", "{")
