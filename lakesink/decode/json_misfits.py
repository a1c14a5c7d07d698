"""Describes the value in a malformed JSON document that does not fit. Pure."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from lakesink.decode.misfits import ENTRY, ITEM, KEY, Column, Found, Path
from lakesink.rows.schema import Field, Primitive, sql_type_of
from lakesink_catalog.words import counted

OBJECT = "a JSON object"
_CONTAINERS = {ITEM: ("ARRAY", list), KEY: ("MAP", dict), ENTRY: ("MAP", dict)}

UNKNOWN_MISFIT = Found("a document that cannot be read exactly", expected=OBJECT)
REST_TOO_LARGE = Found("more than 1 MiB that no column holds", expected="a document with a smaller rest")

Fits = Callable[[Any], bool]
"""True if a value, as JSON, fits a column."""


class Number(str):
    """A number in its original spelling."""

    __slots__ = ()


ABSENT: Any = object()
"""Stands for a missing key."""


class Object(dict[str, Any]):
    """An object in which the first of two equal keys counts, as in the decoder."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(reversed(pairs))
        self.has_duplicate_key = len(self) != len(pairs)


def parsed(text: str) -> Any:
    """The document with numbers in their original spelling; raises ValueError, or RecursionError if it is too deep."""
    return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=Object)


def text_in(value: bytes | None) -> str | Found:
    """The text of an object; of any other value, what it is."""
    if value is None:
        return Found("no value (NULL)", expected=OBJECT)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return Found(f"{counted(len(value), 'byte')}, not UTF-8", expected=OBJECT)
    if not text.strip():
        return Found("blank text", text, expected=OBJECT)
    try:
        document = parsed(text)
    except (ValueError, RecursionError) as error:
        why = "with too many levels to name one" if isinstance(error, RecursionError) else "that is not JSON"
        return Found(f"text of {counted(len(text), 'character')} {why}", text, expected=OBJECT)
    is_object = isinstance(document, Object)
    return text if is_object else Found(kind_in_words(document), as_written(document), expected=OBJECT)


def unreadable(document: Any, text: str) -> Found:
    """Describes a document that Python can read and the decoder cannot."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return Found("JSON with half of a surrogate pair in a text", text, expected=OBJECT)
    return Found(f"text of {counted(len(text), 'character')} that is not JSON", text, expected=OBJECT)


def found_at(document: Any, column: Column, fits: Fits) -> Found:
    """The value of a column that does not fit; `fits` finds the misfit among the items of a list or map."""
    candidates = list(_values(document, column.path, Field(0, "", required=True, type=column.alone)))
    wrong = [found for found in candidates if found[2]] or candidates
    if not wrong:
        return column.found("a value that cannot be read", "")
    alone = wrong[0] if len(wrong) == 1 else None  # each call of `fits` takes a millisecond
    found = alone or next((found for found in wrong if found[2] or not fits(found[1])), None)
    if found is None and column.path[-1] == KEY:
        return column.found("an object with two spellings of one key", "", column.path[:-1], "MAP")
    path, value, expected = found or wrong[0]
    twice = isinstance(value, Object) and value.has_duplicate_key and expected == "MAP"
    return column.found(
        "an object with a duplicate key" if twice else kind_in_words(value), as_written(value), path, expected
    )


def _values(value: Any, path: Path, field: Field, passed: Path = ()) -> Iterator[tuple[Path, Any, str]]:
    """Values at a path. A value that ends the path too early, or is required and missing, has its expected type."""
    wanted, kind = _CONTAINERS.get(path[0], ("STRUCT", dict)) if path else (sql_type_of(field.type), None)
    if value is None or value is ABSENT:
        if field.required:
            yield passed, value, wanted
    elif kind is None:
        yield passed, value, ""
    elif not isinstance(value, kind) or (wanted == "MAP" and value.has_duplicate_key):
        yield passed, value, wanted
    elif path[0] == KEY:
        yield from ((passed, key, "") for key in value)
    else:
        assert not isinstance(field.type, Primitive)
        for step, below in _parts(value, path[0]):
            yield from _values(below, path[1:], field.type.fields[-1], (*passed, step))


def _parts(value: Any, step: str) -> Iterator[tuple[str, Any]]:
    if step == ITEM:
        yield from ((f"[{position}]", element) for position, element in enumerate(value))
    elif step == ENTRY:
        yield from ((ENTRY, below) for below in value.values())
    else:
        yield step, value.get(step, ABSENT)


def kind_in_words(value: Any) -> str:
    """What a value is, without the value."""
    match value:
        case _ if value is None or value is ABSENT:
            return "null" if value is None else "no value"
        case bool():
            return "true or false"
        case Number():
            return _kind_of_number(value)
        case str():
            return f"text of {counted(len(value), 'character')}"
        case list():
            return f"an array of {counted(len(value), 'element')}"
        case _:
            return f"an object of {counted(len(value), 'key')}"


def _kind_of_number(text: str) -> str:
    digits = sum(char.isdigit() for char in text)
    if not digits:
        return "NaN or Infinity"
    if text.lstrip("-").isdigit():
        return f"a whole number of {counted(digits, 'digit')}"
    return "a number with an exponent" if "e" in text.lower() else f"a fraction of {counted(digits, 'digit')}"


def as_written(value: Any) -> str:
    """A value as JSON, with numbers in their original spelling."""
    if value is ABSENT:
        return ""
    return str(value) if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)
