"""What a batch does to its table: the mark, the ledger entry and the tags that its snapshot comes with."""

import uuid
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.types import LongType, NestedField

from lakesink_catalog.commit.batch_change import CommitOptions, batch_change
from lakesink_catalog.commit.batch_commit import FencedCommit
from lakesink_catalog.commit.decision import Decision, check_key, still_usable
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.evolution import evolve
from lakesink_catalog.commit.left_out import LeftOut
from lakesink_catalog.commit.premises import Premises, premises_of
from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_catalog.commit.prepared_changes import PreparedChanges
from lakesink_catalog.commit.table_change import Located, TagMove
from lakesink_protocol.change import ColumnType, ContentFile, SchemaChange
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.ledger import LedgerEntry, TableView, mark_of, parse_entry
from lakesink_protocol.row_changes import ChangeCounts, Mode
from lakesink_protocol.situation import Situation
from lakesink_protocol.tags import EveryBatches
from lakesink_protocol.verdict import Commit
from testkit.tasks import spec_of, table_in_memory
from tests.protocol.views import KEY, UUID, batch, chain, entry, mark, view

TABLE = table_in_memory(
    Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "at", LongType()), identifier_field_ids=[1])
)
SEEN = view(chain(batch(0), batch(1)), entry(batch(1), 2))
CHANGES = PreparedChanges((1,), (2,), (), 0, Mode.UPSERT)
OTHER_KEY = replace(CHANGES, key_ids=(2,))
SPECS = (spec_of("identity"),)


def decided(seen: TableView = SEEN, of: int = 2, **verdict: Any) -> Decision:
    return Decision(TABLE, Situation(seen, KEY, batch(of), UUID), Commit(12, **verdict), 0)


def prepared(**changes: Any) -> PreparedBatch:
    premises = premises_of(TABLE.metadata, 0, [0])
    assert premises is not None
    return replace(PreparedBatch(UUID, "main", 900, 0, premises, SEEN.entry, "", (), (), 0, 0, 0, 0), **changes)


def ledger(decision: Decision, **changes: Any) -> LedgerEntry:
    text = batch_change(decision, prepared(**changes), CommitOptions(), 0).properties[KEY.ledger_property]
    assert text is not None
    return parse_entry(text)


def test_the_ledger_moves_to_the_batch_and_its_snapshot() -> None:
    found = ledger(decided())
    assert (found.batch_id, found.snapshot_id, found.sequence_number, found.keys) == (2, 900, 3, ())
    assert found.fingerprint == batch(2).fingerprint
    assert ledger(decided(), changes=CHANGES).keys == (1,)


def test_an_old_batch_that_is_replayed_leaves_the_ledger_at_its_batch() -> None:
    found = ledger(decided(of=0, moves_ledger=False))
    assert SEEN.entry is not None
    assert found == replace(SEEN.entry, snapshot_id=900, sequence_number=3)
    assert ledger(decided(view(), of=0, moves_ledger=False)).batch_id == 0


@pytest.mark.parametrize(
    ("verdict", "facts", "outcome"),
    [
        ({}, {}, "committed"),
        ({}, {"recovered": True}, "recovered"),
        ({"accepted": "RolledBack:2:commit"}, {"recovered": True}, "accepted"),
    ],
)
def test_the_mark_says_how_the_batch_came(verdict: dict[str, Any], facts: dict[str, Any], outcome: str) -> None:
    found = batch_change(decided(**verdict), prepared(**facts), CommitOptions(), 0)
    mark = mark_of(found.says)
    assert mark is not None
    assert (mark.batch_id, mark.ledger_batch_id, mark.outcome) == (2, 2, outcome)
    assert (found.branch, found.head, found.snapshot_id) == ("main", 102, 900)
    assert (found.deletes, found.replaced) == ((), ())
    assert "lakesink.mode" not in found.says


@pytest.mark.parametrize("changelog", ["", "demo.changes"])
def test_a_batch_of_changes_says_what_became_of_them(changelog: str) -> None:
    delete = ContentFile("d", 0, (), 1, 9, {}, {}, {}, {}, {}, {}, ())
    located = Located(102, (delete,), counts=ChangeCounts(upserts=4, inserted=4))
    of_batch = prepared(changes=replace(CHANGES, changelog=changelog))
    found = batch_change(decided(), of_batch, CommitOptions(), 0, located)
    assert found.deletes == (delete,)
    assert (found.says["lakesink.mode"], found.says["lakesink.upserts"]) == ("upsert", "4")
    assert found.says.get("lakesink.changelog-table", "") == changelog


@pytest.mark.parametrize(("ledger_tag", "every", "names"), [(True, 2, 2), (True, 3, 1), (False, 2, 1), (False, 3, 0)])
def test_tags_are_those_that_are_wanted_and_due(ledger_tag: bool, every: int, names: int) -> None:  # noqa: FBT001 - a case
    options = CommitOptions(ledger_tag=ledger_tag, tag_every=EveryBatches(every), tag_max_age_ms=5)
    tags = batch_change(decided(), prepared(), options, 0).tags
    own = TagMove(KEY.ledger_tag, 102, 900, options.ledger_tag_max_age_ms)
    audit = TagMove(KEY.audit_tag(2), None, 900, 5)
    assert tags == (*([own] if ledger_tag else []), *([audit] if every == 2 else []))
    assert len(tags) == names


NEW_COLUMN = SchemaChange(added=(ColumnType(("new",), '"long"'),))
TWO_COLUMNS = NEW_COLUMN.with_more(SchemaChange(added=(ColumnType(("two",), '"long"'),)))


def bringing(change: SchemaChange) -> Premises:
    """The premises of files that have the columns of this change."""
    return replace(prepared().premises, schema=evolve(TABLE, change).table.schema())


@pytest.mark.parametrize(
    ("facts", "verdict", "usable"),
    [
        ({}, {}, True),
        ({"changes": CHANGES}, {}, True),
        ({"accepted": "RolledBack:2:commit"}, {"accepted": "RolledBack:2:commit"}, True),
        ({"accepted": "RolledBack:2:commit"}, {}, False),
        ({}, {"accepted": "RolledBack:2:commit"}, False),
        ({"follows": None}, {}, False),
        ({"follows": entry(batch(0), 1)}, {}, False),
        ({"snapshot_id": 101}, {}, False),
        ({"changes": OTHER_KEY}, {}, False),
        ({"changes": replace(CHANGES, key_ids=(1, 2))}, {}, False),
        ({"changes": replace(CHANGES, sequence_ids=(9,))}, {}, False),
        ({"schema_change": NEW_COLUMN}, {}, False),  # its files lack the column
        ({"schema_change": NEW_COLUMN, "premises": bringing(NEW_COLUMN)}, {}, True),
        ({"schema_change": TWO_COLUMNS, "premises": bringing(NEW_COLUMN)}, {}, False),
        ({"schema_change": NEW_COLUMN, "premises": bringing(NEW_COLUMN), "changes": CHANGES}, {}, True),
        ({"schema_change": NEW_COLUMN, "premises": bringing(NEW_COLUMN), "changes": OTHER_KEY}, {}, False),
        ({"schema_change": NEW_COLUMN, "premises": replace(bringing(NEW_COLUMN), specs=SPECS)}, {}, False),
        ({"schema_change": SchemaChange(added=(ColumnType(("none", "new"), '"long"'),))}, {}, False),
    ],
)
def test_what_was_prepared_is_used_if_nothing_has_changed(
    facts: dict[str, Any], verdict: dict[str, Any], *, usable: bool
) -> None:
    assert still_usable(decided(**verdict), prepared(**facts)) is usable


@pytest.mark.parametrize(
    ("before", "keys", "why"),
    [
        (None, [1], ""),
        (entry(batch(1), 2), [1], ""),
        (entry(batch(1), 2, keys=(1,)), [1], ""),
        (None, [2], "the table's identifier fields are"),
        (None, [1, 2], "the table's identifier fields are"),
        (entry(batch(1), 2, keys=(2,)), [1], "the sink's earlier batches had the key"),
        (entry(batch(1), 2, keys=(1, 9)), [1], "the sink's earlier batches had the key"),
    ],
)
def test_the_key_of_changes_is_that_of_the_table_and_of_earlier_batches(
    before: LedgerEntry | None, keys: list[int], why: str
) -> None:
    if not why:
        check_key(TABLE, before, keys)
    else:
        with pytest.raises(CatalogError, match=why) as error:
            check_key(TABLE, before, keys)
        assert error.value.code == "LAKESINK_KEY_CHANGED"


LANDED = entry(batch(2), 3, snapshot_id=900)
OF_ANOTHER = replace(LANDED, snapshot_id=901)


def answer(head: int = 900, ledger: LedgerEntry | None = LANDED, **parents: int | None) -> TableMetadata:
    """A table whose snapshot 102 has the batch 1; those behind it, with these parents, have the batch 2."""
    marks = {102: (None, batch(1)), **{int(name[1:]): (parent, batch(2)) for name, parent in parents.items()}}
    snapshots = [
        Snapshot(
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent,
            sequence_number=of.batch_id + 1,
            timestamp_ms=0,
            manifest_list="none",
            summary=Summary(Operation.APPEND, **mark(of).to_summary()),
        )
        for snapshot_id, (parent, of) in marks.items()
    ]
    main = SnapshotRef.model_validate({"snapshot-id": head, "type": "branch"})
    properties = {} if ledger is None else {KEY.ledger_property: ledger.to_json()}
    facts = {"snapshots": snapshots, "refs": {"main": main}, "properties": properties, "last_sequence_number": 3}
    return TABLE.metadata.model_copy(update={**facts, "table_uuid": uuid.UUID(UUID)})


@pytest.mark.parametrize(
    ("found", "leaves_out_parents", "shown"),
    [
        (answer(s900=102), False, True),
        (answer(s900=102), True, True),
        (answer(s900=None), True, True),
        (answer(s900=None), False, False),
        (answer(s900=101), True, False),
        (answer(102, SEEN.entry), False, False),
        (answer(102, SEEN.entry, s900=102), False, False),  # the branch stayed
        (answer(s900=102, ledger=None), False, False),
        (answer(901, OF_ANOTHER, s900=102, s901=102), False, False),
    ],
)
def test_an_answer_shows_a_batch_by_its_snapshot_on_the_head_and_its_ledger_entry(
    found: TableMetadata, *, leaves_out_parents: bool, shown: bool
) -> None:
    left_out = LeftOut()
    left_out.parents = leaves_out_parents
    fence = FencedCommit(lambda: TABLE, KEY, UUID, CommitOptions(), Effects(), left_out=left_out)
    assert fence.shows(found, decided(), batch(2), prepared()) is shown
