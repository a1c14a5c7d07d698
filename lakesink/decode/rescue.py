"""Keeps what a row does not hold of its document, as JSON text for the rescue column, and counts it.

The decoder has accepted the document and read it to a row. A member without a field, and one that is NULL in the row
but not null in the document, are the rest. Only Python finds it, which is slow.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.json_raw import as_written, items, members
from lakesink.decode.json_scalars import Parsed, but, either, without
from lakesink.decode.misfits import ENTRY, ITEM, Path, dotted
from lakesink.rows.nested import as_list
from lakesink.rows.scalars import FALSE
from lakesink.rows.schema import ListOf, MapOf, Primitive, Struct, Type, sql_type_of
from lakesink_protocol.measures import RESCUED_ROWS, Tally
from lakesink_protocol.quality import Quality, first_reasons, reason_of

UNKNOWN, UNFIT, VALUE, EXPECTED = "unknown", "unfit", "value", "expected"
NO_COLUMN = "no column"
_PLAIN = re.compile(r'[^.\[\]{}"\\]+')
_NESTED: Mapping[type, str] = {Struct: "STRUCT", ListOf: "ARRAY", MapOf: "MAP"}
"""The words for nested types, without their fields."""

Reason = tuple[Path, str]
"""A path without positions and keys of a map, and what is wrong there: ``no column``, or ``not INT``."""
LARGEST_REST_BYTES = 1024 * 1024
"""A document with a larger rest is malformed: nothing is cut."""
_REASONS_KEPT = 1_000
Texts = Callable[[pa.Array, Collection[str]], Iterable[str]]
"""Gives documents, which were read to rows, as JSON; the members of some names may be left out."""


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
        unknown = (f"{_quoted(path)}:{value}" for path, value in sorted(self.unknown.items()))
        unfit = (
            f'{_quoted(path)}:{{"{EXPECTED}":{_quoted(expected)},"{VALUE}":{value}}}'
            for path, (value, expected) in sorted(self.unfit.items())
        )
        parts = (_object(UNKNOWN, unknown) if self.unknown else "", _object(UNFIT, unfit) if self.unfit else "")
        return f"{{{','.join(filter(None, parts))}}}"


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
            rest.unknown[dotted(below)] = as_written(value)
            rest.reasons.add((where, NO_COLUMN))
        else:
            _add_value(rest, value, struct.fields[position].type, parts[position], at, below, where)


def _add_value(rest: Rest, value: str, kind: Type, present: Present, at: int, path: Path, place: Path) -> None:
    if not present.valid[at]:
        expected = sql_type_of(kind) if isinstance(kind, Primitive) else _NESTED[type(kind)]
        rest.unfit[dotted(path)] = as_written(value), expected
        rest.reasons.add((place, f"not {expected}"))
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


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


@dataclass(slots=True)
class Rescue:
    """The rescue column of one task.

    Attributes:
        struct: The columns that come from the documents.
        texts: Half of a surrogate pair in a text stands for bytes that are not UTF-8.
        refuses: Tells from the text of a document that its rest is nothing that could be kept.
        rows: Rows with a text in the rescue column.
    """

    struct: Struct
    texts: Texts
    refuses: Callable[[str], bool] = lambda _: False
    rows: int = 0
    _reasons: Counter[str] = field(default_factory=Counter, init=False)

    @property
    def quality(self) -> Quality:
        """What was kept."""
        return Quality(Tally({RESCUED_ROWS: self.rows}), rescued=first_reasons(self._reasons.items()))

    def kept(self, documents: pa.Array, parsed: Parsed) -> tuple[Parsed, pa.StringArray]:
        """The texts of the rescue column, and the rows; one with a rest that cannot be kept is a misfit."""
        rest = but(parsed.rest, parsed.misfits)
        positions = [] if rest is None else pc.indices_nonzero(rest).to_pylist()
        if not positions:
            return parsed, pa.nulls(len(documents), pa.string())
        chosen = pa.array(positions, pa.int64())
        present = present_in(parsed.values.take(chosen), self.struct)
        held = {self.struct.fields[at].name for at in present.leaves if all(present.parts[at].valid)}
        chosen_texts = self.texts(documents.take(chosen), held)
        texts: list[str | None] = [None] * len(documents)
        for at, (position, text) in enumerate(zip(positions, chosen_texts, strict=True)):
            texts[position] = self.text(rest_of(text, self.struct, present, at), text)
        kept = pa.array(texts, pa.string())
        if "" not in texts:
            return parsed, kept
        refused = pc.fill_null(pc.equal(kept, ""), FALSE)
        return Parsed(without(parsed.values, refused), either(parsed.misfits, refused)), without(kept, refused)

    def text(self, rest: Rest, document: str) -> str | None:
        """None without a rest; empty for one that cannot be kept: it is too large, not UTF-8, or refused."""
        if not rest.reasons:
            return None
        if self.refuses(document):
            return ""
        text = rest.text
        try:
            if len(text.encode()) > LARGEST_REST_BYTES:
                return ""
        except UnicodeEncodeError:
            return ""
        self.rows += 1
        self._reasons.update(set(map(_in_words, rest.reasons)))
        if len(self._reasons) > _REASONS_KEPT:
            self._reasons = Counter(first_reasons(self._reasons.items()))
        return text


@lru_cache(maxsize=_REASONS_KEPT)
def _in_words(reason: Reason) -> str:
    place, why = reason
    return reason_of(dotted(place), why)
