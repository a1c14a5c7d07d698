"""Readers that share no code with the writer read every row of every batch, as it was, whatever schema and values."""

from hypothesis import given

from testkit.examples import examples
from tests.readers.engines import by_datafusion, by_duckdb, by_pyiceberg, canonical
from tests.readers.known_bugs import lists_of_structs_are_never_null, rust_reads_manifests
from tests.readers.lake import Lake
from tests.readers.random_streams import Story, stories


@examples(8)
@given(story=stories())
def test_every_reader_reads_every_row_as_it_was(lake: Lake, story: Story) -> None:
    table = story.tell(lake).load()
    schema = table.schema()
    expected = canonical(story.case.arrow, schema)
    assert canonical(by_duckdb(table), schema) == expected
    if rust_reads_manifests(table):
        assert canonical(by_datafusion(table), schema) == expected
    struct = schema.as_struct()
    assert canonical(by_pyiceberg(table), schema) == [lists_of_structs_are_never_null(struct, row) for row in expected]
