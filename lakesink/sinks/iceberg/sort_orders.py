"""The sort order of a table: what tasks keep of it, and how it compares to the option `sort_by`."""

from contextlib import suppress
from dataclasses import replace

from pyiceberg.schema import Schema
from pyiceberg.table import Table, sorting

from lakesink.parquet.order import sort_keys
from lakesink.rows.plan import SortField, WritePlan
from lakesink.rows.schema import parse_schema
from lakesink_catalog.commit.premises import Premises
from lakesink_catalog.tables.partition_by import spelled_term
from lakesink_protocol.errors import WriteError

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
    column = schema.find_column_name(field.source_id) or f"column {field.source_id}"
    return f"{spelled_term(str(field.transform), column)} {field.direction} {field.null_order}"
