"""The parts of JSON documents in their original spelling, where DuckDB would change it. Pure, and slow: it is Python.

DuckDB has already accepted the documents as valid.
"""

import json
import re
from collections.abc import Sequence

_TEXT = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_BLANKS = r"[ \t\r\n]*"
_SCALAR = rf'{_TEXT}|[^ \t\r\n\[\]{{}},:"]+'
_WRITTEN = re.compile(rf"{_TEXT}|[\[\]{{}}:]|,(?!{_BLANKS}[\]}}])|{_SCALAR}", re.DOTALL)
"""Tokens without blanks and trailing commas."""
_NEXT = r"[ \t\r\n,]*"
_MEMBER = re.compile(rf"{_NEXT}({_TEXT}){_BLANKS}:{_BLANKS}({_SCALAR})?", re.DOTALL)
_ITEM = re.compile(rf"{_NEXT}()(?:({_SCALAR})|(?=[\[{{]))", re.DOTALL)
"""A key, if there are keys, and a value; None if that is an array or object, which begins at the end of the match."""
_BRACKET = re.compile(rf"{_TEXT}|[\[\]{{}}]", re.DOTALL)
_NO_NUMBER = re.compile(r"(?i:-?(?:nan|inf(?:inity)?))")


def members(text: str) -> list[tuple[str, str]]:
    """Keys, unescaped, and values of an object, in order."""
    return [(_unquoted(key), value) for key, value in _parts(text, "{", _MEMBER)]


def items(text: str) -> list[str]:
    """The items of an array."""
    return [item for _, item in _parts(text, "[", _ITEM)]


def _parts(text: str, opener: str, part: re.Pattern[str]) -> list[tuple[str, str]]:
    """The parts of the outermost object or array, as they are written."""
    found, at = [], text.index(opener) + 1
    if text.find("[", at) < 0 and text.find("{", at) < 0:  # nothing is nested
        return part.findall(text, at)
    while match := part.match(text, at):
        key, value = match.groups()
        start = at = match.end()
        if value is None:
            at = end_of_nested(text, start)
            value = text[start:at]
        found.append((key, value))
    return found


def first_members(text: str, names: Sequence[str]) -> list[str | None]:
    """The values of these keys in an object, the first one of a duplicate key; None for a missing key."""
    found = dict(reversed(members(text)))
    return [found.get(name) for name in names]


def as_taken(part: str | None, *, as_json: bool) -> str | None:
    """A value as DuckDB gives it, as JSON or as a text; None for null."""
    if not as_json:
        return as_text(part)
    return None if part == "null" else part


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
