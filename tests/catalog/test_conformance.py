"""What the guarantee rests on, asked alike of every certified kind of catalog; rivals are in `test_certified`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update import AssertRefSnapshotId, SetCurrentSchemaUpdate, SetPropertiesUpdate
from pyiceberg.types import IntegerType, LongType

from lakesink_catalog.commit.request import is_current
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.history import sinks
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_protocol.change import ColumnType, SchemaChange
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_tools.past.records import history
from testkit.batches import Writer

NAME = "lake"


@pytest.fixture
def writer(properties: dict[str, Any], tmp_path: Path) -> Writer:
    catalog = connect(NAME, properties)
    table = f"{tmp_path.name}.events"
    create_table(catalog, table, pa.schema([("id", pa.int64())]))
    return Writer(catalog, table)


def again(writer: Writer, properties: dict[str, Any]) -> Writer:
    """By a driver that has just started, on a connection of its own."""
    return replace(writer, catalog=connect(NAME, properties))


def numbers(writer: Writer) -> list[int]:
    return [record.batch_id for record in history(writer.load(), sink=writer.sink)]


def snapshot(writer: Writer, batch_id: int) -> int:
    outcome = writer.commit(batch_id)
    assert isinstance(outcome, Committed)
    return outcome.snapshot_id


def test_a_replayed_batch_is_recognised_by_another_driver(writer: Writer, properties: dict[str, Any]) -> None:
    snapshots = [snapshot(writer, batch_id) for batch_id in range(3)]
    assert again(writer, properties).commit(2) == AlreadyCommitted(snapshots[2])
    assert numbers(writer) == [0, 1, 2]


def test_expiry_of_older_batches_leaves_what_a_replay_needs(writer: Writer, properties: dict[str, Any]) -> None:
    first, second = snapshot(writer, 0), snapshot(writer, 1)
    writer.load().maintenance.expire_snapshots().by_id(first).commit()
    assert writer.load().metadata.snapshot_by_id(first) is None
    assert again(writer, properties).commit(1) == AlreadyCommitted(second)
    assert numbers(writer) == [1]


def test_a_commit_that_asserts_an_old_head_is_refused_and_changes_nothing(writer: Writer) -> None:
    old = snapshot(writer, 0)
    snapshot(writer, 1)
    table = writer.load()
    with pytest.raises(CommitFailedException):
        table.catalog.commit_table(
            table,
            (AssertRefSnapshotId(ref="main", snapshot_id=old),),
            (SetPropertiesUpdate(updates={"moved": "yes"}),),
        )
    assert "moved" not in writer.load().properties


def test_a_foreign_commit_in_between_is_gone_round(writer: Writer, properties: dict[str, Any]) -> None:
    snapshot(writer, 0)
    with again(writer, properties).load().transaction() as other:
        other.set_properties(owner="somebody else")
    snapshot(writer, 1)
    assert numbers(writer) == [0, 1]
    assert writer.load().properties["owner"] == "somebody else"


def test_sinks_of_one_table_each_have_their_ledger(writer: Writer) -> None:
    other = replace(writer, sink="other", query="q2")
    for batch_id in range(2):
        snapshot(writer, batch_id)
        snapshot(other, batch_id)
    assert {(state.sink, state.batch_id, state.trouble) for state in sinks(writer.load())} == {
        ("events", 1, None),
        ("other", 1, None),
    }


def test_a_branch_has_batches_of_its_own(writer: Writer) -> None:
    first = snapshot(writer, 0)
    writer.load().manage_snapshots().create_branch(first, "audit").commit()
    snapshot(replace(writer, sink="audited", branch="audit", query="q2"), 0)
    head = writer.load().metadata.current_snapshot()
    assert head is not None
    assert head.snapshot_id == first


def test_an_empty_batch_is_a_batch(writer: Writer) -> None:
    snapshot(writer, 0)
    assert isinstance(writer.commit(1, rows=0), Committed)
    assert isinstance(writer.commit(1, rows=0), AlreadyCommitted)


def test_a_table_that_is_not_there_is_named(writer: Writer) -> None:
    with pytest.raises(CatalogError, match="LAKESINK_TABLE_MISSING"):
        load_table(writer.catalog, f"{writer.table}x")


NEW_COLUMN = SchemaChange(added=(ColumnType(("new",), '"string"'),))


def names(writer: Writer) -> list[str]:
    return [one.name for one in writer.load().schema().fields]


def test_schema_and_rows_change_in_one_commit(writer: Writer, properties: dict[str, Any]) -> None:
    first = snapshot(writer, 0)
    outcome = writer.commit(1, schema_change=NEW_COLUMN)
    assert isinstance(outcome, Committed)
    table = again(writer, properties).load()
    assert [one.name for one in table.schema().fields] == ["id", "new"]
    assert table.metadata.last_column_id == 2
    assert [one.schema_id for one in table.snapshots() if one.snapshot_id in (first, outcome.snapshot_id)] == [0, 1]
    assert len(table.metadata.schemas) == 2
    assert outcome.schema_change == "added new"
    assert isinstance(again(writer, properties).commit(1, schema_change=NEW_COLUMN), AlreadyCommitted)
    snapshot(writer, 2)
    assert len(writer.load().metadata.schemas) == 2


def test_a_wider_type_and_an_optional_column_are_a_change_too(writer: Writer, properties: dict[str, Any]) -> None:
    with writer.load().update_schema(allow_incompatible_changes=True) as update:
        update.add_column("n", IntegerType(), required=True)
    change = SchemaChange(widened=(ColumnType(("n",), '"long"'),), optional=(("n",),))
    assert isinstance(writer.commit(0, schema_change=change), Committed)
    found = again(writer, properties).load().schema().find_field("n")
    assert (found.field_type, found.required, found.field_id) == (LongType(), False, 2)


def test_a_foreign_column_in_between_lets_the_batch_be_written_again(
    writer: Writer, properties: dict[str, Any]
) -> None:
    def meanwhile() -> None:
        with again(writer, properties).load().update_schema() as update:
            update.add_column("foreign", LongType())

    assert writer.commit(0, schema_change=NEW_COLUMN, meanwhile=meanwhile) is None
    assert names(writer) == ["id", "foreign"]
    assert isinstance(writer.commit(0, schema_change=NEW_COLUMN), Committed)
    assert [(one.name, one.field_id) for one in writer.load().schema().fields] == [
        ("id", 1),
        ("foreign", 2),
        ("new", 3),
    ]


def test_the_same_column_of_another_writer_needs_no_second_one(writer: Writer, properties: dict[str, Any]) -> None:
    other = replace(again(writer, properties), sink="other", query="q2")
    outcome = writer.commit(0, schema_change=NEW_COLUMN, meanwhile=lambda: other.commit(0, schema_change=NEW_COLUMN))
    assert isinstance(outcome, Committed)
    assert (names(writer), len(writer.load().metadata.schemas)) == (["id", "new"], 2)


def test_a_schema_that_the_table_has_already_is_made_current(writer: Writer, properties: dict[str, Any]) -> None:
    """A service refuses an equal schema once more."""
    with writer.load().update_schema() as update:
        update.add_column("n", IntegerType())
    change = SchemaChange(widened=(ColumnType(("n",), '"long"'),))
    assert isinstance(writer.commit(0, schema_change=change), Committed)
    table = writer.load()
    narrow, wide = table.schemas()[1].schema_id, table.schema().schema_id
    table.catalog.commit_table(table, (), (SetCurrentSchemaUpdate(schema_id=narrow),))
    assert isinstance(again(writer, properties).commit(1, schema_change=change), Committed)
    metadata = writer.load().metadata
    assert (metadata.current_schema_id, len(metadata.schemas)) == (wide, 3)


def test_a_request_tells_whether_a_table_is_as_it_was_loaded_and_changes_nothing(writer: Writer) -> None:
    empty = writer.load()
    assert is_current(empty, "main")
    snapshot(writer, 0)
    table = writer.load()
    assert (is_current(empty, "main"), is_current(table, "main")) == (False, True)
    after = writer.load().metadata
    assert (after.current_schema_id, after.refs) == (table.metadata.current_schema_id, table.metadata.refs)
    table.catalog.drop_table(writer.table)
    create_table(table.catalog, writer.table, pa.schema([("id", pa.int64())]))
    assert not is_current(empty, "main")
