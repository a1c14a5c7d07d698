"""Decides which columns of a table identify the rows that a stream changes, and which order the changes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg import types
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from lakesink.rows.columns import NameRule
from lakesink.rows.plan import DELETED, ChangesPlan
from lakesink.rows.task_errors import shown
from lakesink.settings.conditions import condition_of
from lakesink.settings.ddl import columns_of
from lakesink.settings.option_types import Deletes
from lakesink.settings.options import option_invalid
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.schema_advice import spark_type
from lakesink_catalog.spark_types import sql_name
from lakesink_catalog.tables.arrow_schema import iceberg_schema
from lakesink_catalog.words import cut
from lakesink_protocol.errors import CatalogError, SettingsError
from lakesink_protocol.suggest import did_you_mean

_NO_KEYS = (types.FloatType, types.DoubleType)
_SORTABLE = (
    types.IntegerType,
    types.LongType,
    types.DecimalType,
    types.DateType,
    types.TimestampType,
    types.TimestamptzType,
    types.StringType,
)
_SORTABLE_CASTS: dict[type[types.IcebergType], str] = {
    types.BooleanType: "CAST({} AS INT)",
    types.FloatType: "CAST({} AS DECIMAL(38, 9))",
    types.DoubleType: "CAST({} AS DECIMAL(38, 9))",
    types.BinaryType: "hex({})",
    types.FixedType: "hex({})",
}


def changes_plan(
    schema: Schema, table: str, settings: Settings, *, case_sensitive: bool, are_replayed: bool = False
) -> ChangesPlan:
    """How rows change others of a table with this schema.

    Raises:
        SettingsError: Keys or sequence columns are unsuitable, or the table has other identifier fields than the keys.
    """
    columns = _Columns(schema, table, NameRule(case_sensitive))
    soft = settings.deletes is Deletes.SOFT
    if soft:
        columns.check_deleted()
    keys = columns.keys(settings.keys)
    return ChangesPlan(
        settings.mode,
        keys,
        columns.sequence(settings.sequence_by, keys),
        soft_deletes=soft,
        except_columns=settings.except_column_list,
        deletes=condition_of(settings.apply_as_deletes) if settings.decode and settings.apply_as_deletes else None,
        has_changelog=settings.changelog_table is not None,
        are_replayed=are_replayed,
    )


def check_left_out(columns: Sequence[str], settings: Settings, *, case_sensitive: bool) -> None:
    """Check that the rows have the columns that are not stored: a wrong name would store one."""
    for name in settings.except_column_list:
        found_column(name, columns, NameRule(case_sensitive), "except_column_list")


def check_no_equality_deletes(table: Table, branch: str) -> None:
    """Refuse a branch whose head counts equality deletes. Without the count, locating refuses the deletes."""
    head = table.snapshot_by_name(branch)
    summary = {} if head is None or head.summary is None else head.summary.additional_properties
    if summary.get("total-equality-deletes", "0") != "0":
        raise CatalogError.of("EQUALITY_DELETES")


def created_schema(stored: pa.Schema, settings: Settings) -> Schema:
    """The schema of a table that is created for these rows; that of documents has the columns that an option names.

    It may have none: the first documents then bring the columns, as later ones bring others.
    """
    columns = stored
    if settings.decode:
        columns = columns_of(settings.schema) if settings.schema else pa.schema([])
    if settings.deletes is Deletes.SOFT and DELETED not in columns.names:
        columns = columns.append(pa.field(DELETED, pa.bool_()))
    if settings.decode and not columns.names:
        return Schema()
    return iceberg_schema(columns, keeps_required=settings.decode is not None)


def check_created_keys(schema: Schema, table: str, settings: Settings) -> None:
    """Check that a table with these columns can be created with the keys as its identifier fields."""
    if not settings.has_changes:
        return
    if not settings.keys:
        raise option_invalid("keys", f"The option keys is needed to create {table}: it gets them as identifier fields.")
    columns = _Columns(schema, table, NameRule(case_sensitive=False))  # no two differ only in case
    keys = [field.field_id for field in columns.found_keys(settings.keys)]
    columns.sequence(settings.sequence_by, keys)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The top-level columns of a table, which errors name."""

    schema: Schema
    table: str
    rule: NameRule

    def keys(self, keys: Sequence[str]) -> tuple[int, ...]:
        """Ids of the identifier fields, ascending: their order has no meaning."""
        wanted = self.found_keys(keys)
        identifiers = set(self.schema.identifier_field_ids)
        if not identifiers:
            raise _keys_unknown(self.table, wanted)
        if keys and {field.field_id for field in wanted} != identifiers:
            names = [self._name(each) for each in sorted(identifiers)]
            raise SettingsError.of(
                "KEYS_DIFFER",
                keys=shown(", ".join(keys)),
                table=self.table,
                fields=shown(", ".join(names)),
                names=names,
            )
        nested = identifiers - {field.field_id for field in self.schema.fields}
        if nested:
            raise SettingsError.of(
                "KEY_UNSUPPORTED", column=shown(self._name(min(nested))), table=self.table, why="within another column"
            )
        for field in self.schema.fields:
            if field.field_id in identifiers:
                self._check_key(field)
        return tuple(sorted(identifiers))

    def found_keys(self, keys: Sequence[str]) -> list[types.NestedField]:
        """The columns of the option `keys`."""
        found = [self._field(name, "keys") for name in keys]
        for field in found:
            self._check_key(field)
        return found

    def sequence(self, names: Sequence[str], keys: Sequence[int]) -> tuple[int, ...]:
        """Ids of the columns of `sequence_by`."""
        found = [self._field(name, "sequence_by") for name in names]
        for field in found:
            if field.field_id in keys:
                said = f"names the column {shown(field.name)!r}, which is the same in all changes of a key"
                raise option_invalid("sequence_by", f"The option sequence_by {said}. Leave it out.")
            if not isinstance(field.field_type, _SORTABLE):
                raise _sequence_unsupported(self.table, field)
        return tuple(field.field_id for field in found)

    def check_deleted(self) -> None:
        """Check the column that soft deletes need."""
        found = [field.field_type for field in self.schema.fields if field.name == DELETED]
        if found != [types.BooleanType()]:
            raise option_invalid(
                "deletes",
                f"The option deletes='soft' needs a BOOLEAN column {DELETED} in {self.table}: ALTER TABLE {self.table}"
                f" ADD COLUMN {DELETED} BOOLEAN",
            )

    def _field(self, name: str, option: str) -> types.NestedField:
        by_name = {field.name: field for field in self.schema.fields}
        return by_name[found_column(name, by_name, self.rule, option, self.table)]

    def _name(self, field_id: int) -> str:
        return self.schema.find_column_name(field_id) or str(field_id)

    def _check_key(self, field: types.NestedField) -> None:
        if not isinstance(field.field_type, types.PrimitiveType) or isinstance(field.field_type, _NO_KEYS):
            raise SettingsError.of(
                "KEY_UNSUPPORTED",
                column=shown(field.name),
                table=self.table,
                why=f"of type {shown(spark_type(field.field_type))}",
            )


def found_column(name: str, names: Iterable[str], rule: NameRule, option: str, table: str = "") -> str:
    """The one of these names that an option means."""
    known = list(names)
    found = [each for each in known if rule.key(each) == rule.key(name)]
    if len(found) == 1:
        return found[0]
    where = f"which {shown(table)} lacks" if table else "which the rows lack"
    hint = did_you_mean(name, known)
    raise option_invalid(option, cut(f"The option {option} names the column {shown(name)!r}, {where}. {hint}", 180))


def _keys_unknown(table: str, wanted: Sequence[types.NestedField]) -> SettingsError:
    names = [field.name for field in wanted]
    if not names:
        return SettingsError.of("KEYS_UNKNOWN", table=table)
    statements = _identifying(table, wanted)
    return SettingsError.of("KEYS_UNKNOWN.named", table=table, keys=shown(", ".join(names)), statements=statements)


def _identifying(table: str, wanted: Sequence[types.NestedField]) -> tuple[str, ...]:
    """Statements that make columns the identifier fields. Spark SQL makes no column required that exists."""
    names = [field.name for field in wanted]
    optional = [field.name for field in wanted if not field.required]
    literal = ", ".join(map(repr, names))
    checked = "Check that no two rows have one key" + (", and no row has NULL in it" if optional else "")
    if not optional:
        sql = f"ALTER TABLE {table} SET IDENTIFIER FIELDS {', '.join(map(sql_name, names))}"
        python = f"with table.update_schema() as change: change.set_identifier_fields({literal})"
        return f"{checked}, then in Spark SQL: {sql}", f"The same in PyIceberg: {python}"
    steps = "; ".join(f"change.update_column({name!r}, required=True)" for name in optional)
    opened = "with table.update_schema(allow_incompatible_changes=True) as change:"
    return (f"{checked}, then in PyIceberg: {opened} {steps}; change.set_identifier_fields({literal})",)


def _sequence_unsupported(table: str, field: types.NestedField) -> SettingsError:
    name = sql_name(field.name)
    cast = next((text for kind, text in _SORTABLE_CASTS.items() if isinstance(field.field_type, kind)), None)
    column, kind = shown(field.name), shown(spark_type(field.field_type))
    if cast is None:
        return SettingsError.of("SEQUENCE_UNSUPPORTED", column=column, table=table, kind=kind)
    written = f"{cast.format(name)} AS {sql_name(f'{field.name}_sequence')}"
    return SettingsError.of("SEQUENCE_UNSUPPORTED.cast", column=column, table=table, kind=kind, written=written)
