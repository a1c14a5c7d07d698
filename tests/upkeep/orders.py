"""The sort orders of a table's files, by a comparison of single values that knows nothing of Arrow."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.types import IcebergType

from lakesink.rows.plan import SortField as Field
from testkit.tasks import local
from tests.writer.test_order import reference


def check_orders(table: Table) -> list[int]:
    """The order that each data file states, after a look that its rows have it."""
    orders, found = {one.order_id: one for one in table.metadata.sort_orders}, []
    for task in table.scan().plan_files():
        order = orders[task.file.sort_order_id or 0]
        rows = pq.ParquetFile(local(task.file.file_path)).read()
        keys = [_keys(table, rows, field) for field in order.fields]
        fields = [
            Field(
                one.source_id,
                str(one.transform),
                one.direction is SortDirection.DESC,
                one.null_order is NullOrder.NULLS_FIRST,
            )
            for one in order.fields
        ]
        assert not fields or reference(fields, list(zip(*keys, strict=True))) == list(range(len(rows))), order
        found.append(order.order_id)
    return found


def _keys(table: Table, rows: pa.Table, field: SortField) -> list[Any]:
    transform = field.transform.transform(_type_of(table, field.source_id))
    return [transform(value) for value in _values(rows, field.source_id)]


def _type_of(table: Table, field_id: int) -> IcebergType:
    """Its last one: an older file may have a column that the table no longer has."""
    kinds = (one.find_type(field_id) for one in reversed(table.schemas().values()) if one.find_column_name(field_id))
    return next(kinds)


def _values(rows: pa.Table, field_id: int) -> list[Any]:
    """Of a column, or of a part of a struct, by its field id; dates and times are whole numbers."""
    columns = list(zip(rows.schema, rows.columns, strict=True))
    for column, values in columns:
        if int(column.metadata[b"PARQUET:field_id"]) == field_id:
            return list(_plain(values).to_pylist())
        if pa.types.is_struct(column.type):
            columns += [(part, pc.struct_field(values, number)) for number, part in enumerate(column.type)]
    raise AssertionError(f"no column has the field id {field_id}")


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if isinstance(values.type, pa.BaseExtensionType):
        return pa.chunked_array([chunk.storage for chunk in values.chunks], values.type.storage_type)
    if pa.types.is_date(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_temporal(values.type) else values
