"""What documents bring that a table's columns cannot hold: keys without a column, and values of wider types.

Tasks find it, the driver merges what all of them found. The result does not depend on the order or the split of the
documents. Pure.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from lakesink.decode import value_kinds as kinds
from lakesink.decode.decimals import MOST_DIGITS
from lakesink.decode.json_raw import items, members
from lakesink.rows.plan import NewsPlan
from lakesink.rows.schema import Field, ListOf, MapOf, Primitive, Struct, Type

_WIDE = {kinds.INT: kinds.LONG, kinds.FLOAT: kinds.DOUBLE}
Widen = Callable[[Primitive, kinds.Place], Primitive]
LARGEST_NEWS_BYTES = 64 * 1024 * 1024
MOST_KEYS = 10_000
"""Different new keys of a batch; more are rather values, such as user names, and none of them becomes a column."""
_DEEPEST_PLACE = 100
_INFINITE_FLOAT = 3.4028235677973366e38
"""From here on, rounding to a float gives infinity."""
_WHOLE = re.compile(r"-?[0-9]{1,19}")
_PLAIN = re.compile(r"-?[0-9]{1,38}(?:\.[0-9]{1,38})?")
_NUMBER = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,4})?")


@dataclass(slots=True)
class News:
    """The news of some documents.

    Attributes:
        added: Kinds of values by the place of their key; null says nothing, and is not there.
        widened: Names of Iceberg's types by the place of a column.
        optional: Places of required columns that a document lacks.
        has_too_many: True if there are more than `MOST_KEYS` new keys; then none is kept.
    """

    added: dict[kinds.Place, kinds.Kind] = field(default_factory=dict)
    widened: dict[kinds.Place, str] = field(default_factory=dict)
    optional: set[kinds.Place] = field(default_factory=set)
    has_too_many: bool = False

    def __bool__(self) -> bool:
        of_columns = bool(self.widened or self.optional)
        return self.has_too_many or of_columns or not all(map(kinds.says_nothing, self.added.values()))

    def include(self, other: "News") -> None:
        """Add other news."""
        for place, kind in other.added.items():
            self.added[place] = kinds.merged(self.added.get(place, kinds.WAITS), kind)
        for place, name in other.widened.items():
            self.widened[place] = wider(self.widened.get(place, name), name)
        self.optional |= other.optional
        self.has_too_many |= other.has_too_many or len(self.added) > MOST_KEYS
        if self.has_too_many:
            self.added.clear()

    def to_json(self) -> str:
        """The news as JSON; empty if there are none."""
        if not self:
            return ""
        document = {
            "added": [[place, kind] for place, kind in sorted(self.added.items(), key=itemgetter(0))],
            "widened": sorted(self.widened.items()),
            "optional": sorted(self.optional),
            "has_too_many": self.has_too_many,
        }
        return json.dumps(document, separators=(",", ":"), sort_keys=True)


def news_from(text: str) -> News:
    """The inverse of `News.to_json`, for a text from a less trusted process; raises ValueError."""
    if len(text) > LARGEST_NEWS_BYTES:
        raise ValueError("the news of a task are too long")
    try:
        match json.loads(text):
            case {
                "added": list(added),
                "widened": list(widened),
                "optional": list(optional),
                "has_too_many": bool(has_too_many),
            } if len(added) <= MOST_KEYS:
                return News(
                    {_checked(place): kinds.check_kind(kind) for place, kind in added},
                    {_checked(place): _checked_type(name) for place, name in widened},
                    set(map(_checked, optional)),
                    has_too_many,
                )
    except (TypeError, RecursionError) as error:
        raise ValueError("not the news of a task") from error
    raise ValueError("not the news of a task")


def wider(one: str, other: str) -> str:
    """The wider one of two types of one column."""
    some, others = kinds.decimal_of(one), kinds.decimal_of(other)
    return max((some, one), (others, other))[1] if some and others else max(one, other)


@dataclass(frozen=True, slots=True)
class _Known:
    """The fields of a struct by name, those that can have news, and those that a document must have."""

    fields: Mapping[str, Field]
    visited: tuple[Field, ...]
    required: tuple[Field, ...]


@dataclass(slots=True)
class NewsFinder:
    """Finds the news of documents, one by one; `struct` are the columns that come from documents."""

    struct: Struct
    plan: NewsPlan
    _known: dict[int, _Known] = field(default_factory=dict, init=False)

    def of(self, text: str) -> News:
        """The news of one JSON object that the decoder can open; the first of equal keys counts."""
        found = News()
        self._add_object(found, text, self.struct, ())
        return found

    def _add_object(self, found: News, text: str, struct: Struct, path: kinds.Place) -> None:
        known = self._known.get(id(struct))  # part of `self.struct`, so no other object can get its id
        if known is None:
            known = self._known[id(struct)] = self._fields_of(struct)
        present = dict(reversed(members(text)))
        for name in present.keys() - known.fields.keys():
            place, kind = (*path, name[: kinds.LONGEST_NAME]), kinds.kind_of(present[name])
            if kind != kinds.WAITS:
                found.added[place] = kinds.merged(found.added.get(place, kinds.WAITS), kind)
        for one in known.visited:
            if one.name in present:
                self._add_value(found, present[one.name], one.type, (*path, one.name))
        found.optional.update((*path, one.name) for one in known.required if present.get(one.name) in (None, "null"))

    def _fields_of(self, struct: Struct) -> _Known:
        def has_news(one: Field) -> bool:
            return not isinstance(one.type, Primitive) or (plan.widens and one.field_id not in plan.kept_types)

        def may_lack(one: Field) -> bool:
            return plan.widens and one.required and one.field_id not in plan.kept_required

        plan, fields = self.plan, struct.fields
        names = {one.name: one for one in fields}
        return _Known(names, tuple(filter(has_news, fields)), tuple(filter(may_lack, fields)))

    def _add_value(self, found: News, value: str, kind: Type, place: kinds.Place) -> None:
        match kind:
            case Struct() if value.startswith("{"):
                self._add_object(found, value, kind, place)
            case ListOf(element) if value.startswith("["):
                for item in items(value):
                    self._add_value(found, item, element.type, (*place, "element"))
            case MapOf(_, item) if value.startswith("{"):
                for _, entry in members(value):
                    self._add_value(found, entry, item.type, (*place, "value"))
            case Primitive() if self.plan.widens:
                name = _wider_type(value, kind)
                if name:
                    found.widened[place] = wider(found.widened.get(place, name), name)


def _wider_type(value: str, kind: Primitive) -> str:
    """The type that holds a number that its column is too narrow for; empty if the column holds it, or none does."""
    if kind.name == "int" and _WHOLE.fullmatch(value):
        number = int(value)
        return kinds.LONG if not -(2**31) <= number < 2**31 and -(2**63) <= number < 2**63 else ""
    if kind.name == "float" and _NUMBER.fullmatch(value):
        return kinds.DOUBLE if _INFINITE_FLOAT <= abs(float(value)) < float("inf") else ""
    if kind.decimal and _PLAIN.fullmatch(value):
        precision, scale = kind.decimal
        digits, _, fraction = value.removeprefix("-").partition(".")
        whole = len(digits.lstrip("0")) or 1
        fits = precision < whole + scale <= MOST_DIGITS and len(fraction) <= scale
        return f"decimal({whole + scale}, {scale})" if fits else ""
    return ""


def _checked(place: Any) -> kinds.Place:
    if not isinstance(place, list) or not 0 < len(place) <= _DEEPEST_PLACE:
        raise ValueError("not the place of a key")
    if not all(isinstance(name, str) for name in place):
        raise ValueError("a name is not a text")
    "".join(place).encode()  # half a character is an error
    return tuple(place)


def _checked_type(name: Any) -> str:
    if name in (kinds.LONG, kinds.DOUBLE) or kinds.decimal_of(name):
        return str(name)
    raise ValueError("a column cannot become of this type")


def all_news(texts: Iterable[str]) -> News:
    """The merged news of all tasks; raises ValueError."""
    found = News()
    for text in texts:
        if text:
            found.include(news_from(text))
    return found


def widest(struct: Struct, plan: NewsPlan) -> Struct:
    """The columns after all changes that are allowed; a document that does not fit them is malformed for good."""
    return relaxed(struct, plan, lambda kind, _: _widest(kind))


def relaxed(struct: Struct, plan: NewsPlan, widen: Widen, place: kinds.Place = ()) -> Struct:
    """The columns with wider types, and optional, but not those that the plan keeps."""
    fields = []
    for one in struct.fields:
        required = one.required and one.field_id in plan.kept_required
        keeps_type = one.field_id in plan.kept_types
        kind = one.type if keeps_type else _type(one.type, plan, widen, (*place, one.name))
        fields.append(replace(one, required=required, type=kind))
    return Struct(tuple(fields))


def _type(kind: Type, plan: NewsPlan, widen: Widen, place: kinds.Place) -> Type:
    match kind:
        case Struct():
            return relaxed(kind, plan, widen, place)
        case ListOf(element):
            return ListOf(replace(element, type=_type(element.type, plan, widen, (*place, "element"))))
        case MapOf(key, value):
            return MapOf(key, replace(value, type=_type(value.type, plan, widen, (*place, "value"))))
        case Primitive():
            return widen(kind, place)


def _widest(kind: Primitive) -> Primitive:
    return Primitive(f"decimal({MOST_DIGITS}, {kind.decimal[1]})" if kind.decimal else _WIDE.get(kind.name, kind.name))
