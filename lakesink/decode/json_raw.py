"""The parts of JSON documents in their original spelling, where DuckDB would change it. Pure, and slow: it is Python.

DuckDB has already accepted the documents as valid.
"""

import json
import re
from collections.abc import Iterator, Sequence

_TEXT = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_BLANKS = r"[ \t\r\n]*"
_SCALAR = rf'{_TEXT}|[^ \t\r\n\[\]{{}},:"]+'
_TOKEN = re.compile(rf"{_TEXT}|[\[\]{{}},:]|{_SCALAR}", re.DOTALL)
_WRITTEN = re.compile(rf"{_TEXT}|[\[\]{{}}:]|,(?!{_BLANKS}[\]}}])|{_SCALAR}", re.DOTALL)
"""Tokens without blanks and trailing commas."""
_MEMBER = re.compile(rf"{_BLANKS}({_TEXT}){_BLANKS}:{_BLANKS}({_SCALAR})?{_BLANKS},?", re.DOTALL)
"""A key and its value; None if the value is an array or object, which begins at the end of the match."""
_BRACKET = re.compile(rf"{_TEXT}|[\[\]{{}}]", re.DOTALL)
_COMMA = re.compile(rf"{_BLANKS},?")
_NO_NUMBER = re.compile(r"(?i:-?(?:nan|inf(?:inity)?))")


def members(text: str) -> list[tuple[str, str]]:
    """Keys, unescaped, and values of an object, in order."""
    found, at = [], text.index("{") + 1
    if "[" not in text and text.find("{", at) < 0:  # nothing is nested
        return [(_unquoted(key), value) for key, value in _MEMBER.findall(text, at)]
    while member := _MEMBER.match(text, at):
        key, value = member.groups()
        start = at = member.end()
        if value is None:
            end = end_of_nested(text, start)
            comma = _COMMA.match(text, end)
            value, at = text[start:end], end if comma is None else comma.end()
        found.append((_unquoted(key), value))
    return found


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


def as_written(part: str) -> str:
    """The JSON of a value without blanks and trailing commas. NaN and Infinity, which JSON lacks, become strings."""
    if part.startswith('"'):
        return part
    return "".join(f'"{token}"' if _NO_NUMBER.fullmatch(token) else token for token in _WRITTEN.findall(part))


def _unquoted(part: str) -> str:
    return str(json.loads(part)) if "\\" in part else part[1:-1]


def end_of_nested(text: str, start: int) -> int:
    """The end of an array or object that begins at a position; raises ValueError."""
    depth = 0
    for token in _BRACKET.finditer(text, start):
        depth += (token[0] in "[{") - (token[0] in "]}")
        if not depth:
            return token.end()
    raise ValueError("an array or object does not end")


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
