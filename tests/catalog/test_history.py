"""What a table tells about its batches and sinks, from real commits, rollbacks and expiries."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.update import RemovePropertiesUpdate, RemoveSnapshotsUpdate, SetPropertiesUpdate, TableUpdate

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.history import sinks
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_protocol.errors import Reason
from lakesink_protocol.identity import SinkKind
from lakesink_protocol.refusals.accept import accept_of
from lakesink_tools.past.records import history
from testkit.batches import Writer


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = connect("test", {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"})
    create_table(catalog, "demo.events", pa.schema([("id", pa.int64())]))
    return catalog


@pytest.fixture
def writer(catalog: Catalog) -> Writer:
    return Writer(catalog)


def load(catalog: Catalog) -> Table:
    return load_table(catalog, "demo.events")


def change(catalog: Catalog, *updates: TableUpdate) -> None:
    catalog.commit_table(load(catalog), (), updates)


def roll_back(catalog: Catalog, snapshot_id: int) -> None:
    load(catalog).manage_snapshots().set_current_snapshot(snapshot_id).commit()


def test_a_table_without_batches_has_no_history(catalog: Catalog) -> None:
    assert history(load(catalog)) == []
    assert sinks(load(catalog)) == []


def test_every_batch_leaves_a_record_with_its_facts(catalog: Catalog, writer: Writer) -> None:
    writer.commit(0, rows=10)
    writer.commit(1, rows=0)
    writer.commit(2, rows=7, recovered=True)
    records = history(load(catalog))
    assert [(record.batch_id, record.rows, record.files, record.bytes) for record in records] == [
        (0, 10, 1, 1000),
        (1, 0, 0, 0),
        (2, 7, 1, 700),
    ]
    assert [record.outcome for record in records] == ["committed", "committed", "recovered"]
    assert [record.sequence_number for record in records] == [1, 2, 3]
    first = records[0]
    assert (first.sink, first.branch, first.kind, first.offsets) == ("events", "main", "stream", '[{"at":1}]')
    snapshot = load(catalog).metadata.snapshots[0]
    assert first.snapshot_id == snapshot.snapshot_id
    assert first.committed_at == datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
    assert all(record.in_branch for record in records)


def test_foreign_snapshots_are_no_records(catalog: Catalog, writer: Writer) -> None:
    writer.commit(0)
    load(catalog).append(pa.table({"id": pa.array([1], pa.int64())}))
    writer.commit(1)
    assert [record.batch_id for record in history(load(catalog))] == [0, 1]
    assert len(load(catalog).metadata.snapshots) == 3


def test_records_of_one_sink_or_branch_can_be_had_alone(catalog: Catalog, writer: Writer) -> None:
    writer.commit(0)
    load(catalog).manage_snapshots().create_branch(load(catalog).metadata.current_snapshot_id or 0, "audit").commit()
    Writer(catalog, sink="other", query="other", branch="audit", clock=writer.clock).commit(0)
    Writer(catalog, sink="nightly", query="nightly", kind=SinkKind.TXN, clock=writer.clock).commit(42)
    assert [(record.sink, record.kind) for record in history(load(catalog))] == [
        ("events", "stream"),
        ("other", "stream"),
        ("nightly", "txn"),
    ]
    assert [record.sink for record in history(load(catalog), sink="nightly")] == ["nightly"]
    assert [record.sink for record in history(load(catalog), branch="audit")] == ["other"]
    assert [(state.sink, state.branch, state.batch_id) for state in sinks(load(catalog))] == [
        ("events", "main", 0),
        ("nightly", "main", 42),
        ("other", "audit", 0),
    ]
    assert all(record.in_branch for record in history(load(catalog)))


def test_a_sink_stands_where_its_last_batch_is(catalog: Catalog, writer: Writer) -> None:
    for batch_id in range(3):
        writer.commit(batch_id)
    (state,) = sinks(load(catalog))
    newest, oldest = history(load(catalog))[-1], history(load(catalog))[0]
    assert (state.batch_id, state.snapshot_id, state.offsets) == (2, newest.snapshot_id, '[{"at":3}]')
    assert (state.committed_at, state.since) == (newest.committed_at, oldest.committed_at)
    assert (state.batches, state.rows, state.files, state.bytes) == (3, 30, 3, 3000)
    assert (state.trouble, state.unverifiable) == (None, False)


def test_a_sink_is_known_after_all_its_snapshots_expired(catalog: Catalog, writer: Writer) -> None:
    for batch_id in range(2):
        writer.commit(batch_id)
    load(catalog).append(pa.table({"id": pa.array([1], pa.int64())}))
    load(catalog).manage_snapshots().remove_tag(writer.key.ledger_tag).commit()
    expired = [record.snapshot_id for record in history(load(catalog))]
    change(catalog, RemoveSnapshotsUpdate(snapshot_ids=expired))
    assert history(load(catalog)) == []
    (state,) = sinks(load(catalog))
    assert (state.batch_id, state.snapshot_id) == (1, expired[1])
    assert (state.committed_at, state.since, state.batches) == (None, None, 0)
    assert state.trouble is None


def test_a_rolled_back_batch_is_told_from_one_in_the_branch(catalog: Catalog, writer: Writer) -> None:
    for batch_id in range(3):
        writer.commit(batch_id)
    roll_back(catalog, history(load(catalog))[1].snapshot_id)
    assert [record.in_branch for record in history(load(catalog))] == [True, True, False]
    (state,) = sinks(load(catalog))
    assert (state.trouble, state.batches, state.rows) == (Reason.ROLLED_BACK, 2, 20)


def test_where_expiry_cut_the_path_nothing_is_claimed(catalog: Catalog, writer: Writer) -> None:
    for batch_id in range(3):
        writer.commit(batch_id)
    records = history(load(catalog))
    load(catalog).manage_snapshots().create_tag(records[0].snapshot_id, "keep").commit()
    change(catalog, RemoveSnapshotsUpdate(snapshot_ids=[records[1].snapshot_id]))
    assert [record.in_branch for record in history(load(catalog))] == [None, True]


def test_a_lost_ledger_is_trouble(catalog: Catalog, writer: Writer) -> None:
    writer.commit(0)
    change(catalog, RemovePropertiesUpdate(removals=[writer.key.ledger_property]))
    (state,) = sinks(load(catalog))
    assert (state.trouble, state.batch_id, state.offsets) == (Reason.LEDGER_LOST, 0, '[{"at":1}]')


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version":99}', "\x00" * 10])
def test_a_damaged_ledger_is_trouble(catalog: Catalog, writer: Writer, text: str) -> None:
    writer.commit(0)
    change(catalog, SetPropertiesUpdate(updates={writer.key.ledger_property: text}))
    (state,) = sinks(load(catalog))
    assert (state.trouble, state.batch_id) == (Reason.LEDGER_DAMAGED, 0)


def test_a_forged_entry_is_trouble(catalog: Catalog, writer: Writer) -> None:
    writer.commit(0)
    entry = load(catalog).properties[writer.key.ledger_property]
    forged = entry.replace('"batch_id":0', '"batch_id":999')
    assert forged != entry
    change(catalog, SetPropertiesUpdate(updates={writer.key.ledger_property: forged}))
    assert [state.trouble for state in sinks(load(catalog))] == [Reason.LEDGER_DAMAGED]


def test_a_dropped_branch_is_trouble(catalog: Catalog, writer: Writer) -> None:
    writer.commit(0)
    load(catalog).manage_snapshots().create_branch(load(catalog).metadata.current_snapshot_id or 0, "audit").commit()
    Writer(catalog, sink="other", query="other", branch="audit", clock=writer.clock).commit(0)
    load(catalog).manage_snapshots().remove_branch("audit").commit()
    troubles = {state.sink: state.trouble for state in sinks(load(catalog))}
    assert troubles == {"events": None, "other": Reason.BRANCH_MISSING}
    assert [record.in_branch for record in history(load(catalog), sink="other")] == [False]


def test_an_accepted_batch_says_what_was_overruled(catalog: Catalog, writer: Writer) -> None:
    writer.commit(0)
    word = str(accept_of(Reason.GAP, writer.situation(5), adds_rows=True))
    writer.commit(5, accept=word)
    last = history(load(catalog))[-1]
    assert (last.batch_id, last.outcome, last.accepted) == (5, "accepted", word)


@pytest.mark.parametrize(
    "name", ["", "stream", "stream.", "stream.a@", "stream..a", "tree.a", "stream.a b", "txn.@main"]
)
def test_properties_that_are_no_ledger_entries_are_passed_over(catalog: Catalog, name: str) -> None:
    change(catalog, SetPropertiesUpdate(updates={f"lakesink.ledger.{name}": "{}"}))
    assert sinks(load(catalog)) == []


def test_summaries_that_others_wrote_badly_do_not_break_the_history(catalog: Catalog) -> None:
    lies = {"lakesink.version": "1", "lakesink.sink-id": "x", "lakesink.branch": "main", "lakesink.batch-id": "nine"}
    load(catalog).append(pa.table({"id": pa.array([1], pa.int64())}), snapshot_properties=lies)
    load(catalog).append(
        pa.table({"id": pa.array([1], pa.int64())}), snapshot_properties=lies | {"lakesink.batch-id": "9"}
    )
    assert [record.batch_id for record in history(load(catalog))] == [9]
    assert [state.trouble for state in sinks(load(catalog))] == [Reason.LEDGER_LOST]
