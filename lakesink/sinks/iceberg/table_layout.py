"""Partitions and sort order of a table: what tasks keep of the order, and what differs from the options."""

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, sorting
from pyiceberg.table.metadata import TableMetadata

from lakesink.parquet.order import sort_keys
from lakesink.rows.plan import SortField, WritePlan
from lakesink.rows.schema import parse_schema
from lakesink_catalog.commit.premises import Premises
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.tables.partition_by import parse_sort_by, parse_sort_terms, parse_terms, spelled_term
from lakesink_protocol.errors import SettingsError, WriteError
from lakesink_protocol.events import Listener, PartitionByUnused, SortByUnused

_FIRST, _DESCENDS = sorting.NullOrder.NULLS_FIRST, sorting.SortDirection.DESC


def kept_order(table: Table) -> tuple[SortField, ...]:
    """The table's default sort order, as tasks keep it; empty if it has none, or one that they cannot keep."""
    return () if unkept_field(table) else tuple(map(_planned, table.sort_order().fields))


def with_order(plan: WritePlan, table: Table) -> WritePlan:
    """The plan with the table's kept order, and its premises."""
    order = kept_order(table)
    order_id = table.sort_order().order_id if order else 0
    return replace(plan, sort_order=order, sort_order_id=order_id, premises=premises(table, is_sorted=bool(order)))


def premises(table: Table, *, is_sorted: bool) -> str:
    """Digest of what the files of a plan mean: the table's schema and spec, and its order if they are sorted."""
    return Premises(table.schema(), (table.spec(),), (table.sort_order(),) if is_sorted else ()).digest


def unkept_field(table: Table) -> str:
    """The first field of the table's sort order that lakesink cannot sort by; empty if there is none."""
    schema = table.schema()
    return next((_spelled(one, schema) for one in table.sort_order().fields if not _is_kept(one, schema)), "")


def _is_kept(field: sorting.SortField, schema: Schema) -> bool:
    with suppress(KeyError, WriteError):
        sort_keys(parse_schema(schema.model_dump_json()), [_planned(field)])
        return field.transform.can_transform(schema.find_type(field.source_id))
    return False


def _planned(field: sorting.SortField) -> SortField:
    return SortField(field.source_id, str(field.transform), field.direction is _DESCENDS, field.null_order is _FIRST)


def order_in_words(table: Table) -> str:
    """The table's sort order in the spelling of `sort_by`."""
    return ", ".join(_spelled(one, table.schema()) for one in table.sort_order().fields)


def _spelled(field: sorting.SortField, schema: Schema) -> str:
    return f"{_term(field, schema)} {field.direction} {field.null_order}"


def _term(field: sorting.SortField | PartitionField, schema: Schema) -> str:
    column = schema.find_column_name(field.source_id) or f"column {field.source_id}"
    return spelled_term(str(field.transform), column)


def check_partitions(table: Table, partition_by: str | None, emit: Listener = LISTENERS) -> None:
    """Check that `partition_by` describes the table's partitioning, now or in the past: the table may have evolved.

    The text is compared with every spec and schema in the table's metadata. Only a certain contradiction is refused.
    Columns may be dropped and unused specs removed, so a table whose partitioning evolved gets a warning.
    """
    if not partition_by or not partition_by.strip():
        return
    terms, metadata = parse_terms(partition_by), table.metadata
    asked = [  # source ids and transform that each term can mean, by all schemas
        frozenset((source, term.iceberg_transform) for schema in metadata.schemas for source in term.source_ids(schema))
        for term in terms
        if term.transform != "void"
    ]
    if any(_has_exactly(spec, asked) for spec in metadata.partition_specs):
        return
    has = ", ".join(_term(field, table.schema()) for field in table.spec().fields) or "nothing"
    wanted = ", ".join(spelled_term(term.iceberg_transform, ".".join(term.column)) for term in terms)
    if not (all(asked) and _has_first_spec_only(metadata)):
        emit(PartitionByUnused(".".join(table.name()), has, wanted))
        return
    raise SettingsError.of("PARTITION_BY_DIFFERS", has=has, wanted=wanted)


def check_sort_by(table: Table, sort_by: str | None, emit: Listener = LISTENERS) -> None:
    """Say that `sort_by` is not an order that the table has, or had: the option does not change it.

    As with `partition_by`, the text is read with every schema; a column that none has is an error if there is only one.
    """
    if not (sort_by and parse_sort_terms(sort_by)):
        return
    schemas, orders = table.metadata.schemas, [order.fields for order in table.metadata.sort_orders]
    for schema in schemas:
        with nullcontext() if len(schemas) == 1 else suppress(SettingsError):
            if parse_sort_by(sort_by, schema).fields in orders:
                return
    emit(SortByUnused(".".join(table.name()), order_in_words(table) or "nothing", str(sort_by)))


def _has_exactly(spec: PartitionSpec, asked: Sequence[frozenset[tuple[int, str]]]) -> bool:
    """True if each term matches a field and each field is matched; void fields do not count."""
    divides = {(field.source_id, str(field.transform)) for field in spec.fields if str(field.transform) != "void"}
    return all(meanings & divides for meanings in asked) and divides <= frozenset().union(*asked)


def _has_first_spec_only(metadata: TableMetadata) -> bool:
    """True if the table never had another spec: its id is 0, and no later partition field got an id."""
    last = max((field.field_id for field in metadata.partition_specs[0].fields), default=PARTITION_FIELD_ID_START - 1)
    return [spec.spec_id for spec in metadata.partition_specs] == [0] and metadata.last_partition_id == last
