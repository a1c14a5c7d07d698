"""The kinds of values in documents, from which the types of new columns follow. Pure.

A kind is plain data: one of `SCALARS`, or ``{"struct": {name: kind}}``, ``{"list": kind}``, ``{"map": kind}`` with keys
that are texts. JSON tells `WHOLE`, `FRACTION`, `TRUTH` and `TEXT` by the value; Avro's schemas declare Iceberg's types.
`WAITS` is the kind of null, which says nothing; ``[]`` and ``{}`` say a little. `NONE`: no type holds all values.
Merging kinds gives the same in any order, so it does not matter how documents are split into tasks.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from lakesink.decode.decimals import MOST_DIGITS
from lakesink.decode.json_raw import items, members

Kind = str | Mapping[str, Any]
Place = tuple[str, ...]
"""A path of names, with Iceberg's names for the parts of lists and maps: ``element`` and ``value``."""

WHOLE, LONG, FRACTION, TRUTH, TEXT, WAITS, NONE = "whole", "long", "fraction", "truth", "text", "waits", "none"
INT, FLOAT, DOUBLE, TIME, DEEP, ITSELF = "int", "float", "double", "time", "deep", "itself"
STRUCT, LIST, MAP = "struct", "list", "map"
DEEPEST = 5
"""Levels of objects and arrays in a new column."""
MOST_MEMBERS = 100
"""Objects with more different keys are rather maps, which no rule can tell from structs."""
LONGEST_NAME = 256
"""Characters that are kept of a key. A longer one is no name of a column, and its begin is none either."""
SCALARS: Mapping[str, pa.DataType] = {
    WHOLE: pa.int64(),
    FRACTION: pa.float64(),
    TRUTH: pa.bool_(),
    TEXT: pa.string(),
    INT: pa.int32(),
    LONG: pa.int64(),
    FLOAT: pa.float32(),
    DOUBLE: pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "uuid": pa.uuid(),
}
"""Types by kind; decimals have kinds such as ``decimal(9, 2)``."""
_WHY_NO_TYPE = {
    NONE: "no type holds all of its values",
    TIME: "Spark reads no table with a TIME column",
    DEEP: f"it has more than {DEEPEST} levels",
    ITSELF: "its type contains itself",
}
_NAMES = frozenset({*SCALARS, *_WHY_NO_TYPE, WAITS})
_DECIMAL = re.compile(r"decimal\(([0-9]{1,2}), ?([0-9]{1,2})\)")
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
        case "{" | "[" if not levels:
            return DEEP
        case "{":
            found = dict(reversed(members(text)))  # the first of equal keys counts, as in columns
            return struct_of((name[:LONGEST_NAME], kind_of(value, levels - 1)) for name, value in found.items())
        case "[":
            kind: Kind = WAITS
            for item in items(text):
                kind = merged(kind, kind_of(item, levels - 1))
            return {LIST: kind}
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
        some, others = decimal_of(one), decimal_of(other)
        decimal = decimal_kind(*max(some, others)) if some and others and some[1] == others[1] else NONE
        return _wider.get(frozenset((one, other)), decimal)
    if isinstance(one, str) or isinstance(other, str) or one.keys() != other.keys():
        return NONE
    if STRUCT in one:
        return struct_of([*one[STRUCT].items(), *other[STRUCT].items()])
    [(form, inner)] = one.items()
    return {form: merged(inner, other[form])}


_wider = {
    frozenset((WHOLE, LONG)): LONG,
    frozenset((WHOLE, FRACTION)): FRACTION,
    frozenset((INT, LONG)): LONG,
    frozenset((FLOAT, DOUBLE)): DOUBLE,
}


def decimal_of(name: Any) -> tuple[int, int] | None:
    """Precision and scale of a decimal's kind or type, which Iceberg allows; else None."""
    found = _DECIMAL.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        return None
    precision, scale = int(found[1]), int(found[2])
    return (precision, scale) if scale <= precision <= MOST_DIGITS and precision else None


def decimal_kind(precision: int, scale: int) -> str:
    """The kind of decimals; `NONE` if Iceberg has no such type."""
    return f"decimal({precision}, {scale})" if 0 <= scale <= precision <= MOST_DIGITS and precision else NONE


def arrow_of(kind: Kind) -> pa.DataType | None:
    """The type of a column of this kind, without members that have no type; None if there is none."""
    if isinstance(kind, str):
        decimal = decimal_of(kind)
        return pa.decimal128(*decimal) if decimal else SCALARS.get(kind)
    if STRUCT not in kind:
        [(form, inner)] = kind.items()
        item = arrow_of(inner)
        return None if item is None else pa.list_(item) if form == LIST else pa.map_(pa.string(), item)
    found = ((name, arrow_of(kind[STRUCT][name])) for name in sorted(kind[STRUCT]))
    fields = [pa.field(name, one) for name, one in found if one is not None]
    return pa.struct(fields) if fields else None


def says_nothing(kind: Kind) -> bool:
    """True if the values have nothing of which a column could be made: null, ``[]``, ``{}``, ``[{}]``."""
    return not leaves_of(kind) and not list(without_type((), kind))


def without_type(place: Place, kind: Kind) -> Iterator[tuple[Place, str]]:
    """The places in values of a kind for which there is no type, and why."""
    if isinstance(kind, str):
        if kind in _WHY_NO_TYPE:
            yield place, _WHY_NO_TYPE[kind]
    elif STRUCT in kind:
        for name, inner in kind[STRUCT].items():
            yield from without_type((*place, name), inner)
    else:
        [(form, inner)] = kind.items()
        yield from without_type((*place, _ITEMS[form]), inner)


_ITEMS = {LIST: "element", MAP: "value"}


def leaves_of(kind: Kind) -> int:
    """The number of columns that are not nested; the keys of a map are one."""
    if isinstance(kind, str):
        return int(kind in SCALARS or decimal_of(kind) is not None)
    if STRUCT in kind:
        return sum(map(leaves_of, kind[STRUCT].values()))
    [(form, inner)] = kind.items()
    found = leaves_of(inner)
    return found + 1 if form == MAP and found else found


def check_kind(document: Any, levels: int = DEEPEST) -> Kind:
    """The document, if it is a kind within the limits; else raises ValueError."""
    match document:
        case str() if document in _NAMES or decimal_of(document):
            return document
        case {"list": element, **rest} if not rest and levels:
            return {LIST: check_kind(element, levels - 1)}
        case {"map": value, **rest} if not rest and levels:
            return {MAP: check_kind(value, levels - 1)}
        case {"struct": dict(fields), **rest} if not rest and levels and len(fields) <= MOST_MEMBERS:
            "".join(fields).encode()  # half a character is an error
            return {STRUCT: {name: check_kind(kind, levels - 1) for name, kind in fields.items()}}
    raise ValueError("not the kind of a value")


def struct_of(found: Iterable[tuple[str, Kind]]) -> Kind:
    """The kind of objects with these members; equal names are merged."""
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
