"""Positions are right on one head: whatever moves the head before the commit, they are located on the new one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import schema_to_pyarrow

from lakesink_catalog.commit.decision import check_key
from lakesink_catalog.commit.recovered import matches_keys_files
from lakesink_protocol import events
from lakesink_protocol.errors import CatalogError, CommitUnresolved
from lakesink_protocol.ledger import next_entry
from lakesink_protocol.outcome import Committed
from lakesink_protocol.retry import RetryPolicy
from lakesink_protocol.row_changes import ChangeCounts
from testkit.answers import lands_but_says, refuses_with
from tests.audit.deletes import delete_by_equality
from tests.catalog.keyed import Keyed, Locator, keyed_lake, local, shown

CONFLICT = CommitFailedException("Requirement failed: branch main has changed")


@pytest.fixture
def keyed(tmp_path: Path) -> Keyed:
    found = Keyed(keyed_lake(tmp_path))
    found.run({1: (0, 1), 2: (0, 2), 3: (0, 3)})
    return found


def insert(keyed: Keyed, key: int, value: int) -> None:
    """Another writer adds a row, perhaps of a key that is there."""
    table = keyed.lake.table()
    row = {"id": key, "part": 0, "value": value}
    table.append(pa.Table.from_pylist([row], schema=schema_to_pyarrow(table.schema())))


def compact(keyed: Keyed) -> None:
    """Another writer puts all rows into one new file."""
    table = keyed.lake.table()
    table.overwrite(table.scan().to_arrow().cast(schema_to_pyarrow(table.schema())))


def test_rows_are_located_once_on_a_head_that_stays(keyed: Keyed) -> None:
    prepared, locator = keyed.prepare({1: (0, 10)})
    head = keyed.lake.head().snapshot_id
    keyed.commit(prepared, locator)
    keyed.took({1: (0, 10)})
    assert locator.heads == [head]


@pytest.mark.parametrize("moves", [lambda keyed: insert(keyed, 1, 7), compact], ids=["insert", "compaction"])
def test_rows_that_another_writer_moved_before_the_commit_are_found(
    keyed: Keyed, moves: Callable[[Keyed], None]
) -> None:
    keyed.run({2: (0, 20)})
    outcome = keyed.run({1: (0, 10)}, {2}, meanwhile=lambda: moves(keyed))
    assert outcome.changes is not None
    assert (outcome.changes.updated, outcome.changes.deleted) == (1, 1)


@contextmanager
def _first(act: Callable[[], None], done: list[bool]) -> Iterator[None]:
    """A turn that another writer, which takes none, uses once."""
    if not done:
        done.append(True)
        act()
    yield


@pytest.mark.parametrize("moves", [lambda keyed: insert(keyed, 1, 7), compact], ids=["insert", "compaction"])
def test_rows_are_located_again_in_the_turn_if_the_head_has_moved(keyed: Keyed, moves: Callable[[Keyed], None]) -> None:
    told, done = list[events.Event](), list[bool]()
    keyed.emit = told.append
    prepared, locator = keyed.prepare({1: (0, 10)}, {2})
    before = keyed.lake.head().snapshot_id
    fence = replace(keyed.fence, turn=lambda: _first(lambda: moves(keyed), done))
    assert isinstance(fence.commit(keyed.batch, prepared, locator), Committed)
    head = keyed.lake.head().parent_snapshot_id
    assert locator.heads == [before, head]
    located = [event for event in told if isinstance(event, events.ChangesLocated | events.ChangesLocatedAgain)]
    assert [type(event) for event in located] == [
        events.ChangesLocated,
        events.ChangesLocatedAgain,
        events.ChangesLocated,
    ]
    assert [event.head for event in located] == [before, head, head]
    keyed.took({1: (0, 10)}, {2})


def test_a_refused_attempt_locates_again_only_on_another_head(keyed: Keyed) -> None:
    prepared, locator = keyed.prepare({1: (0, 10)})

    def loses(_: Callable[[], Any]) -> Any:
        insert(keyed, 2, 5)
        raise CONFLICT

    keyed.lake.catalog.faults = [refuses_with(CONFLICT), loses]
    outcome = keyed.commit(prepared, locator)
    assert isinstance(outcome, Committed)
    assert (outcome.attempts, len(locator.heads)) == (3, 2)
    assert sorted(row["value"] for row in keyed.lake.table().scan().to_arrow().to_pylist()) == [2, 3, 5, 10]


def test_a_commit_without_an_answer_is_found_with_its_counts(keyed: Keyed) -> None:
    prepared, locator = keyed.prepare({1: (0, 10), 8: (0, 80)}, {2, 9})
    keyed.lake.catalog.faults = [lands_but_says(TimeoutError("no answer"))]
    outcome = keyed.commit(prepared, locator)
    assert isinstance(outcome, Committed)
    assert outcome.changes == ChangeCounts(upserts=2, deletes=2, inserted=1, updated=1, deleted=1, absent=1)
    assert len(locator.heads) == 1
    keyed.took({1: (0, 10), 8: (0, 80)}, {2, 9})


def test_no_error_is_final_on_the_head_where_a_request_may_still_land(keyed: Keyed) -> None:
    """Where rows are located before the turn, the attempt that meets the error has already seen the same head."""
    prepared, locator = keyed.prepare({1: (0, 10)})
    catalog = keyed.lake.catalog
    catalog.faults = [catalog.arrives_late]
    missing = CatalogError("TABLE_MISSING", "The table is missing.", action="Look for it.")
    missed = list[bool]()

    @contextmanager
    def turn() -> Iterator[None]:
        if catalog.late and not missed:
            missed.append(True)
            catalog.load_faults = [missing]
        yield

    outcome = replace(keyed.fence, turn=turn).commit(keyed.batch, prepared, locator)
    assert isinstance(outcome, Committed)
    assert (outcome.attempts, len(locator.heads)) == (3, 1)
    with pytest.raises(CommitFailedException):
        catalog.late.pop()()
    keyed.took({1: (0, 10)})


def test_a_batch_whose_key_the_table_dropped_must_be_written_again(keyed: Keyed) -> None:
    prepared, locator = keyed.prepare({1: (0, 10)})
    with keyed.lake.table().update_schema() as schema:
        schema.set_identifier_fields()
    assert keyed.commit(prepared, locator) is None
    assert (locator.heads, shown(keyed.lake)) == ([], keyed.rows)


def test_a_key_that_was_renamed_is_the_same(keyed: Keyed) -> None:
    prepared, locator = keyed.prepare({}, {1})
    with keyed.lake.table().update_schema() as schema:
        schema.rename_column("value", "amount")
    assert isinstance(keyed.commit(prepared, locator), Committed)
    assert keyed.lake.table().scan().to_arrow().num_rows == 2


def refused(keyed: Keyed, key_ids: tuple[int, ...] = (1,), entry_keys: tuple[int, ...] | None = None) -> str:
    """The code with which a batch with this key is refused before its rows are written; empty if it is not."""
    table = keyed.lake.table()
    uuid = str(table.metadata.table_uuid)
    keys = key_ids if entry_keys is None else entry_keys
    entry = next_entry(keyed.batch, snapshot_id=1, sequence_number=1, table_uuid=uuid, keys=keys)
    try:
        check_key(table, entry, key_ids)
    except CatalogError as error:
        return error.code
    return ""


def test_a_key_is_that_of_the_table_and_of_the_ledger(keyed: Keyed) -> None:
    assert not refused(keyed)
    assert not refused(keyed, entry_keys=())
    check_key(keyed.lake.table(), None, (1,))
    assert refused(keyed, (3,)) == refused(keyed, (1, 3)) == refused(keyed, entry_keys=(3,)) == "LAKESINK_KEY_CHANGED"
    with keyed.lake.table().update_schema() as schema:
        schema.rename_column("id", "number")
    assert not refused(keyed)
    with keyed.lake.table().update_schema() as schema:
        schema.set_identifier_fields()
    assert refused(keyed) == "LAKESINK_KEY_CHANGED"


def test_another_key_is_named_by_its_columns(keyed: Keyed) -> None:
    table = keyed.lake.table()
    entry = next_entry(keyed.batch, snapshot_id=1, sequence_number=1, table_uuid="", keys=(3, 9))
    with pytest.raises(CatalogError, match=r"earlier batches had the key value, field 9 \(dropped\)"):
        check_key(table, entry, (1,))
    with pytest.raises(CatalogError, match="the table's identifier fields are id"):
        check_key(table, None, (3,))
    with table.update_schema() as schema:
        schema.set_identifier_fields()
    with pytest.raises(CatalogError, match="the table's identifier fields are none"):
        check_key(table, None, (1,))


def test_equality_deletes_are_refused_when_rows_are_located(keyed: Keyed) -> None:
    prepared, locator = keyed.prepare({1: (0, 10)})
    delete_by_equality(keyed.lake, 2)
    with pytest.raises(CatalogError) as found:
        keyed.commit(prepared, locator)
    assert found.value.code == "LAKESINK_EQUALITY_DELETES"


def test_a_locator_that_fails_is_tried_again_and_nothing_lands(keyed: Keyed) -> None:
    keyed.options = {"retry": RetryPolicy(num_retries=2)}
    prepared, _ = keyed.prepare({1: (0, 10)})

    class Failing(Locator):
        def __call__(self, _table: Any, head: int | None) -> Any:
            self.heads.append(head)
            raise OSError("no route to the storage")

    failing = Failing(frozenset({1}), frozenset(), keyed.memory)
    with pytest.raises(CommitUnresolved, match="no route"):
        keyed.commit(prepared, failing)
    assert (len(failing.heads), keyed.lake.catalog.sent[1:]) == (3, [])
    assert shown(keyed.lake) == keyed.rows


def test_a_keys_file_must_be_there_with_its_bytes(keyed: Keyed) -> None:
    prepared, _ = keyed.prepare({1: (0, 10)})
    io = keyed.lake.table().io
    assert prepared.is_there(io, map)
    assert matches_keys_files(prepared, io, map)
    assert prepared.changes is not None
    [file] = prepared.changes.keys_files
    data = local(file.path).read_bytes()
    local(file.path).write_bytes(data[:-1] + b"?")
    assert prepared.is_there(io, map)
    assert not matches_keys_files(prepared, io, map)
    local(file.path).write_bytes(data + b"?")
    assert not prepared.is_there(io, map)
    local(file.path).unlink()
    assert not prepared.is_there(io, map)
    assert not matches_keys_files(prepared, io, map)
