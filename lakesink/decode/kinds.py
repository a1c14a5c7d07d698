"""The kinds of JSON values, from which the types of new columns follow. Pure.

A kind is plain data: `WHOLE`, `LONG`, `FRACTION`, `TRUTH`, `TEXT`, or ``{"struct": {name: kind}}``, ``{"list": kind}``.
`WAITS` is the kind of null, which says nothing; ``[]`` and ``{}`` say a little. `NONE`: no type holds all values.
Merging kinds gives the same in any order, so it does not matter how documents are split into tasks.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from lakesink.decode.json_raw import items, members

Kind = str | Mapping[str, Any]
Place = tuple[str, ...]
"""A path of names, with Iceberg's names for the parts of lists and maps: ``element`` and ``value``."""

WHOLE, LONG, FRACTION, TRUTH, TEXT, WAITS, NONE = "whole", "long", "fraction", "truth", "text", "waits", "none"
STRUCT, LIST = "struct", "list"
MOST_MEMBERS = 50
"""Objects with more different keys are rather maps, which no rule can tell from structs."""
DEEPEST = 5
"""Levels of objects and arrays in a new column."""
LONGEST_NAME = 256
"""Characters that are kept of a key. A longer one is no name of a column, and its begin is none either."""
_SCALARS: Mapping[str, pa.DataType] = {
    WHOLE: pa.int64(),
    LONG: pa.int64(),
    FRACTION: pa.float64(),
    TRUTH: pa.bool_(),
    TEXT: pa.string(),
}
_NAMES = frozenset({*_SCALARS, WAITS, NONE})
_EXACT = 2**53
"""Doubles hold whole numbers up to here exactly."""
_LONGEST_NUMBER = 400
_WHOLE = re.compile(r"-?[0-9]+")
_FRACTION = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def kind_of(text: str, levels: int = DEEPEST) -> Kind:
    """The kind of a value from its JSON text."""
    match text[:1]:
        case '"':
            return TEXT
        case "{":
            return _kind_of_object(text, levels)
        case "[":
            return _kind_of_array(text, levels)
    if text == "null":
        return WAITS
    return TRUTH if text in ("true", "false") else _kind_of_number(text)


def merged(one: Kind, other: Kind) -> Kind:
    """The kind of values of both kinds."""
    if other in (one, WAITS):
        return one
    if one == WAITS:
        return other
    if isinstance(one, str) and isinstance(other, str):
        return _wider.get(frozenset((one, other)), NONE)
    if isinstance(one, str) or isinstance(other, str) or one.keys() != other.keys():
        return NONE
    if LIST in one:
        return {LIST: merged(one[LIST], other[LIST])}
    return _struct([*one[STRUCT].items(), *other[STRUCT].items()])


_wider = {frozenset((WHOLE, LONG)): LONG, frozenset((WHOLE, FRACTION)): FRACTION}


def arrow_of(kind: Kind) -> pa.DataType | None:
    """The type of a column of this kind, without members that have no type; None if there is none."""
    if isinstance(kind, str):
        return _SCALARS.get(kind)
    if LIST in kind:
        element = arrow_of(kind[LIST])
        return None if element is None else pa.list_(element)
    found = ((name, arrow_of(kind[STRUCT][name])) for name in sorted(kind[STRUCT]))
    fields = [pa.field(name, one) for name, one in found if one is not None]
    return pa.struct(fields) if fields else None


def says_nothing(kind: Kind) -> bool:
    """True if the values have nothing of which a column could be made: null, ``[]``, ``{}``, ``[{}]``."""
    return not leaves_of(kind) and not list(without_type((), kind))


def without_type(place: Place, kind: Kind) -> Iterator[Place]:
    """The places in values of a kind for which there is no type."""
    if kind == NONE:
        yield place
    elif not isinstance(kind, str) and LIST in kind:
        yield from without_type((*place, "element"), kind[LIST])
    elif not isinstance(kind, str):
        for name, inner in kind[STRUCT].items():
            yield from without_type((*place, name), inner)


def leaves_of(kind: Kind) -> int:
    """The number of columns that are not nested."""
    if isinstance(kind, str):
        return int(kind in _SCALARS)
    return leaves_of(kind[LIST]) if LIST in kind else sum(map(leaves_of, kind[STRUCT].values()))


def check_kind(document: Any, levels: int = DEEPEST) -> Kind:
    """The document, if it is a kind within the limits; else raises ValueError."""
    match document:
        case str() if document in _NAMES:
            return document
        case {"list": element, **rest} if not rest and levels:
            return {LIST: check_kind(element, levels - 1)}
        case {"struct": dict(fields), **rest} if not rest and levels and len(fields) <= MOST_MEMBERS:
            "".join(fields).encode()  # half a character is an error
            return {STRUCT: {name: check_kind(kind, levels - 1) for name, kind in fields.items()}}
    raise ValueError("not the kind of a value")


def _kind_of_object(text: str, levels: int) -> Kind:
    if not levels:
        return NONE
    found = dict(reversed(members(text)))  # the first of equal keys counts, as in columns
    kinds = ((name[:LONGEST_NAME], kind_of(value, levels - 1)) for name, value in found.items())
    return _struct(kinds)


def _kind_of_array(text: str, levels: int) -> Kind:
    if not levels:
        return NONE
    kind: Kind = WAITS
    for item in items(text):
        kind = merged(kind, kind_of(item, levels - 1))
    return {LIST: kind}


def _struct(found: Iterable[tuple[str, Kind]]) -> Kind:
    fields: dict[str, Kind] = {}
    for name, kind in found:
        fields[name] = merged(fields.get(name, WAITS), kind)
    return {STRUCT: fields} if len(fields) <= MOST_MEMBERS else NONE


def _kind_of_number(text: str) -> str:
    if len(text) > _LONGEST_NUMBER:
        return NONE
    if _WHOLE.fullmatch(text):
        number = int(text)
        if abs(number) <= _EXACT:
            return WHOLE
        return LONG if -(2**63) <= number < 2**63 else NONE
    return FRACTION if _FRACTION.fullmatch(text) and math.isfinite(float(text)) else NONE
