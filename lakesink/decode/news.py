"""What documents bring that a table's columns cannot hold: keys without a column, and values of wider types.

Tasks find it, the driver merges what all of them found. The result does not depend on the order or the split of the
documents. Pure.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakesink.decode.json_raw import items, members
from lakesink.decode.kinds import (
    LONGEST_NAME,
    NONE,
    WAITS,
    Kind,
    Place,
    check_kind,
    kind_of,
    leaves_of,
    merged,
    says_nothing,
)
from lakesink.writer.schema import Field, ListOf, MapOf, Primitive, Struct, Type

LONG, DOUBLE = "long", "double"
LARGEST_NEWS_BYTES = 64 * 1024 * 1024
_MOST_DIGITS = 38
_DEEPEST_PLACE = 100
_INFINITE_FLOAT = 3.4028235677973366e38
"""From here on, rounding to a float gives infinity."""
_DECIMAL = re.compile(r"decimal\(([0-9]{1,2}), ?([0-9]{1,2})\)")
_WHOLE = re.compile(r"-?[0-9]{1,19}")
_PLAIN = re.compile(r"-?[0-9]{1,38}(?:\.[0-9]{1,38})?")
_NUMBER = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,4})?")


@dataclass(slots=True)
class News:
    """The news of some documents.

    Attributes:
        most: New keys at most; the first ones by name are kept, and one more, which shows that there are more.
        added: Kinds of values by the place of their key.
        widened: Names of Iceberg's types by the place of a column.
        optional: Places of required columns that a document lacks.
    """

    most: int
    added: dict[Place, Kind] = field(default_factory=dict)
    widened: dict[Place, str] = field(default_factory=dict)
    optional: set[Place] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.widened or self.optional or not all(map(says_nothing, self.added.values())))

    def include(self, other: "News") -> None:
        """Add other news."""
        for place, kind in other.added.items():
            both = merged(self.added.get(place, WAITS), kind)
            self.added[place] = both if leaves_of(both) <= self.most else NONE
        for place, name in other.widened.items():
            self.widened[place] = wider(self.widened.get(place, name), name)
        self.optional |= other.optional
        if len(self.added) > 4 * (self.most + 1):
            self._shorten()

    def to_json(self) -> str:
        """The news as JSON; empty if there are none."""
        if not self:
            return ""
        self._shorten()
        document = {
            "added": [[place, kind] for place, kind in sorted(self.added.items(), key=_place)],
            "widened": sorted(self.widened.items()),
            "optional": sorted(self.optional),
        }
        return json.dumps(document, separators=(",", ":"))

    def _shorten(self) -> None:
        self.added = dict(sorted(self.added.items(), key=_place)[: self.most + 1])


def news_from(text: str, most: int) -> News:
    """The inverse of `News.to_json`, for a text from a less trusted process; raises ValueError."""
    if len(text) > LARGEST_NEWS_BYTES:
        raise ValueError("the news of a task are too long")
    try:
        match json.loads(text):
            case {"added": list(added), "widened": list(widened), "optional": list(optional)}:
                found = News(most)
                found.added = {_checked(place): check_kind(kind) for place, kind in added}
                found.widened = {_checked(place): _checked_type(name) for place, name in widened}
                found.optional = set(map(_checked, optional))
                return found
    except (TypeError, RecursionError) as error:
        raise ValueError("not the news of a task") from error
    raise ValueError("not the news of a task")


def wider(one: str, other: str) -> str:
    """The wider one of two types of one column."""
    found, more = _DECIMAL.fullmatch(one), _DECIMAL.fullmatch(other)
    if found and more:
        return max(one, other, key=lambda name: int(_DECIMAL.fullmatch(name)[1]))  # type: ignore[index]
    return max(one, other)


@dataclass(frozen=True, slots=True)
class _Known:
    """The fields of a struct by name, those that can have news, and those that a document must have."""

    fields: Mapping[str, Field]
    visited: tuple[Field, ...]
    required: tuple[Field, ...]

    @classmethod
    def of(cls, struct: Struct, *, widens: bool) -> "_Known":
        visited = tuple(one for one in struct.fields if widens or not isinstance(one.type, Primitive))
        required = tuple(one for one in struct.fields if widens and one.required)
        return cls({one.name: one for one in struct.fields}, visited, required)


@dataclass(slots=True)
class NewsFinder:
    """Finds the news of documents, one by one; `struct` has the columns that come from documents."""

    struct: Struct
    most: int
    widens: bool
    _known: dict[int, _Known] = field(default_factory=dict)

    def of(self, text: str) -> News:
        """The news of one JSON object that the decoder can open; the first of equal keys counts."""
        found = News(self.most)
        self._add_object(found, text, self.struct, ())
        return found

    def _add_object(self, found: News, text: str, struct: Struct, path: Place) -> None:
        known = self._known.get(id(struct))  # part of `self.struct`, so no other object can get its id
        if known is None:
            known = self._known[id(struct)] = _Known.of(struct, widens=self.widens)
        present = dict(reversed(members(text)))
        for name in present.keys() - known.fields.keys():
            place, kind = (*path, name[:LONGEST_NAME]), kind_of(present[name])
            found.added[place] = merged(found.added.get(place, WAITS), kind)
        for one in known.visited:
            if one.name in present:
                self._add_value(found, present[one.name], one.type, (*path, one.name))
        found.optional.update((*path, one.name) for one in known.required if present.get(one.name) in (None, "null"))

    def _add_value(self, found: News, value: str, kind: Type, place: Place) -> None:
        match kind:
            case Struct() if value.startswith("{"):
                self._add_object(found, value, kind, place)
            case ListOf(element) if value.startswith("["):
                for item in items(value):
                    self._add_value(found, item, element.type, (*place, "element"))
            case MapOf(_, item) if value.startswith("{"):
                for _, entry in members(value):
                    self._add_value(found, entry, item.type, (*place, "value"))
            case Primitive() if self.widens:
                name = _wider_type(value, kind)
                if name:
                    found.widened[place] = wider(found.widened.get(place, name), name)


def _wider_type(value: str, kind: Primitive) -> str:
    """The type that holds a number that its column is too narrow for; empty if the column holds it, or none does."""
    if kind.name == "int" and _WHOLE.fullmatch(value):
        number = int(value)
        return LONG if not -(2**31) <= number < 2**31 and -(2**63) <= number < 2**63 else ""
    if kind.name == "float" and _NUMBER.fullmatch(value):
        return DOUBLE if _INFINITE_FLOAT <= abs(float(value)) < float("inf") else ""
    if kind.decimal and _PLAIN.fullmatch(value):
        precision, scale = kind.decimal
        digits, _, fraction = value.removeprefix("-").partition(".")
        whole = len(digits.lstrip("0")) or 1
        fits = precision < whole + scale <= _MOST_DIGITS and len(fraction) <= scale
        return f"decimal({whole + scale}, {scale})" if fits else ""
    return ""


def _place(item: tuple[Place, Any]) -> Place:
    return item[0]


def _checked(place: Any) -> Place:
    if not isinstance(place, list) or not 0 < len(place) <= _DEEPEST_PLACE:
        raise ValueError("not the place of a key")
    if not all(isinstance(name, str) for name in place):
        raise ValueError("a name is not a text")
    return tuple(place)


def _checked_type(name: Any) -> str:
    if name in (LONG, DOUBLE) or (isinstance(name, str) and _DECIMAL.fullmatch(name)):
        return str(name)
    raise ValueError("a column cannot become of this type")


def all_news(texts: Iterable[str], most: int) -> News:
    """The merged news of all tasks; raises ValueError."""
    found = News(most)
    for text in texts:
        if text:
            found.include(news_from(text, most))
    return found
