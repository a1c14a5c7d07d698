"""What a schema change makes of a table's metadata, and the updates that a catalog gets. No catalog, no files."""

from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import parse_mapping_from_json
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate, SetPropertiesUpdate
from pyiceberg.types import IntegerType, LongType, MapType, NestedField, StringType

from lakesink_catalog.commit.evolution import ChangeImpossible, evolve
from lakesink_protocol.change import ColumnType, SchemaChange
from testkit.tasks import table_in_memory

NAME_MAPPING = "schema.name-mapping.default"
MAPPING = '[{"field-id": 1, "names": ["id"]}]'
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "n", IntegerType(), required=True),
    NestedField(3, "m", MapType(4, IntegerType(), 5, IntegerType())),
    identifier_field_ids=[1],
)
NEW = ColumnType(("new",), '"string"')


def evolved(change: SchemaChange, **properties: str) -> tuple[Schema, list[Any]]:
    found = evolve(table_in_memory(SCHEMA, properties={"owner": "us"} | properties), change)
    return found.table.schema(), list(found.updates)


def test_a_new_schema_is_added_and_made_current_and_no_property_is_sent() -> None:
    schema, updates = evolved(SchemaChange(added=(NEW,)))
    assert schema.find_field("new") == NestedField(6, "new", StringType(), required=False)
    assert updates == [AddSchemaUpdate(schema_=schema), SetCurrentSchemaUpdate(schema_id=-1)]


def test_a_name_mapping_learns_the_new_column_and_is_the_only_property_that_is_sent() -> None:
    _, updates = evolved(SchemaChange(added=(NEW,)), **{NAME_MAPPING: MAPPING})
    [sent] = [update for update in updates if isinstance(update, SetPropertiesUpdate)]
    assert [*sent.updates] == [NAME_MAPPING]
    names = {field.field_id: field.names for field in parse_mapping_from_json(sent.updates[NAME_MAPPING]).root}
    assert (names[1], names[6]) == (["id"], ["new"])


@pytest.mark.parametrize(
    "change",
    [
        SchemaChange(added=(ColumnType(("n",), '"string"'),)),
        SchemaChange(widened=(ColumnType(("gone",), '"long"'),)),
        SchemaChange(widened=(ColumnType(("id",), '"long"'),)),
        SchemaChange(optional=(("gone",), ("m",))),
    ],
    ids=["there already", "widened and dropped", "wide already", "dropped or optional"],
)
def test_what_a_table_has_or_has_dropped_is_left_out(change: SchemaChange) -> None:
    assert evolved(change) == (SCHEMA, [])


def test_a_column_becomes_wider_and_optional_under_its_id() -> None:
    schema, _ = evolved(SchemaChange(widened=(ColumnType(("n",), '"long"'),), optional=(("n",),)))
    assert schema.find_field("n") == NestedField(2, "n", LongType(), required=False)
    assert schema.identifier_field_ids == [1]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (SchemaChange(optional=(("id",),)), "a column that identifies rows stays required"),
        (SchemaChange(widened=(ColumnType(("m", "key"), '"long"'),)), "no change in the key of a map"),
        (SchemaChange(added=(ColumnType(("m", "key", "new"), '"long"'),)), "no change in the key of a map"),
        (SchemaChange(added=(ColumnType(("gone", "new"), '"long"'),)), None),
        (SchemaChange(added=(ColumnType(("new",), '"tree"'),)), "a column has no valid type"),
    ],
    ids=["the key", "the key of a map", "within the key of a map", "no parent", "no type"],
)
def test_what_iceberg_forbids_is_impossible(change: SchemaChange, why: str | None) -> None:
    with pytest.raises(ChangeImpossible, match=why):
        evolved(change)
