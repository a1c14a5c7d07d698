"""What is written is read back bit for bit by readers that share no code with the writer, whatever it is."""

import math
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from hypothesis import given
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    FixedType,
    NestedField,
    PrimitiveType,
    StringType,
    UUIDType,
)

from lakesink_protocol.change import ContentFile
from lakesink_protocol.receipt import Receipt
from testkit.commits import add
from testkit.examples import examples
from testkit.tasks import (
    Row,
    exactly,
    in_batches,
    local,
    new_table,
    partition_values,
    plan_for,
    rows_by_duckdb,
    rows_of,
    write,
)
from tests.readers.predicates import columns_of, value_at
from tests.writer.random_tables import ROW, Case, cases

EXAMPLES = examples(14)
BOUND_LENGTH = 16
Names = tuple[str, ...]


@contextmanager
def written(case: Case, **overrides: Any) -> Iterator[tuple[Table, Receipt]]:
    """The case's rows as files of a table, in batches of five and with as few open files as can be."""
    with tempfile.TemporaryDirectory() as folder, new_table(Path(folder), case.schema, case.spec) as table:
        plan = plan_for(table.schema(), f"{table.location()}/data", table.spec(), open_files=1, **overrides)
        yield table, write(plan, in_batches(case.sent, 5))


@EXAMPLES
@given(case=cases())
def test_pyarrow_and_duckdb_read_every_row_as_it_was(case: Case) -> None:
    with written(case) as (_, receipt):
        expected = [exactly(row) for row in case.arrow.to_pylist()]
        assert receipt.rows == len(case.rows)
        assert in_order(rows_of(receipt.files)) == expected
        assert in_order(rows_by_duckdb(receipt.files)) == expected


@EXAMPLES
@given(case=cases())
def test_files_carry_the_tables_schema_with_every_field_id(case: Case) -> None:
    with written(case) as (table, receipt):
        for file in receipt.files:
            assert pyarrow_to_schema(pq.read_schema(local(file.path))).as_struct() == table.schema().as_struct()
            metadata = pq.read_metadata(local(file.path)).metadata
            assert Schema.model_validate_json(metadata[b"iceberg.schema"]) == table.schema()


@EXAMPLES
@given(case=cases())
def test_every_row_lies_in_the_partition_that_pyiceberg_computes_for_it(case: Case) -> None:
    with written(case) as (table, receipt):
        for file in receipt.files:
            values = exactly(partition_values(table, file))
            assert all(exactly(partition_of(table, row)) == values for row in rows_in(case, file))


@EXAMPLES
@given(case=cases())
def test_counts_and_bounds_hold_for_the_values_of_every_file(case: Case) -> None:
    with written(case) as (table, receipt):
        for file in receipt.files:
            assert file.record_count == len(rows_in(case, file))
            for path, field in columns_of(table.schema().as_struct()):
                check_statistics(file, field, [stored(field, value_at(row, path)) for row in rows_in(case, file)])


@examples(12)
@given(case=cases())
def test_a_table_of_these_files_answers_predicates_at_its_bounds(case: Case) -> None:
    with written(case) as (table, receipt):
        add(table, receipt.files)
        assert table.scan().count() == len(case.rows)
        for name in [field.name for field in table.schema().fields if is_ordered(field)]:
            values = [row[name] for row in case.rows if row[name] is not None]
            for edge in [min(finite), max(finite)] if (finite := list(filter(is_finite, values))) else []:
                assert counted(table, LessThanOrEqual, name, edge) == sum(value <= edge for value in values)
                assert counted(table, GreaterThanOrEqual, name, edge) == sum(value >= edge for value in values)


def counted(table: Table, predicate: Any, name: str, edge: Any) -> int:
    return table.scan(predicate(name, edge)).count()


def in_order(rows: list[Row]) -> list[Row]:
    return [exactly(row) for row in sorted(rows, key=lambda row: row[ROW])]


def rows_in(case: Case, file: ContentFile) -> list[Row]:
    """The case's rows that a file holds."""
    return [case.rows[number] for number in pq.read_table(local(file.path), partitioning=None)[ROW].to_pylist()]


def partition_of(table: Table, row: Row) -> list[Any]:
    """What PyIceberg's own transforms give for a row."""
    by_id = {field.field_id: (path, field) for path, field in columns_of(table.schema().as_struct())}
    values = []
    for part in table.spec().fields:
        path, source = by_id[part.source_id]
        values.append(part.transform.transform(source.field_type)(stored(source, value_at(row, path))))
    return values


def stored(field: NestedField, value: Any) -> Any:
    """A value as Iceberg stores it: rows have uuids as text."""
    return uuid.UUID(value).bytes if isinstance(field.field_type, UUIDType) and value is not None else value


def is_ordered(field: NestedField) -> bool:
    return isinstance(field.field_type, PrimitiveType) and not isinstance(
        field.field_type, BooleanType | UUIDType | FixedType
    )


def is_finite(value: Any) -> bool:
    """NaN orders with nothing, and PyIceberg takes infinity for more than a float can hold."""
    return not isinstance(value, float) or math.isfinite(value)


def check_statistics(file: ContentFile, field: NestedField, values: Sequence[Any]) -> None:
    present = [value for value in values if value is not None]
    ordered = [value for value in present if not (isinstance(value, float) and math.isnan(value))]
    assert file.value_counts[field.field_id] == len(values)
    assert file.null_value_counts[field.field_id] == len(values) - len(present)
    assert file.nan_value_counts.get(field.field_id, 0) == len(present) - len(ordered)
    lower, upper = (bound_of(bounds, field) for bounds in (file.lower_bounds, file.upper_bounds))
    if not ordered:
        assert (lower, upper) == (None, None)
    elif isinstance(field.field_type, StringType | BinaryType | FixedType):
        check_shortened(min(ordered), max(ordered), lower, upper)
    else:
        assert (exactly(lower), exactly(upper)) == (
            exactly(signed(min(ordered), -0.0)),
            exactly(signed(max(ordered), 0.0)),
        )


def signed(value: Any, zero: float) -> Any:
    """A floating-point zero bound is -0.0 below and 0.0 above, so that it holds for both zeros."""
    return zero if isinstance(value, float) and value == 0 else value


def bound_of(bounds: Mapping[int, bytes], field: NestedField) -> Any:
    assert isinstance(field.field_type, PrimitiveType)
    value = bounds.get(field.field_id)
    return None if value is None else from_bytes(field.field_type, value)


def check_shortened(low: Any, high: Any, lower: Any, upper: Any) -> None:
    """Bounds of text and bytes are at most `BOUND_LENGTH` long, and as close as that allows."""
    assert lower == low[:BOUND_LENGTH]
    if len(high) <= BOUND_LENGTH:
        assert upper == high
    elif upper is not None:
        assert len(upper) <= BOUND_LENGTH
        assert upper > high
