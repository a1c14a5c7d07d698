"""Compares a writer's schema with a table's columns: fields without a column, and columns of narrower types. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakesink.decode import value_kinds as kinds
from lakesink.decode.avro import schema as avro
from lakesink.decode.misfits import ENTRY, ITEM, Path
from lakesink.decode.news import MOST_KEYS, News, wider
from lakesink.rows.plan import NewsPlan
from lakesink.rows.schema import Field, ListOf, MapOf, Primitive, Struct, Type

_LOGICAL: Mapping[str, kinds.Kind] = {
    "date": "date",
    "uuid": "uuid",
    **{f"time-{unit}": kinds.TIME for unit in ("millis", "micros")},
    **{f"timestamp-{unit}": "timestamptz" for unit in ("millis", "micros", "nanos")},
    **{f"local-timestamp-{unit}": "timestamp" for unit in ("millis", "micros", "nanos")},
    f"{avro.ANY_ZONE}timestamp-millis": "timestamp",  # Debezium writes moments with a zone as texts
    **{f"{avro.TEXT}{kind}": kind for kind in ("date", "timestamp", "timestamptz")},
    **dict.fromkeys((f"{avro.TEXT}time", "time-nanos"), kinds.TIME),
}
_PLAIN: Mapping[str, kinds.Kind] = {"null": kinds.WAITS, "bytes": "binary", "fixed": "binary"}
"""A fixed is binary: a hostile schema could give it any length, which each NULL of the column would take."""


def news_of(schema: avro.WriterSchema, struct: Struct, plan: NewsPlan) -> News:
    """The news that every message of this schema has."""
    comparison = _Comparison(schema, plan)
    comparison.compare(schema.root, struct, ())
    found = News()
    found.include(comparison.news)  # a hostile schema has too many fields
    return found


def typed_fields(
    fields: Mapping[kinds.Place, kinds.Kind], seen: Mapping[kinds.Place, kinds.Kind]
) -> dict[kinds.Place, kinds.Kind]:
    """New fields without the parts that have no type, unless a message has a value there; `seen` are its JSON kinds."""
    found = {place: _typed(kind, seen.get(place, kinds.WAITS)) for place, kind in fields.items()}
    return {place: kind for place, kind in found.items() if not kinds.says_nothing(kind)}


def _typed(kind: kinds.Kind, seen: kinds.Kind) -> kinds.Kind:
    if not list(kinds.without_type((), kind)):
        return kind
    if isinstance(kind, str) or seen == kinds.NONE:
        return kinds.WAITS if seen == kinds.WAITS else kind
    [(form, inner)] = kind.items()
    if form == kinds.STRUCT:
        parts = {} if isinstance(seen, str) else seen.get(kinds.STRUCT, {})
        return {kinds.STRUCT: {name: _typed(one, parts.get(name, kinds.WAITS)) for name, one in inner.items()}}
    if isinstance(seen, str):
        return {form: _typed(inner, kinds.WAITS)}
    some: kinds.Kind = kinds.WAITS
    for value in (seen[kinds.LIST],) if kinds.LIST in seen else seen[kinds.STRUCT].values():
        some = value if some in (kinds.WAITS, value) else kinds.NONE
    return {form: _typed(inner, some)}


def unknown_fields(schema: avro.WriterSchema, struct: Struct) -> list[Path]:
    """Fields of the writer's schema without a column; not those that are always null."""
    comparison = _Comparison(schema, NewsPlan(widens=False), ITEM, ENTRY)
    comparison.compare(schema.root, struct, ())
    return [path for path, kind in comparison.news.added.items() if kind != kinds.WAITS]


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

    def compare(self, kind: avro.Kind, wanted: Type, place: kinds.Place) -> None:
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

    def _compare_fields(self, fields: tuple[tuple[str, avro.Kind], ...], struct: Struct, place: kinds.Place) -> None:
        columns = {one.name: one for one in struct.fields}
        for name, kind in fields:
            where = (*place, name[: kinds.LONGEST_NAME])
            if name in columns:
                self._compare_value(kind, columns[name], where)
            else:
                self.news.added[where] = kinds.merged(
                    self.news.added.get(where, kinds.WAITS), self._kind_of(kind, kinds.DEEPEST)
                )

    def _compare_value(self, kind: avro.Kind, column: Field, place: kinds.Place) -> None:
        if not isinstance(column.type, Primitive):
            self.compare(kind, column.type, place)
        elif self.plan.widens and column.field_id not in self.plan.kept_types:
            name = _wider_type(self._kind_of(kind, kinds.DEEPEST), column.type)
            if name:
                self.news.widened[place] = wider(self.news.widened.get(place, name), name)

    def _kind_of(self, kind: avro.Kind, levels: int) -> kinds.Kind:  # noqa: PLR0911 - one for each type
        self._left -= 1
        if self._left < 0:
            return kinds.NONE
        match kind:
            case avro.Reference(name):
                return self._kind_of(self.schema.named[name], levels)
            case avro.Union(branches):
                found: kinds.Kind = kinds.WAITS
                for branch in branches:
                    found = kinds.merged(found, self._kind_of(branch, levels))
                return found
            case avro.Scalar():
                if kind.logical == "decimal":
                    return kinds.decimal_kind(kind.precision, kind.scale)
                return _LOGICAL.get(kind.logical or "") or _PLAIN.get(kind.name, kind.name)
            case avro.Enumeration():
                return "string"
        if any(kind is record for record in self._within):
            return kinds.ITSELF
        return self._kind_of_nested(kind, levels - 1) if levels else kinds.DEEP

    def _kind_of_nested(self, kind: avro.Record | avro.ArrayOf | avro.MapTo, levels: int) -> kinds.Kind:
        match kind:
            case avro.Record(fields):
                self._within.append(kind)
                found = kinds.struct_of(
                    (name[: kinds.LONGEST_NAME], self._kind_of(inner, levels)) for name, inner in fields
                )
                self._within.pop()
                return found
            case avro.ArrayOf(items):
                return {kinds.LIST: self._kind_of(items, levels)}
            case avro.MapTo(values):
                return {kinds.MAP: self._kind_of(values, levels)}


def _wider_type(kind: kinds.Kind, column: Primitive) -> str:
    """The type that holds all values of a kind and of a column; empty if it needs none, or there is none."""
    if (column.name, kind) in ((kinds.INT, kinds.LONG), (kinds.FLOAT, kinds.DOUBLE)):
        return str(kind)
    found = kinds.decimal_of(kind)
    if not column.decimal or not found or found[1] > column.decimal[1]:
        return ""
    scale = column.decimal[1]
    digits = found[0] - found[1] + scale
    name = kinds.decimal_kind(digits, scale)
    return name if digits > column.decimal[0] and name != kinds.NONE else ""
