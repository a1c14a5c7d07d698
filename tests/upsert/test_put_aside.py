"""Changes that are put aside, and their replays: no newer row is replaced, and no deleted one comes back."""

import json
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import BooleanType, LongType, NestedField, StringType

from lakesink.rows.changed_rows import DELETE_MARK
from lakesink.rows.plan import DELETED
from lakesink.settings.relations import Entry
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.side.replay_loop import Repaired, ReplayLoop
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.errors import BatchRefused, WriteError
from lakesink_protocol.identity import Batch
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_tools.audit.audit import audit
from testkit.builders import TABLE, Lake, Stream
from testkit.deaths import Killed, dies_before
from testkit.letters import append_to, one_task
from tests.upsert.rows import live_rows

LETTERS = f"{TABLE}__dead_letters"
FIELDS = (
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "version", LongType()),
    NestedField(3, "name", StringType(), required=True),
)
ROWS = pa.schema([("id", pa.int64()), ("version", pa.int64()), ("name", pa.string()), (DELETE_MARK, pa.bool_())])
QUARANTINE = {"on_malformed": "quarantine", "max_dead_letter_ratio": 1.0}
OPTIONS = {"mode": "changes", "apply_as_deletes": "x", "keys": "id", "sequence_by": "version"}
Change = tuple[int | None, int, str | None]
"""Key, version, name; a change without a version of at least 0 is a delete."""
Row = dict[str, Any]


def table_of(changes: list[Change]) -> pa.Table:
    rows = [
        {"id": key, "version": abs(version), "name": name, DELETE_MARK: version < 0} for key, version, name in changes
    ]
    return pa.Table.from_pylist(rows, ROWS)


class Orders:
    """A stream of changes into a table with a key, and replays of its dead letters."""

    def __init__(self, folder: Path, **options: Any) -> None:
        more = [NestedField(4, DELETED, BooleanType())] if options.get("deletes") == "soft" else []
        self.lake = Lake.make(folder, schema=Schema(*FIELDS, *more, identifier_field_ids=[1]))
        self.options = OPTIONS | options
        self.stream = Stream(self.lake, options=self.options | QUARANTINE)

    def take(self, batch: int | Batch, *changes: Change, rows: pa.Table | None = None) -> Outcome:
        sink, columns = self.stream.sink(), (ROWS if rows is None else rows.schema).remove(3)
        driver = IcebergSink(sink.table, sink.key, sink.open_catalog, sink.settings, columns, effects=sink.effects)
        batch = self.stream.batch(batch) if isinstance(batch, int) else batch
        return run_batch(batch, [driver], one_task(rows or table_of([*changes])))[driver.name]

    def replay(
        self,
        repaired: Callable[[Row], Change | None],
        columns: Callable[[pa.Table], pa.Table] = lambda rows: rows,
        **options: Any,
    ) -> tuple[int, int, int]:
        """Replay the letters for whose rows this gives a change: the numbers of replays, letters, and pending ones."""

        def repair(letters: pa.Table, _: Table) -> Repaired:
            found = [
                (row["letter_id"], change)
                for row in letters.to_pylist()
                if (change := repaired(json.loads(row["payload"]) | {"operation": row["operation"]}))
            ]
            return Repaired([letter for letter, _ in found], columns(table_of([change for _, change in found])))

        def append(rows: pa.Table, *of_version: Any) -> Outcome:
            return append_to(lambda: self.lake.catalog, rows, *of_version)

        settings = Settings.parse(self.options | options, entry=Entry.REPLAY)
        loop = ReplayLoop(TABLE, LETTERS, settings, lambda: self.lake.catalog, self.lake.catalog, repair, append)
        done = loop.run()
        return done.replays, done.letters, done.pending

    @property
    def rows(self) -> list[Change]:
        return sorted((row["id"], row["version"], row["name"]) for row in live_rows(self.lake) if not row.get(DELETED))


def named(row: Row) -> Change:
    return row["id"], -row["version"] if row["operation"] == "delete" else row["version"], row["name"] or "repaired"


def test_the_older_row_of_the_key_stands_and_its_repair_replaces_it(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    orders.take(0, (1, 1, "a"), (2, 1, "b"))
    for _ in range(2):
        outcome = orders.take(1, (1, 2, None), (2, 2, "c"))
        assert orders.rows == [(1, 1, "a"), (2, 2, "c")]
    assert isinstance(outcome, AlreadyCommitted)
    assert audit(orders.lake.table()).findings == ()
    assert orders.replay(named) == (1, 1, 0)
    assert orders.rows == [(1, 2, "repaired"), (2, 2, "c")]
    assert audit(orders.lake.table()).findings == ()


def test_a_repaired_change_is_late_if_a_newer_one_has_come(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    orders.take(0, (1, 1, "a"))
    orders.take(1, (1, 2, None))
    orders.take(2, (1, 3, "newer"))
    assert orders.replay(named) == (1, 1, 0)
    assert orders.rows == [(1, 3, "newer")]


def test_a_repaired_row_does_not_replace_one_of_its_sequence_which_may_be_newer(tmp_path: Path) -> None:
    orders = Orders(tmp_path, changelog_table="demo.log")
    orders.take(0, (1, 1, "a"))
    orders.take(1, (1, 2, None))
    orders.take(2, (1, 2, "newer"))
    assert orders.replay(named) == (1, 1, 0)
    assert orders.rows == [(1, 2, "newer")]
    log = orders.lake.catalog.load_table("demo.log").scan().to_arrow().to_pylist()
    found = sorted((row["_operation"], row["version"], row["name"]) for row in log)
    assert found == [("snapshot", 2, "repaired"), ("upsert", 1, "a"), ("upsert", 2, "newer")]


@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_a_repaired_delete_removes_the_row_that_has_its_sequence(tmp_path: Path, deletes: str) -> None:
    orders = Orders(tmp_path, deletes=deletes)
    orders.take(0, (1, 2, "a"))
    orders.take(1, (None, -2, "a"))
    assert orders.replay(lambda row: named(row | {"id": 1})) == (1, 1, 0)
    assert orders.rows == []


def test_a_repaired_row_stays_deleted_if_its_delete_has_the_same_sequence(tmp_path: Path) -> None:
    """A delete of Debezium has the sequence of the row's last state."""
    orders = Orders(tmp_path, deletes="soft")
    orders.take(0, (1, 1, "a"), (2, 1, "b"))
    orders.take(1, (1, 2, None), (2, 2, None))
    orders.take(2, (1, -2, "a"))
    assert orders.replay(named) == (1, 2, 0)
    assert orders.rows == [(2, 2, "repaired")]


@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_a_repaired_change_brings_no_row_back_that_was_deleted_later(tmp_path: Path, deletes: str) -> None:
    orders = Orders(tmp_path, deletes=deletes)
    orders.take(0, (1, 1, "a"), (2, 1, "b"))
    orders.take(1, (1, 2, None))
    orders.take(2, (1, -3, "a"))
    if deletes == "hard":
        for _ in range(2):
            with pytest.raises(WriteError, match=r"KEYS_ABSENT.*has no rows for the keys of 1 change"):
                orders.replay(named)
        assert orders.replay(lambda _: None) == (0, 0, 1)  # the letter is still pending, and not assigned
    else:
        assert orders.replay(named) == (1, 1, 0)
    assert orders.rows == [(2, 1, "b")]


def test_the_row_of_a_key_that_is_new_is_inserted_if_the_operator_says_so(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    orders.take(0, (1, 1, None))
    with pytest.raises(WriteError, match="KEYS_ABSENT"):
        orders.replay(named)
    assert orders.replay(named, on_absent="insert") == (1, 1, 0)
    assert orders.rows == [(1, 1, "repaired")]


def test_a_repaired_delete_deletes_and_one_of_an_absent_key_has_no_effect(tmp_path: Path) -> None:
    orders = Orders(tmp_path, deletes="soft")
    orders.take(0, (1, 1, "a"), (2, 1, "b"))
    orders.take(1, (1, -2, None))
    assert orders.rows == [(1, 1, "a"), (2, 1, "b")]
    assert orders.replay(named) == (1, 1, 0)
    assert orders.rows == [(2, 1, "b")]


@pytest.mark.parametrize(
    "options", [{"sequence_by": "name"}, {"sequence_by": ["version", "name"]}, {"deletes": "soft"}]
)
def test_a_replay_that_orders_or_deletes_otherwise_than_its_sink_is_refused(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """An older change could replace a newer one, or bring a deleted row back."""
    orders = Orders(tmp_path)
    orders.take(0, (1, 1, "a"), (2, 1, None))
    orders.take(1, (1, 3, "newer"))
    [option] = options
    with pytest.raises(WriteError, match=f"REPAIR_INVALID.*The replay has {option}='.*', and events had") as refused:
        orders.replay(named, **options)
    assert (
        f"Give {option}='{'hard' if option == 'deletes' else 'version'}', as the sink has it." in refused.value.action
    )
    assert orders.rows == [(1, 3, "newer")]


def test_a_replay_orders_as_the_newest_batch_of_its_sink(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    orders.take(0, (1, 1, "a"), (1, 2, None))
    orders.stream.options |= {"sequence_by": ["version", "name"]}
    orders.take(1, (2, 1, "b"))
    with pytest.raises(WriteError, match="events had sequence_by='version, name'"):
        orders.replay(named)
    assert orders.replay(named, sequence_by="VERSION, name") == (1, 1, 0)
    assert orders.rows == [(1, 2, "repaired"), (2, 1, "b")]


def test_a_replay_is_ordered_by_offsets_only_as_its_sink(tmp_path: Path) -> None:
    """Its batches proved that there is one partition."""
    orders = Orders(tmp_path, sequence_by="_kafka_offset")
    with orders.lake.table().update_schema() as change:
        change.rename_column("version", "_kafka_offset")

    def positioned(rows: pa.Table) -> pa.Table:
        return rows.rename_columns({"version": "_kafka_offset"})

    orders.take(orders.stream.of_kafka(0, 0, 2), rows=positioned(table_of([(1, 1, "a"), (1, 2, None)])))
    assert orders.replay(lambda row: named({"version": row["_kafka_offset"], **row}), positioned) == (1, 1, 0)


@pytest.mark.parametrize("name", ["edition", "_kafka_offset"])
def test_an_order_is_not_compared_after_a_column_was_renamed(tmp_path: Path, name: str) -> None:
    orders = Orders(tmp_path)
    orders.take(0, (1, 1, "a"))
    orders.take(1, (1, 2, None))
    with orders.lake.table().update_schema() as change:
        change.rename_column("version", name)

    def renamed(rows: pa.Table) -> pa.Table:
        return rows.rename_columns({"version": name})

    if name == "edition":
        assert orders.replay(named, renamed, sequence_by=name) == (1, 1, 0)
    else:
        with pytest.raises(WriteError, match="SEQUENCE_OF_PARTITIONS"):
            orders.replay(named, renamed, sequence_by=name)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "append", "keys": None, "sequence_by": None}, "would append rows, and 2 dead letters changed rows"),
        ({"mode": "upsert"}, "1 dead letter may delete a row, and mode='upsert' would write it"),
    ],
)
def test_a_replay_in_another_mode_is_refused(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    orders = Orders(tmp_path, deletes="soft")
    orders.take(0, (1, 1, None), (2, -2, None))
    orders.options = OPTIONS | options
    orders.options.pop("apply_as_deletes")
    with pytest.raises(WriteError, match=said):
        orders.replay(named)
    assert orders.rows == []


def test_audit_counts_the_changes_of_a_replay_and_not_the_rows_that_it_adds(tmp_path: Path) -> None:
    orders = Orders(tmp_path, deletes="hard")
    orders.take(0, (1, 1, "a"), (2, 1, "b"), (3, 1, "c"))
    orders.take(1, (1, 2, None), (1, 3, None), (2, 2, None), (None, -2, None))
    orders.take(2, (2, 5, "newer"))
    assert orders.replay(lambda row: (3, -2, None) if row["operation"] == "delete" else named(row)) == (1, 4, 0)
    assert orders.rows == [(1, 3, "repaired"), (2, 5, "newer")]
    assert audit(orders.lake.table()).findings == ()


def test_a_begun_replay_ends_with_a_delete_in_place_of_a_row_that_was_deleted_meanwhile(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    orders.take(0, (1, 1, "a"), (2, 1, "b"))
    orders.take(1, (1, 2, None), (2, 2, None))
    orders.lake.catalog.faults = [operator.call, dies_before]
    with pytest.raises(Killed):
        orders.replay(named)
    orders.lake.catalog.faults = []
    orders.take(2, (1, -3, "a"))
    with pytest.raises(WriteError, match="KEYS_ABSENT"):
        orders.replay(named)
    with pytest.raises(WriteError, match=r"begun with 2 letters[\s\S]*return a delete"):
        orders.replay(lambda row: named(row) if row["id"] == 2 else None)
    assert orders.replay(lambda row: named(row) if row["id"] == 2 else (1, -2, "a")) == (1, 2, 0)
    assert orders.rows == [(2, 2, "repaired")]
    assert audit(orders.lake.table()).findings == ()


def test_a_change_of_an_unknown_kind_is_no_upsert(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    orders.take(0, (1, 1, "a"))
    unknown = table_of([(1, 2, "b")]).set_column(3, DELETE_MARK, pa.array([None], pa.bool_()))
    orders.take(1, rows=unknown)
    orders.options = {name: one for name, one in orders.options.items() if name != "apply_as_deletes"}
    with pytest.raises(WriteError, match="1 dead letter may delete a row, and mode='upsert' would write it"):
        orders.replay(named, mode="upsert")


def test_after_a_rollback_the_changes_of_replays_go_out_of_the_changelog_too(tmp_path: Path) -> None:
    orders = Orders(tmp_path, changelog_table="demo.log")
    orders.take(0, (1, 1, "a"))
    orders.take(1, (2, 1, None), (3, 1, "b"))
    assert orders.replay(named, on_absent="insert") == (1, 1, 0)
    orders.take(2, (1, 2, "c"))
    orders.lake.table().manage_snapshots().rollback_to_snapshot(orders.lake.table().snapshots()[0].snapshot_id).commit()
    log = orders.lake.catalog.load_table("demo.log")
    with pytest.raises(BatchRefused, match="changes of batches 1 to 2 and of 1 replay, which the table") as refused:
        orders.take(3, (4, 1, "d"))
    assert f"Roll demo.log back to snapshot {log.snapshots()[0].snapshot_id}." in refused.value.choices[0]


def test_changes_are_put_aside_beside_a_changelog_which_lacks_them(tmp_path: Path) -> None:
    orders = Orders(tmp_path, changelog_table="demo.log")
    outcome = orders.take(0, (1, 1, "a"), (None, 2, "b"), (2, 3, None), (1, -4, None))
    assert isinstance(outcome, Committed)
    assert orders.rows == []
    log = orders.lake.catalog.load_table("demo.log").scan().to_arrow().to_pylist()
    assert sorted((row["_operation"], row["id"], row["version"]) for row in log) == [("delete", 1, 4), ("upsert", 1, 1)]
    letters = orders.lake.catalog.load_table(LETTERS).scan().to_arrow().to_pylist()
    found = sorted((row["reason"], row["row_key"], row["row_sequence"]) for row in letters)
    assert found == [("KEY_NULL", None, '{"version":2}'), ("NULL_IN_REQUIRED", '{"id":2}', '{"version":3}')]
    assert audit(orders.lake.table()).findings == ()
