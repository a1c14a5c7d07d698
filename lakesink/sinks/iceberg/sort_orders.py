"""The sort order of a table: what tasks keep of it, and how it compares to the option `sort_by`."""

from contextlib import suppress

from pyiceberg.schema import Schema
from pyiceberg.table import Table, sorting

from lakesink.parquet.order import sort_keys
from lakesink.rows.plan import SortField, SortOrder
from lakesink.rows.schema import parse_schema
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.tables.partition_by import parse_sort_terms, spelled_term
from lakesink_protocol.errors import WriteError
from lakesink_protocol.events import Listener, SortByUnused


def kept_order(table: Table) -> SortOrder | None:
    """The table's default sort order, as tasks keep it; None if it has none, or one that they cannot keep."""
    found = table.sort_order()
    if found.is_unsorted or unkept_field(table):
        return None
    return SortOrder(found.order_id, tuple(map(_planned, found.fields)))


def unkept_field(table: Table) -> str:
    """The first field of the table's sort order that lakesink cannot sort by; empty if there is none."""
    schema = table.schema()
    return next((_spelled(one, schema) for one in table.sort_order().fields if not _is_kept(one, schema)), "")


def _is_kept(field: sorting.SortField, schema: Schema) -> bool:
    with suppress(KeyError, ValueError, WriteError):
        sort_keys(parse_schema(schema.model_dump_json()), SortOrder(1, (_planned(field),)))
        return field.transform.can_transform(schema.find_type(field.source_id))
    return False


def _planned(field: sorting.SortField) -> SortField:
    nulls_first = field.null_order is sorting.NullOrder.NULLS_FIRST
    return SortField(field.source_id, str(field.transform), field.direction is sorting.SortDirection.DESC, nulls_first)


def order_in_words(order: sorting.SortOrder, schema: Schema) -> str:
    """An order in the spelling of `sort_by`."""
    return ", ".join(_spelled(one, schema) for one in order.fields) or "nothing"


def _spelled(field: sorting.SortField, schema: Schema) -> str:
    column = schema.find_column_name(field.source_id) or f"column {field.source_id}"
    return f"{spelled_term(str(field.transform), column)} {field.direction} {field.null_order}"


def check_sort_by(table: Table, sort_by: str | None, emit: Listener = LISTENERS) -> None:
    """Say that `sort_by` is not an order that the table has, or had: the option does not change it."""
    terms, metadata = parse_sort_terms(sort_by), table.metadata
    asked = [
        (
            {source for schema in metadata.schemas for source in term.source_ids(schema)},
            (term.iceberg_transform, term.direction, term.null_order),
        )
        for term in terms
    ]

    def is_asked(order: sorting.SortOrder) -> bool:
        found = [(one.source_id, (str(one.transform), one.direction, one.null_order)) for one in order.fields]
        return len(found) == len(asked) and all(
            source in sources and own == other for (source, own), (sources, other) in zip(found, asked, strict=True)
        )

    if asked and not any(map(is_asked, metadata.sort_orders)):
        emit(SortByUnused(".".join(table.name()), order_in_words(table.sort_order(), table.schema()), str(sort_by)))
