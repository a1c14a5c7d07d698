"""Batches written before and after changes of schema and partition spec are read as one table, whatever the changes."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField, PrimitiveType

from lakesink_catalog.commit.evolution import evolve
from testkit.examples import examples
from tests.readers.engines import by_datafusion, by_field_ids, by_pyiceberg, canonical
from tests.readers.evolution import brought, make, steps
from tests.readers.known_bugs import lists_of_structs_are_never_null, rust_reads_manifests
from tests.readers.lake import Lake
from tests.readers.random_streams import NAMES, in_pieces, renamed
from tests.writer.random_tables import ROW, VALUES, Case, cases

BATCHES = 4
Values = dict[int, Any]


@examples(8)
@given(data=st.data())
def test_rows_of_every_schema_and_spec_that_a_table_had_are_read(lake: Lake, data: st.DataObject) -> None:
    first = renamed(data.draw(cases()), NAMES)
    streamed = lake.new_table(first.schema, first.spec, {"commit.manifest.min-count-to-merge": "2"})
    streamed.options = {"schema_evolution": "widen"}
    numbers = {name: field_id for field_id, name in ((f.field_id, f.name) for f in streamed.load().schema().fields)}
    known = [{numbers[name]: value for name, value in row.items()} for row in first.rows]
    told: list[Values] = []
    for batch in range(BATCHES):
        schema = _changed(data, streamed.load(), f"new-{batch}") if batch else streamed.load().schema()
        rows = [values(data, schema, known, len(told) + place) for place in range(data.draw(st.integers(1, 3)))]
        arrow = as_case(schema, rows).arrow
        streamed.write([in_pieces(arrow)], arrow.schema)
        told += rows
    table = streamed.load()
    schema = table.schema()
    expected = canonical(as_case(schema, told).arrow, schema)
    assert canonical(by_field_ids(table), schema) == expected
    if rust_reads_manifests(table):
        assert canonical(by_datafusion(table), schema) == expected
    struct = schema.as_struct()
    assert canonical(by_pyiceberg(table), schema) == [lists_of_structs_are_never_null(struct, row) for row in expected]


def _changed(data: st.DataObject, table: Table, new_name: str) -> Schema:
    """The schema of the next batch, which another writer has changed, or which the batch itself will change."""
    step = data.draw(st.sampled_from(steps(table, new_name)))
    change = brought(step)
    if change is not None and data.draw(st.booleans(), label="brought by the batch"):
        return evolve(table, change).table.schema()
    make(table, step)
    return table.refresh().schema()


def as_case(schema: Schema, rows: list[Values]) -> Case:
    named = [{field.name: row.get(field.field_id) for field in schema.fields} for row in rows]
    return Case(schema, UNPARTITIONED_PARTITION_SPEC, named)


def values(data: st.DataObject, schema: Schema, known: list[Values], number: int) -> Values:
    """A row by field ids: nested values are those of the first rows, for their columns do not change."""
    row = {field.field_id: data.draw(value_of(field, known), label=field.name) for field in schema.fields}
    return row | {schema.find_field(ROW).field_id: number}


def value_of(field: NestedField, known: list[Values]) -> st.SearchStrategy[Any]:
    if not isinstance(field.field_type, PrimitiveType):
        return st.sampled_from([row[field.field_id] for row in known])
    found = VALUES[type(field.field_type)](field.field_type)
    return found if field.required else st.one_of(st.none(), found)
