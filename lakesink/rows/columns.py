"""Converts rows to the table's columns: matches names, casts without loss, and checks for NULLs.

The conversion between two schemas is computed once and applied to every batch. The driver computes it before the job,
so no task starts if the schemas do not match.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.rows import nested
from lakesink.rows.casts import Cast, lossless_cast
from lakesink.rows.changed_rows import RowBatch
from lakesink.rows.letters import Fault
from lakesink.rows.plan import WritePlan
from lakesink.rows.schema import Field, ListOf, MapOf, Primitive, Struct, Type, arrow_type, parse_schema, sql_type_of
from lakesink.rows.task_errors import how_to_cast, schema_mismatch, shown
from lakesink.rows.unfit import nulls_in
from lakesink_catalog.spark_types import sql_type
from lakesink_catalog.words import counted
from lakesink_protocol.errors import WriteError
from lakesink_protocol.suggest import did_you_mean

Path = tuple[str, ...]
Source = Callable[[Sequence[pa.Array], int], pa.Array]


@dataclass(frozen=True, slots=True)
class NameRule:
    """How columns are matched by name; `ignore_unknown` leaves out columns that the table lacks."""

    case_sensitive: bool
    ignore_unknown: bool = False

    def key(self, name: str) -> str:
        """What names that mean the same column have in common."""
        return name if self.case_sensitive else name.lower()


@dataclass(frozen=True, slots=True)
class Alignment:
    """The conversion of batches with one schema to the table's; `required` columns of the batches allow no NULL."""

    incoming: pa.Schema
    convert: Cast
    required: tuple[int, ...] = ()

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch's rows as the table's columns; shares memory wherever types are equal."""
        return pa.RecordBatch.from_struct_array(self.convert(batch.to_struct_array()))

    def unfit(self, batch: RowBatch) -> dict[int, Fault]:
        """The rows that have NULL where none is allowed."""
        return dict(nulls_in(batch.rows, [self.incoming.names[at] for at in self.required]))

    def fitted(self, batch: RowBatch, _: int = 0) -> pa.RecordBatch:
        """The same as `apply`, of rows on their way; raises WriteError if one does not fit."""
        return self.apply(batch.rows)


def align(incoming: pa.Schema, schema: Struct, rule: NameRule) -> Alignment:
    """The conversion from an incoming schema to the table's; the error for an unknown column names the nearest one."""
    positions = _match(list(incoming), schema, (), rule=rule)
    required = tuple(at for at, one in zip(positions, schema.fields, strict=True) if one.required and at is not None)
    return Alignment(incoming, _convert_struct(list(incoming), schema, (), rule=rule), required)


def alignment_of(incoming: pa.Schema, schema: Struct, plan: WritePlan) -> Alignment:
    """The conversion of rows of one schema to the table's columns."""
    return align(incoming, schema, NameRule(plan.case_sensitive, plan.ignore_unknown))


def missing_columns(incoming: pa.Schema, plan: WritePlan) -> tuple[str, ...]:
    """Optional columns that rows of this schema lack, which become NULL; empty where documents are decoded."""
    if plan.decode:
        return ()
    schema = parse_schema(plan.schema_json)
    paths = _missing_paths(list(incoming), schema, (), rule=NameRule(plan.case_sensitive, plan.ignore_unknown))
    return tuple(map(_dotted, paths))


def _missing_paths(incoming: Sequence[pa.Field], schema: Struct, path: Path, *, rule: NameRule) -> Iterator[Path]:
    for field, position in zip(schema.fields, _match(incoming, schema, path, rule=rule), strict=True):
        below = (*path, field.name)
        if position is None:
            yield below
        elif isinstance(field.type, Struct) and pa.types.is_struct(incoming[position].type):
            yield from _missing_paths(list(incoming[position].type), field.type, below, rule=rule)


def unknown_columns(incoming: pa.Schema, plan: WritePlan) -> tuple[str, ...]:
    """Columns of rows of this schema that the table lacks; empty unless the plan leaves them out."""
    if plan.decode or not plan.ignore_unknown:
        return ()
    paths = _unknown_paths(list(incoming), parse_schema(plan.schema_json), (), rule=NameRule(plan.case_sensitive))
    return tuple(map(_dotted, paths))


def _unknown_paths(incoming: Sequence[pa.Field], schema: Struct, path: Path, *, rule: NameRule) -> Iterator[Path]:
    known = {rule.key(one.name): one for one in schema.fields}
    for new in incoming:
        present = known.get(rule.key(new.name))
        if present is None:
            yield (*path, new.name)
        else:
            yield from _unknown_within(new.type, present.type, (*path, new.name), rule=rule)


def _unknown_within(incoming: pa.DataType, present: Type, path: Path, *, rule: NameRule) -> Iterator[Path]:
    match present:
        case Struct() if pa.types.is_struct(incoming):
            yield from _unknown_paths(list(incoming), present, path, rule=rule)
        case ListOf(element) if is_list(incoming):
            yield from _unknown_within(incoming.value_type, element.type, (*path, element.name), rule=rule)
        case MapOf(key, value) if pa.types.is_map(incoming):
            yield from _unknown_within(incoming.key_type, key.type, (*path, key.name), rule=rule)
            yield from _unknown_within(incoming.item_type, value.type, (*path, value.name), rule=rule)


def _match(incoming: Sequence[pa.Field], schema: Struct, path: Path, *, rule: NameRule) -> list[int | None]:
    """The position of every target field among the incoming fields, by Spark's rule for names."""
    known = _by_name([field.name for field in schema.fields], path, "the table", rule=rule)
    found = _by_name([field.name for field in incoming], path, "the query", rule=rule)
    for name, position in found.items():
        if name not in known and not rule.ignore_unknown:
            field = incoming[position]
            kind, hint = shown(sql_type(field.type)), did_you_mean(field.name, [one.name for one in schema.fields])
            raise schema_mismatch(
                f"Column {_named((*path, field.name))} ({kind}) of the query is not in the table.",
                action=f"{hint} Rename or drop it in the query, or add the column to the table.".lstrip(),
            )
    return [found.get(name) for name in known]


def _by_name(names: Sequence[str], path: Path, owner: str, *, rule: NameRule) -> dict[str, int]:
    positions: dict[str, int] = {}
    for position, name in enumerate(names):
        key = rule.key(name)
        if key in positions:
            raise schema_mismatch(
                f"Columns {_named((*path, names[positions[key]]))} and {_named((*path, name))} of {owner} have "
                "the same name for Spark.",
                action="Rename one of them. If only their case differs, lakesink.stream and lakesink.append can keep"
                ' both: set spark.sql.caseSensitive to true. format("lakesink") ignores the case of names.',
            )
        positions[key] = position
    return positions


def _convert(incoming: pa.DataType, field: Field, path: Path, *, rule: NameRule) -> Cast:
    if isinstance(incoming, pa.BaseExtensionType):
        stored = _convert(incoming.storage_type, field, path, rule=rule)
        return lambda array: stored(array.storage)
    below, target = (*path, field.name), arrow_type(field.type)
    match field.type:
        case Primitive() as primitive:
            return _convert_primitive(incoming, primitive, below)
        case Struct() as struct if pa.types.is_struct(incoming):
            return _convert_struct(list(incoming), struct, below, rule=rule)
        case ListOf(element) if is_list(incoming):
            convert = _convert(incoming.value_type, element, below, rule=rule)
            checked = _with_null_check(convert, element, below)
            return lambda array: nested.rebuild_list(array, target, checked(array.flatten()))
        case MapOf(key, value) if pa.types.is_map(incoming):
            convert_key = _convert(incoming.key_type, key, below, rule=rule)
            convert_value = _convert(incoming.item_type, value, below, rule=rule)
            parts = _with_null_check(convert_key, key, below), _with_null_check(convert_value, value, below)
            return _convert_map(incoming, field.type, parts, below)
        case _:
            raise _lossy_cast(incoming, field.type, below)


def _convert_map(incoming: pa.MapType, target: MapOf, parts: tuple[Cast, Cast], path: Path) -> Cast:
    """Check for duplicate keys if the key type changes: for example, two spellings of a UUID become one key."""
    arrow, (convert_keys, convert_values) = arrow_type(target), parts

    def convert(array: pa.Array) -> pa.Array:
        keys, values = nested.entries(array)
        return nested.rebuild_map(array, arrow, convert_keys(keys), convert_values(values))

    def checked(array: pa.Array) -> pa.Array:
        maps = convert(array)
        if len(nested.with_duplicate_keys(pc.list_parent_indices(nested.as_list(maps)), maps.keys)):
            arrives, wanted = sql_type(incoming.key_type), sql_type_of(target.key.type)
            raise WriteError.of(
                "LOSSY_VALUE.map_keys", column=_named(path), arrives=shown(arrives), wanted=shown(wanted)
            )
        return maps

    return convert if incoming.key_type == arrow.key_type else checked


def _convert_primitive(incoming: pa.DataType, target: Primitive, path: Path) -> Cast:
    cast = lossless_cast(incoming, target)
    if cast is None:
        raise _lossy_cast(incoming, target, path)

    def convert(array: pa.Array) -> pa.Array:
        try:
            return cast(array)
        except pa.ArrowInvalid:
            arrives, wanted = sql_type(incoming), sql_type_of(target)
            raise WriteError.of(
                "LOSSY_VALUE",
                column=_named(path),
                arrives=shown(arrives),
                wanted=shown(wanted),
                cast=how_to_cast(path, arrives, wanted),
            ) from None

    return convert


def _source(incoming: Sequence[pa.Field], position: int | None, field: Field, path: Path, *, rule: NameRule) -> Source:
    """A column made of those of the rows: one of them converted, or NULLs."""
    if position is not None:
        convert = _convert(incoming[position].type, field, path, rule=rule)
        return lambda arrays, _: convert(arrays[position])
    if field.required:
        kind = shown(sql_type_of(field.type))
        raise schema_mismatch(
            f"Required column {_named((*path, field.name))} ({kind}) is missing in the query.",
            action="Select it in the query, or make the column optional in the table.",
        )
    absent = arrow_type(field.type)
    return lambda _, rows: nested.all_null(rows, absent)


def _convert_struct(incoming: Sequence[pa.Field], struct: Struct, path: Path, *, rule: NameRule) -> Cast:
    positions = _match(incoming, struct, path, rule=rule)
    pairs = zip(struct.fields, positions, strict=True)
    sources = [_source(incoming, position, field, path, rule=rule) for field, position in pairs]
    fields = list(arrow_type(struct))

    def convert(array: pa.Array) -> pa.Array:
        children = array.flatten()
        converted = [
            _without_hidden_nulls(source(children, len(array)), field, array, path)
            for field, source in zip(struct.fields, sources, strict=True)
        ]
        return nested.rebuild_struct(array, converted, fields)

    return convert


def _without_hidden_nulls(child: pa.Array, field: Field, parent: pa.Array, path: Path) -> pa.Array:
    """A required child without NULLs; ignores NULLs where the parent is NULL."""
    if not field.required or not child.null_count:
        return child
    visible = child.null_count - parent.null_count  # a flattened child is NULL wherever its parent is
    if visible:
        raise _nulls_in((*path, field.name), visible)
    return nested.without_validity(child)


def _with_null_check(convert: Cast, field: Field, path: Path) -> Cast:
    def checked(array: pa.Array) -> pa.Array:
        converted = convert(array)
        if field.required and converted.null_count:
            raise _nulls_in((*path, field.name), converted.null_count)
        return converted

    return checked


def _nulls_in(path: Path, count: int) -> WriteError:
    return WriteError.of("NULL_IN_REQUIRED", column=shown(_dotted(path)), nulls=counted(count, "NULL"))


def is_list(incoming: pa.DataType) -> bool:
    """True for every kind of list that Arrow has."""
    types = pa.types
    return bool(types.is_list(incoming) or types.is_large_list(incoming) or types.is_fixed_size_list(incoming))


def _lossy_cast(incoming: pa.DataType, target: Primitive | Struct | ListOf | MapOf, path: Path) -> WriteError:
    arrives, wanted = sql_type(incoming), sql_type_of(target)
    return schema_mismatch(
        f"Column {_named(path)} is {shown(arrives)} in the query and {shown(wanted)} in the table: a lossy cast.",
        action=how_to_cast(path, arrives, wanted),
    )


def _dotted(path: Path) -> str:
    return ".".join(path)


def _named(path: Path) -> str:
    return repr(shown(_dotted(path)))
