"""What may happen to a table's schema and partition spec between two batches of a stream, as data."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
)

from lakesink_protocol.change import ColumnType, SchemaChange
from tests.readers.random_streams import partition_kind
from tests.writer.random_tables import ROW, TRANSFORMS

ADDED = (LongType(), StringType(), DoubleType(), DecimalType(9, 2), TimestampType())


@dataclass(frozen=True)
class Step:
    """One change.

    Attributes:
        verb: ``add``, ``rename``, ``widen``, ``relax``, ``drop``, ``partition`` or ``unpartition``.
        name: The column, or the partition field that ends.
        argument: New name, type or transform.
    """

    verb: str
    name: str
    argument: Any = None


def make(table: Table, step: Step) -> None:
    """Change the table."""
    if step.verb in ("partition", "unpartition"):
        with table.update_spec() as spec:
            if step.verb == "partition":
                spec.add_field(step.name, step.argument, f"{step.argument} of {step.name}")
            else:
                spec.remove_field(step.name)
        return
    with table.update_schema() as schema:
        match step.verb:
            case "add":
                schema.add_column((step.name,), step.argument)
            case "rename":
                schema.rename_column((step.name,), step.argument)
            case "widen":
                schema.update_column((step.name,), step.argument)
            case "relax":
                schema.make_column_optional((step.name,))
            case _:
                schema.delete_column((step.name,))


def brought(step: Step) -> SchemaChange | None:
    """The same change as rows bring it; None if rows cannot."""
    match step.verb:
        case "add":
            return SchemaChange(added=(ColumnType((step.name,), step.argument.model_dump_json()),))
        case "widen":
            return SchemaChange(widened=(ColumnType((step.name,), step.argument.model_dump_json()),))
    return None


def steps(table: Table, new_name: str) -> list[Step]:
    """Every change that the table allows now."""
    sources = {part.source_id for spec in table.specs().values() for part in spec.fields}
    found = [Step("add", new_name, kind) for kind in ADDED]
    for field in table.schema().fields:
        if field.name != ROW:
            found.append(Step("rename", field.name, new_name))
            found += _changes(field, droppable=sources.isdisjoint(Schema(field).field_ids))
        found += _partitions(table, field)
    return found + [Step("unpartition", part.name) for part in table.spec().fields]


def _changes(field: NestedField, *, droppable: bool) -> Iterator[Step]:
    wider = _wider(field.field_type)
    if wider is not None:
        yield Step("widen", field.name, wider)
    if field.required:
        yield Step("relax", field.name)
    if droppable:
        yield Step("drop", field.name)


def _partitions(table: Table, field: NestedField) -> Iterator[Step]:
    taken = {partition_kind(part.transform) for part in table.spec().fields if part.source_id == field.field_id}
    for spelling in TRANSFORMS:
        transform = parse_transform(spelling)
        fits = isinstance(field.field_type, PrimitiveType) and transform.can_transform(field.field_type)
        if fits and partition_kind(transform) not in taken:
            yield Step("partition", field.name, spelling)


def _wider(kind: IcebergType) -> PrimitiveType | None:
    match kind:
        case IntegerType():
            return LongType()
        case FloatType():
            return DoubleType()
        case DecimalType() if kind.precision < 38:
            return DecimalType(38, kind.scale)
        case _:
            return None
