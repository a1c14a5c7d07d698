"""Compares a writer's schema with a table's columns: fields without a column, and columns of narrower types. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakesink.decode.avro import schema as avro
from lakesink.decode.misfits import ENTRY, ITEM, Path
from lakesink.decode.news import MOST_KEYS, News, wider
from lakesink.decode.value_kinds import (
    DEEP,
    DEEPEST,
    DOUBLE,
    FLOAT,
    INT,
    ITSELF,
    LIST,
    LONG,
    LONGEST_NAME,
    MAP,
    NONE,
    STRUCT,
    TIME,
    WAITS,
    Kind,
    Place,
    decimal_kind,
    decimal_of,
    merged,
    says_nothing,
    struct_of,
    without_type,
)
from lakesink.rows.plan import NewsPlan
from lakesink.rows.schema import Field, ListOf, MapOf, Primitive, Struct, Type

_LOGICAL: Mapping[str, Kind] = {
    "date": "date",
    "uuid": "uuid",
    **{f"time-{unit}": TIME for unit in ("millis", "micros")},
    **{f"timestamp-{unit}": "timestamptz" for unit in ("millis", "micros", "nanos")},
    **{f"local-timestamp-{unit}": "timestamp" for unit in ("millis", "micros", "nanos")},
    f"{avro.ANY_ZONE}timestamp-millis": "timestamp",  # Debezium writes moments with a zone as texts
    **{f"{avro.TEXT}{kind}": kind for kind in ("date", "timestamp", "timestamptz")},
    **dict.fromkeys((f"{avro.TEXT}time", "time-nanos"), TIME),
}
_PLAIN: Mapping[str, Kind] = {"null": WAITS, "bytes": "binary", "fixed": "binary"}
"""A fixed is binary: a hostile schema could give it any length, which each NULL of the column would take."""


def news_of(schema: avro.WriterSchema, struct: Struct, plan: NewsPlan) -> News:
    """The news that every message of this schema has."""
    comparison = _Comparison(schema, plan)
    comparison.compare(schema.root, struct, ())
    found = News()
    found.include(comparison.news)  # a hostile schema has too many fields
    return found


def typed_fields(fields: Mapping[Place, Kind], seen: Mapping[Place, Kind]) -> dict[Place, Kind]:
    """New fields without the parts that have no type, unless a message has a value there; `seen` are its JSON kinds."""
    found = {place: _typed(kind, seen.get(place, WAITS)) for place, kind in fields.items()}
    return {place: kind for place, kind in found.items() if not says_nothing(kind)}


def _typed(kind: Kind, seen: Kind) -> Kind:
    if not list(without_type((), kind)):
        return kind
    if isinstance(kind, str) or seen == NONE:
        return WAITS if seen == WAITS else kind
    [(form, inner)] = kind.items()
    if form == STRUCT:
        parts = {} if isinstance(seen, str) else seen.get(STRUCT, {})
        return {STRUCT: {name: _typed(one, parts.get(name, WAITS)) for name, one in inner.items()}}
    if isinstance(seen, str):
        return {form: _typed(inner, WAITS)}
    some: Kind = WAITS
    for value in (seen[LIST],) if LIST in seen else seen[STRUCT].values():
        some = value if some in (WAITS, value) else NONE
    return {form: _typed(inner, some)}


def unknown_fields(schema: avro.WriterSchema, struct: Struct) -> list[Path]:
    """Fields of the writer's schema without a column; not those that are always null."""
    comparison = _Comparison(schema, NewsPlan(widens=False), ITEM, ENTRY)
    comparison.compare(schema.root, struct, ())
    return [path for path, kind in comparison.news.added.items() if kind != WAITS]


@dataclass(slots=True)
class _Comparison:
    """Compares one schema. Types are looked at `MOST_KEYS` times, as references can repeat them without end."""

    schema: avro.WriterSchema
    plan: NewsPlan
    element: str = "element"
    value: str = "value"
    news: News = field(default_factory=News)
    _left: int = field(default=MOST_KEYS, init=False)
    _within: list[avro.Record] = field(default_factory=list, init=False)

    def compare(self, kind: avro.Kind, wanted: Type, place: Place) -> None:
        """Add the news of values of an Avro type in a place of the table."""
        match kind, wanted:
            case avro.Reference(name), _:
                self.compare(self.schema.named[name], wanted, place)
            case avro.Union(branches), _:
                for branch in branches:
                    self.compare(branch, wanted, place)
            case avro.Record() as record, Struct():
                self._within.append(record)
                self._compare_fields(record.fields, wanted, place)
                self._within.pop()
            case avro.ArrayOf(items), ListOf(element):
                self._compare_value(items, element, (*place, self.element))
            case avro.MapTo(values), MapOf(_, value):
                self._compare_value(values, value, (*place, self.value))

    def _compare_fields(self, fields: tuple[tuple[str, avro.Kind], ...], struct: Struct, place: Place) -> None:
        columns = {one.name: one for one in struct.fields}
        for name, kind in fields:
            where = (*place, name[:LONGEST_NAME])
            if name in columns:
                self._compare_value(kind, columns[name], where)
            else:
                self.news.added[where] = merged(self.news.added.get(where, WAITS), self._kind_of(kind, DEEPEST))

    def _compare_value(self, kind: avro.Kind, column: Field, place: Place) -> None:
        if not isinstance(column.type, Primitive):
            self.compare(kind, column.type, place)
        elif self.plan.widens and column.field_id not in self.plan.kept_types:
            name = _wider_type(self._kind_of(kind, DEEPEST), column.type)
            if name:
                self.news.widened[place] = wider(self.news.widened.get(place, name), name)

    def _kind_of(self, kind: avro.Kind, levels: int) -> Kind:  # noqa: PLR0911 - one for each type
        self._left -= 1
        if self._left < 0:
            return NONE
        match kind:
            case avro.Reference(name):
                return self._kind_of(self.schema.named[name], levels)
            case avro.Union(branches):
                found: Kind = WAITS
                for branch in branches:
                    found = merged(found, self._kind_of(branch, levels))
                return found
            case avro.Scalar():
                if kind.logical == "decimal":
                    return decimal_kind(kind.precision, kind.scale)
                return _LOGICAL.get(kind.logical or "") or _PLAIN.get(kind.name, kind.name)
            case avro.Enumeration():
                return "string"
        if any(kind is record for record in self._within):
            return ITSELF
        return self._kind_of_nested(kind, levels - 1) if levels else DEEP

    def _kind_of_nested(self, kind: avro.Record | avro.ArrayOf | avro.MapTo, levels: int) -> Kind:
        match kind:
            case avro.Record(fields):
                self._within.append(kind)
                found = struct_of((name[:LONGEST_NAME], self._kind_of(inner, levels)) for name, inner in fields)
                self._within.pop()
                return found
            case avro.ArrayOf(items):
                return {LIST: self._kind_of(items, levels)}
            case avro.MapTo(values):
                return {MAP: self._kind_of(values, levels)}


def _wider_type(kind: Kind, column: Primitive) -> str:
    """The type that holds all values of a kind and of a column; empty if it needs none, or there is none."""
    if (column.name, kind) in ((INT, LONG), (FLOAT, DOUBLE)):
        return str(kind)
    found = decimal_of(kind)
    if not column.decimal or not found or found[1] > column.decimal[1]:
        return ""
    scale = column.decimal[1]
    digits = found[0] - found[1] + scale
    name = decimal_kind(digits, scale)
    return name if digits > column.decimal[0] and name != NONE else ""
