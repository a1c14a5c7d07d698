"""The types that columns have after all changes that a batch may bring. Pure."""

from dataclasses import replace

from lakesink.decode.kinds import DOUBLE, FLOAT, INT, LONG, MOST_DIGITS
from lakesink.writer.plan import NewsPlan
from lakesink.writer.schema import Field, ListOf, MapOf, Primitive, Struct, Type

_WIDE = {INT: LONG, FLOAT: DOUBLE}


def widest(struct: Struct, plan: NewsPlan) -> Struct:
    """The columns after all changes that are allowed; a document that does not fit them is malformed for good."""
    return Struct(tuple(_field(one, plan) for one in struct.fields))


def _field(one: Field, plan: NewsPlan) -> Field:
    required = one.required and one.field_id in plan.kept_required
    return replace(one, required=required, type=_type_of(one, plan))


def _type_of(one: Field, plan: NewsPlan) -> Type:
    return one.type if one.field_id in plan.kept_types else _widest(one.type, plan)


def _widest(kind: Type, plan: NewsPlan) -> Type:
    match kind:
        case Struct():
            return widest(kind, plan)
        case ListOf(element):
            return ListOf(replace(element, type=_widest(element.type, plan)))
        case MapOf(key, value):
            return MapOf(key, replace(value, type=_widest(value.type, plan)))
        case Primitive(name):
            scale = kind.decimal[1] if kind.decimal else 0
            return Primitive(f"decimal({MOST_DIGITS}, {scale})" if kind.decimal else _WIDE.get(name, name))
