"""A reader that skips files by their bounds and partitions finds the very rows that a look at every row finds."""

import math
from typing import Any

from datafusion import SessionContext, col
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.table import Table
from pyiceberg.types import BinaryType, FloatType, NestedField, PrimitiveType, StringType, UUIDType

from testkit.examples import examples
from tests.readers.datafusion_predicates import expression
from tests.readers.known_bugs import rust_reads_manifests
from tests.readers.lake import Lake, StreamedTable
from tests.readers.predicates import Path, Predicate, columns_of, predicates_on, value_at
from tests.readers.random_streams import Story, stories
from tests.writer.random_tables import ROW

AT_ONCE = 12


@examples(12)
@given(story=stories(), data=st.data())
def test_a_filtered_scan_finds_what_a_look_at_every_row_finds(lake: Lake, story: Story, data: st.DataObject) -> None:
    table, rows, field, predicates = drawn(lake, story, data)
    for predicate in predicates:
        if is_known(predicate, field, table):
            continue
        found = table.scan(row_filter=predicate.expression, selected_fields=(ROW,)).to_arrow()
        assert sorted(found[ROW].to_pylist()) == [row[ROW] for row in rows if predicate.holds(row)], predicate


def drawn(
    lake: Lake, story: Story, data: st.DataObject
) -> tuple[Table, list[dict[str, Any]], NestedField, list[Predicate]]:
    """A table as streamed, its rows, one of its columns, and predicates at the edges of what that holds."""
    streamed = story.tell(lake)
    table, rows = streamed.load(), story.case.arrow.to_pylist()
    path, field = data.draw(st.sampled_from(list(columns_of(table.schema().as_struct()))))
    assert isinstance(field.field_type, PrimitiveType)
    candidates = list(predicates_on(path, field.field_type, points(streamed, rows, path, field)))
    return table, rows, field, data.draw(st.lists(st.sampled_from(candidates), min_size=1, max_size=AT_ONCE))


def is_known(predicate: Predicate, field: NestedField, table: Table) -> bool:
    """What PyIceberg 0.12.0 gets wrong by itself, as narrowly as it can be said."""
    by_identity = {part.source_id for part in table.spec().fields if str(part.transform) == "identity"}
    if isinstance(field.field_type, UUIDType) and field.field_id in by_identity:
        return "null" not in predicate.operator  # compares a partition's UUID with bytes
    if field.required and "null" in predicate.operator:
        return True  # takes a required column below an optional struct for never NULL
    infinite = (math.inf, -math.inf, (math.inf,), (-math.inf,))
    return isinstance(field.field_type, FloatType) and predicate.operand in infinite  # refuses the literal


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def points(streamed: StreamedTable, rows: list[dict[str, Any]], path: Path, field: NestedField) -> set[Any]:
    """All values but NaN, and the bounds of text and bytes, which may be cut."""
    found = {value for row in rows if (value := value_at(row, path)) is not None and not is_nan(value)}
    if isinstance(field.field_type, StringType | BinaryType):
        for file in (file for files in streamed.files for file in files):
            bounds = (file.lower_bounds.get(field.field_id), file.upper_bounds.get(field.field_id))
            found |= {from_bytes(field.field_type, bound) for bound in bounds if bound is not None}
    return found


@examples(10)
@given(story=stories(), data=st.data())
def test_datafusion_prunes_no_row_that_it_would_find_in_all_of_them(
    lake: Lake, story: Story, data: st.DataObject
) -> None:
    table, rows, field, predicates = drawn(lake, story, data)
    if not rust_reads_manifests(table):
        return
    assert rows
    context = SessionContext()
    context.register_table("t", table)
    everything = context.from_arrow(context.table("t").to_arrow_table())
    for predicate in predicates:
        condition = expression(predicate, field.field_type)
        found = context.table("t").filter(condition).select(col(ROW)).to_arrow_table()
        wanted = everything.filter(condition).select(col(ROW)).to_arrow_table()
        assert sorted(found[ROW].to_pylist()) == sorted(wanted[ROW].to_pylist()), predicate
