"""Applies a schema change to the metadata of a table, by Iceberg's rules of schema evolution. Pure.

Catalogs accept any schema, so these rules are the only check. PyIceberg's `UpdateSchema` assigns the ids, continuing
from the table's last column id. It also accepts a decimal with another scale, which the format forbids.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate, SetPropertiesUpdate, TableUpdate
from pyiceberg.types import IcebergType, MapType, NestedField

from lakesink_catalog.commit.premises import Path, columns, is_promotion
from lakesink_protocol.change import SchemaChange

_LAST_ADDED = -1
"""What Iceberg's update calls the schema that the same request adds."""


class ChangeImpossible(ValueError):
    """The table's schema cannot take the change."""


@dataclass(frozen=True, slots=True)
class EvolvedTable:
    """A table as a schema change makes it, and the updates that make it so.

    Attributes:
        table: A copy of the table whose current schema has the change.
        updates: In the order in which a catalog must apply them; none if the table has the change already.
    """

    table: Table
    updates: tuple[TableUpdate, ...] = ()


def evolve(table: Table, change: SchemaChange | None) -> EvolvedTable:
    """The table with this change. New columns are optional and come last, with ids in the order of the change.

    A column that the table already has, perhaps by another writer, is left out, even if its type differs. The caller
    checks whether the files fit: see `is_compatible` and `brings_columns_of`.

    Raises:
        ChangeImpossible: The table lacks the parent of a new column, or Iceberg forbids the change.
    """
    missing = None if change is None else _missing(table.schema(), change)
    if missing is None:
        return EvolvedTable(table)
    metadata = table.metadata
    # Without snapshots, because PyIceberg copies each of them.
    bare = metadata.model_copy(
        update={"snapshots": [], "snapshot_log": [], "refs": {}, "current_snapshot_id": None, "metadata_log": []}
    )
    staged = Table(table.name(), bare, table.metadata_location, table.io, table.catalog).transaction()
    try:
        with staged.update_schema() as update:
            for column in missing.optional:
                update.make_column_optional(column)
            for one in missing.widened:
                update.update_column(one.column, parse_type(one.type_json))
            for one in missing.added:
                update.add_column(one.column, parse_type(one.type_json))
    except Exception as error:  # PyIceberg raises errors of many classes for types that no table can have
        raise ChangeImpossible(str(error)) from error
    after = staged.table_metadata
    evolved = metadata.model_copy(
        update={
            "schemas": after.schemas,
            "current_schema_id": after.current_schema_id,
            "last_column_id": after.last_column_id,
            "properties": after.properties,
        }
    )
    copy = Table(table.name(), evolved, table.metadata_location, table.io, table.catalog)
    return EvolvedTable(copy, tuple(_updates(metadata, evolved)))


def brings_columns_of(prepared: Schema, table: Table, evolved: Table) -> bool:
    """True if the columns that files of this schema bring get the same ids, and no others are brought with them.

    Another writer may have added a struct of the same name, and so of the same id, with other fields. `known` has the
    columns of every schema that the table had, and so those that were dropped meanwhile.
    """
    known = set().union(*map(_ids, table.metadata.schemas))
    written, after = _ids(prepared), _ids(evolved.schema())
    return written - known <= after and after - known <= written


def keeps_columns_of(written: Schema, evolved: Schema) -> bool:
    """True if all columns of files of a schema have the same ids in another one."""
    return _ids(written) <= _ids(evolved)


def _ids(schema: Schema) -> set[tuple[Path, int]]:
    return {(path, field.field_id) for path, field in columns(schema).items()}


def parse_type(type_json: str) -> IcebergType:
    """The type in Iceberg's JSON form; raises ChangeImpossible."""
    try:
        return IcebergType.model_validate_json(type_json)
    except Exception as error:  # a prepared record is other people's text, and PyIceberg checks little of it
        raise ChangeImpossible("a column has no valid type") from error


def _missing(schema: Schema, change: SchemaChange) -> SchemaChange | None:
    """The part of the change that a schema does not have; None if it has all of it."""
    present = columns(schema)
    added = tuple(one for one in change.added if one.column not in present)
    wide = tuple(
        one
        for one in change.widened
        if one.column in present and is_promotion(present[one.column].field_type, parse_type(one.type_json))
    )
    optional = tuple(one for one in change.optional if one in present and present[one].required)
    for column in (*(one.column for one in (*added, *wide)), *optional):
        _check_not_in_key(present, column)
    if any(present[column].field_id in schema.identifier_field_ids for column in optional):
        raise ChangeImpossible("a column that identifies rows stays required")
    return SchemaChange(added, wide, optional) if added or wide or optional else None


def _check_not_in_key(present: Mapping[Path, NestedField], column: Path) -> None:
    above = (present.get(column[:length]) for length in range(1, len(column)))
    for parent, name in zip(above, column[1:], strict=True):
        if parent is not None and isinstance(parent.field_type, MapType) and name == "key":
            raise ChangeImpossible("Iceberg allows no change in the key of a map")


def _updates(before: TableMetadata, after: TableMetadata) -> Iterator[TableUpdate]:
    if after.current_schema_id in {schema.schema_id for schema in before.schemas}:
        yield SetCurrentSchemaUpdate(schema_id=after.current_schema_id)  # a service refuses an equal schema once more
    else:
        yield AddSchemaUpdate(schema_=after.schema())
        yield SetCurrentSchemaUpdate(schema_id=_LAST_ADDED)
    changed = {name: text for name, text in after.properties.items() if before.properties.get(name) != text}
    if changed:  # the name mapping
        yield SetPropertiesUpdate(updates=changed)
