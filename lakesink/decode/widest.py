"""The types that columns have after changes that a batch may bring. Pure."""

from collections.abc import Callable
from dataclasses import replace

from lakesink.decode.value_kinds import DOUBLE, FLOAT, INT, LONG, MOST_DIGITS, Place
from lakesink.rows.plan import NewsPlan
from lakesink.rows.schema import ListOf, MapOf, Primitive, Struct, Type

_WIDE = {INT: LONG, FLOAT: DOUBLE}
Widen = Callable[[Primitive, Place], Primitive]


def widest(struct: Struct, plan: NewsPlan) -> Struct:
    """The columns after all changes that are allowed; a document that does not fit them is malformed for good."""
    return relaxed(struct, plan, lambda kind, _: _widest(kind))


def relaxed(struct: Struct, plan: NewsPlan, widen: Widen, place: Place = ()) -> Struct:
    """The columns with wider types, and optional, but not those that the plan keeps."""
    fields = []
    for one in struct.fields:
        required = one.required and one.field_id in plan.kept_required
        keeps_type = one.field_id in plan.kept_types
        kind = one.type if keeps_type else _type(one.type, plan, widen, (*place, one.name))
        fields.append(replace(one, required=required, type=kind))
    return Struct(tuple(fields))


def _type(kind: Type, plan: NewsPlan, widen: Widen, place: Place) -> Type:
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
