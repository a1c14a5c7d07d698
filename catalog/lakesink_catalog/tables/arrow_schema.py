"""Converts an Arrow schema to the Iceberg schema of a new table: new ids, and for a DataFrame every column optional.

Columns are optional because Spark's non-null flags change with the plan of a query, and a required column can never be
omitted later. Field ids in the Arrow schema come from elsewhere and are dropped.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, pyarrow_to_schema
from pyiceberg.schema import Schema

from lakesink_catalog.spark_types import sql_type
from lakesink_protocol.errors import WriteError

RESERVED_NAMES = frozenset(
    {
        *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
        *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
    }
)
"""Names of Iceberg's metadata columns: a table with such a column cannot be read."""
_ID_KEY = b"PARQUET:field_id"
_DOC_KEY = b"doc"


def iceberg_schema(arrow_schema: pa.Schema, *, keeps_required: bool = False) -> Schema:
    """The schema of a format version 2 table for these columns; comments are kept.

    `keeps_required` is true if a user has written NOT NULL. Raises `WriteError` if there are no columns, a name is
    reserved or ambiguous, or format version 2 lacks a type.
    """
    if len(arrow_schema) == 0:
        raise _unsupported("the DataFrame has no columns", "Select at least one column.")
    reserved = next((name for name in arrow_schema.names if name.lower() in RESERVED_NAMES), None)
    if reserved is not None:
        raise _unsupported(f"Iceberg reserves the column name {reserved!r}", f"Rename it: {reserved.strip('_')}.")
    new = _New(count(1), keeps_required)
    fields = [_field(field, field.name, new) for field in _distinct(arrow_schema, "")]
    # Iceberg finds columns by full names: a dot can separate a struct and its field, or be part of a name.
    try:
        return pyarrow_to_schema(pa.schema(fields))
    except ValueError as error:
        raise _unsupported(f"two columns have the same full name ({error})", "Rename one of them.") from None


def with_identifier_fields(schema: Schema, names: Collection[str]) -> Schema:
    """The schema with these top-level columns as its identifier fields, which are required; case does not matter."""
    wanted = {name.lower() for name in names}
    keys = [field.field_id for field in schema.fields if field.name.lower() in wanted]
    fields = (
        field.model_copy(update={"required": True}) if field.field_id in keys else field for field in schema.fields
    )
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=keys)


@dataclass(frozen=True, slots=True)
class _New:
    """What new fields get: their ids, and NOT NULL if it is kept."""

    ids: Iterator[int]
    keeps_required: bool


def _field(field: Any, path: str, new: _New, *, is_key: bool = False) -> Any:
    nullable = not is_key and (field.nullable or not new.keeps_required)
    metadata = {_ID_KEY: str(next(new.ids)).encode()}
    doc = (field.metadata or {}).get(_DOC_KEY)
    if doc:
        metadata[_DOC_KEY] = doc
    return pa.field(field.name, _type(field.type, path, new), nullable=nullable, metadata=metadata)


def _type(arrow: Any, path: str, new: _New) -> Any:
    types = pa.types
    if types.is_struct(arrow):
        members = [arrow.field(index) for index in range(arrow.num_fields)]
        if not members:
            raise WriteError.of(
                "TYPE_UNSUPPORTED.by_iceberg",
                column=path[:60],
                kind="STRUCT without fields",
                why="has no values",
                action="Leave it out, or give it a field.",
            )
        return pa.struct([_field(field, f"{path}.{field.name}", new) for field in _distinct(members, path)])
    if types.is_map(arrow):
        key = _field(arrow.key_field, f"{path}.key", new, is_key=True)
        return pa.map_(key, _field(arrow.item_field, f"{path}.value", new))
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        return pa.list_(_field(arrow.value_field, f"{path}.element", new))
    if types.is_dictionary(arrow):
        return _type(arrow.value_type, path, new)
    return _leaf(arrow, path)


def _leaf(arrow: Any, path: str) -> Any:
    if pa.types.is_timestamp(arrow) and arrow.unit != "ns":
        return pa.timestamp("us", tz=None if arrow.tz is None else "UTC")  # an instant; the zone is only for display
    unsigned = pa.types.is_uint32(arrow) or pa.types.is_uint64(arrow)  # would wrap around in Iceberg's signed types
    if not unsigned:
        with suppress(TypeError, ValueError, ValidationError, UnsupportedPyArrowTypeException):
            pyarrow_to_schema(pa.schema([pa.field("probe", arrow, metadata={_ID_KEY: b"1"})]))
            return arrow
    why = "Iceberg's Spark cannot read" if pa.types.is_time(arrow) else "an Iceberg table of version 2 cannot hold"
    cast = f"Cast it in the query, for example CAST({path} AS STRING), or leave it out."
    raise WriteError.of(
        "TYPE_UNSUPPORTED.by_iceberg", column=path[:60], kind=sql_type(arrow)[:60], why=why, action=cast
    )


def _distinct(fields: Iterable[Any], path: str) -> Iterable[Any]:
    seen: dict[str, str] = {}
    for field in fields:
        other = seen.get(field.name.lower())
        if other is not None:
            where = f" of {path!r}" if path else ""
            raise _unsupported(
                f"the columns {other!r} and {field.name!r}{where} differ at most in case",
                "Rename one of them: other engines cannot distinguish them.",
            )
        seen[field.name.lower()] = field.name
        yield field


def _unsupported(why: str, action: str) -> WriteError:
    return WriteError.of("SCHEMA_UNSUPPORTED", why=why, action=action)
