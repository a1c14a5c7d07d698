"""Writes the part of a JSON document that its row does not hold, as JSON text. Pure, and slow: it is Python.

The decoder has accepted the document and read it to a row. A member without a field, and one that is NULL in the row
but not null in the document, are the rest.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakesink.decode.json_raw import as_written, items, members
from lakesink.decode.misfits import ENTRY, ITEM, Path, dotted
from lakesink.rows.nested import as_list
from lakesink.rows.schema import ListOf, MapOf, Primitive, Struct, Type, sql_type_of

UNKNOWN, UNFIT, VALUE, EXPECTED = "unknown", "unfit", "value", "expected"
NO_COLUMN = "no column"
_PLAIN = re.compile(r'[^.\[\]{}"\\]+')
_NESTED: Mapping[type, str] = {Struct: "STRUCT", ListOf: "ARRAY", MapOf: "MAP"}

Reason = tuple[Path, str]
"""A path without positions and keys of a map, and what is wrong there: ``no column``, or ``not INT``."""


@dataclass(frozen=True, slots=True)
class Present:
    """Which values of an array are not NULL, and the same of its parts.

    Attributes:
        starts: Of a list or map, the position of each one's first item; else empty.
        positions: Of a struct's fields, by name.
        leaves: Those of the fields that are not nested.
    """

    valid: list[bool]
    parts: "tuple[Present, ...]" = ()
    starts: Sequence[int] = ()
    positions: Mapping[str, int] = field(default_factory=dict)
    leaves: frozenset[int] = frozenset()


@dataclass(slots=True)
class Rest:
    """What a row does not hold of its document.

    Attributes:
        unknown: Members without a field, by path, as written.
        unfit: Values that do not fit, as written, and their expected types.
    """

    unknown: dict[str, str] = field(default_factory=dict)
    unfit: dict[str, tuple[str, str]] = field(default_factory=dict)
    reasons: set[Reason] = field(default_factory=set)

    @property
    def text(self) -> str:
        """The rest as JSON, with sorted keys."""
        unknown = (f"{_quoted(path)}:{self.unknown[path]}" for path in sorted(self.unknown))
        unfit = (f"{_quoted(path)}:{_unfit(*self.unfit[path])}" for path in sorted(self.unfit))
        parts = (_object(UNKNOWN, unknown) if self.unknown else "", _object(UNFIT, unfit) if self.unfit else "")
        return f"{{{','.join(filter(None, parts))}}}"

    def add_unknown(self, path: Path, place: Path, value: str) -> None:
        """Keep the value of a member without a field."""
        self.unknown[dotted(path)] = as_written(value)
        self.reasons.add((place, NO_COLUMN))

    def add_unfit(self, path: Path, place: Path, value: str, kind: Type) -> None:
        """Keep a value that does not fit its field."""
        expected = expected_of(kind)
        self.unfit[dotted(path)] = as_written(value), expected
        self.reasons.add((place, f"not {expected}"))


def expected_of(kind: Type) -> str:
    """The type in Spark's terms; of a nested one, only its kind."""
    return sql_type_of(kind) if isinstance(kind, Primitive) else _NESTED[type(kind)]


def present_in(values: pa.Array, kind: Type) -> Present:
    """Which values are not NULL, at every level; `values` begins at the start of its buffers."""
    valid = values.is_valid().to_pylist()
    match kind:
        case Primitive():
            return Present(valid)
        case Struct(fields):
            parts = tuple(present_in(values.field(at), one.type) for at, one in enumerate(fields))
            leaves = frozenset(at for at, one in enumerate(fields) if isinstance(one.type, Primitive))
            return Present(valid, parts, positions={one.name: at for at, one in enumerate(fields)}, leaves=leaves)
        case ListOf(element):
            return Present(valid, (present_in(values.values, element.type),), values.offsets.to_pylist())
        case MapOf(_, item):
            entries = as_list(values)
            return Present(valid, (present_in(values.items, item.type),), entries.offsets.to_pylist())


def rest_of(text: str, struct: Struct, present: Present, at: int) -> Rest:
    """The rest of a document whose row is at this position; without text if there is none."""
    rest = Rest()
    _add_members(rest, text, struct, present, at, (), ())
    return rest


def _add_members(rest: Rest, text: str, struct: Struct, present: Present, at: int, path: Path, place: Path) -> None:
    positions, parts, leaves = present.positions, present.parts, present.leaves
    for name, value in dict(reversed(members(text))).items():
        position = positions.get(name)
        if value == "null" or (position is not None and position in leaves and parts[position].valid[at]):
            continue
        step = step_of(name)
        below, where = (*path, step), (*place, step)
        if position is None:
            rest.add_unknown(below, where, value)
        else:
            _add_value(rest, value, struct.fields[position].type, parts[position], at, below, where)


def _add_value(rest: Rest, value: str, kind: Type, present: Present, at: int, path: Path, place: Path) -> None:
    if not present.valid[at]:
        rest.add_unfit(path, place, value, kind)
        return
    match kind:
        case Struct():
            _add_members(rest, value, kind, present, at, path, place)
        case ListOf(element):
            steps = ((f"[{number}]", item) for number, item in enumerate(items(value)))
            _add_items(rest, steps, element.type, present, at, path, (*place, ITEM))
        case MapOf(_, item):
            entries = ((f"{{{_quoted(name)}}}", entry) for name, entry in members(value))
            _add_items(rest, entries, item.type, present, at, path, (*place, ENTRY))


def _add_items(
    rest: Rest, found: Iterator[tuple[str, str]], kind: Type, present: Present, at: int, path: Path, place: Path
) -> None:
    [below] = present.parts
    for number, (step, value) in enumerate(found, present.starts[at]):
        if value != "null":
            _add_value(rest, value, kind, below, number, (*path, step), place)


def step_of(name: str) -> str:
    """A name as it is in a path: in brackets and quotes if a path could not be read otherwise."""
    return name if _PLAIN.fullmatch(name) else f"[{_quoted(name)}]"


def _object(name: str, parts: Iterator[str]) -> str:
    return f'"{name}":{{{",".join(parts)}}}'


def _unfit(value: str, expected: str) -> str:
    return f'{{"{EXPECTED}":{_quoted(expected)},"{VALUE}":{value}}}'


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
