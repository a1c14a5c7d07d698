"""One commit attempt and the loop around it: what is asserted, what is changed, how often, how long."""

import logging
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)
from pyiceberg.types import LongType

from lakesink_catalog.commit.change_commit import ChangeCommit
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.evolution import evolve
from lakesink_catalog.commit.prepared import SNAPSHOT_IDS
from lakesink_catalog.commit.request import snapshot_on
from lakesink_catalog.commit.table_change import Change
from lakesink_protocol.change import ColumnType, SchemaChange
from lakesink_protocol.errors import CatalogError, CommitUnresolved
from lakesink_protocol.events import SchemaEvolved, SchemaIdTaken
from lakesink_protocol.fence import Unseen
from lakesink_protocol.identity import Batch, SinkKey, stream_batch
from lakesink_protocol.ledger import mark_of, parse_entry
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_protocol.retry import RetryPolicy
from lakesink_protocol.verdict import Commit
from testkit.answers import ERRORS, lands_but_says, refuses_with, says_yes_and_shows_what_was
from testkit.builders import START_MS, Apply, Chance, Lake
from testkit.commits import fence_of
from testkit.maintenance import append_foreign, branch_off, change, remove_ref, replace_table, roll_back, upgrade

KEY = SinkKey("events")
FIRST = stream_batch(0, "q", start=[0], end=[1])
T = TypeVar("T")


class Fence:
    """Commits empty batches one after another; their files are no matter here."""

    def __init__(self, lake: Lake, key: SinkKey = KEY, **options: Any) -> None:
        self.lake, self.key, self.chance, self.loads = lake, key, Chance(), 0
        self.options = options

    def load(self) -> Table:
        self.loads += 1
        return self.lake.table()

    def commit(self, batch: Batch | int) -> Committed | AlreadyCommitted | None:
        fence = replace(fence_of(self.lake.table, self.key, self.chance.effects(), **self.options), load=self.load)
        batch = batch if isinstance(batch, Batch) else stream_batch(batch, "q", start=[batch], end=[batch + 1])
        decision = fence.decide_on(self.lake.table(), batch)
        assert isinstance(decision.verdict, Commit)
        return fence.commit(batch, fence.prepare(decision, [], schema=decision.table.schema()))


@pytest.fixture
def fence(lake: Lake) -> Fence:
    return Fence(lake)


def asserted(lake: Lake, kind: type[T]) -> list[T]:
    return [requirement for requirement in lake.catalog.sent[-1][0] if isinstance(requirement, kind)]


def changed(lake: Lake, kind: type[T]) -> list[T]:
    return [update for update in lake.catalog.sent[-1][1] if isinstance(update, kind)]


def heads(lake: Lake) -> dict[str, int | None]:
    return {requirement.ref: requirement.snapshot_id for requirement in asserted(lake, AssertRefSnapshotId)}


def test_a_commit_asserts_table_schema_head_and_tag(lake: Lake, fence: Fence) -> None:
    fence.commit(0)
    assert heads(lake) == {"main": None}
    first = lake.head().snapshot_id
    fence.commit(1)
    second = lake.head().snapshot_id
    append_foreign(lake)
    fence.commit(2)
    assert heads(lake) == {"main": lake.head().parent_snapshot_id, "lakesink-events": second}
    assert first not in heads(lake).values()
    [table] = asserted(lake, AssertTableUUID)
    [schema] = asserted(lake, AssertCurrentSchemaId)
    assert (table.uuid, schema.current_schema_id) == (lake.table().metadata.table_uuid, 0)


def test_the_first_commit_of_a_sink_asserts_that_it_has_no_tag(lake: Lake, fence: Fence) -> None:
    append_foreign(lake)
    fence.commit(0)
    assert heads(lake) == {"main": lake.head().parent_snapshot_id, "lakesink-events": None}


def test_a_commit_to_a_branch_asserts_that_branch_and_leaves_main(lake: Lake) -> None:
    append_foreign(lake)
    branch_off(lake, "audit/x")
    main = lake.head().snapshot_id
    fence = Fence(lake, SinkKey("events", "audit/x"))
    fence.commit(0)
    fence.commit(1)
    assert set(heads(lake)) == {"audit/x", "lakesink-events@audit%2Fx"}
    assert lake.head().snapshot_id == main
    assert lake.head("audit/x").snapshot_id != main


def test_snapshot_mark_entry_and_tag_change_in_one_request(lake: Lake, fence: Fence) -> None:
    fence.commit(0)
    outcome = fence.commit(1)
    assert isinstance(outcome, Committed)
    [added] = changed(lake, AddSnapshotUpdate)
    [properties] = changed(lake, SetPropertiesUpdate)
    refs = {update.ref_name: update for update in changed(lake, SetSnapshotRefUpdate)}
    assert {ref.snapshot_id for ref in refs.values()} == {added.snapshot.snapshot_id} == {outcome.snapshot_id}
    assert {name: ref.type for name, ref in refs.items()} == {
        "main": SnapshotRefType.BRANCH,
        "lakesink-events": SnapshotRefType.TAG,
    }
    assert refs["lakesink-events"].max_ref_age_ms == 30 * 24 * 3_600_000
    entry, mark = parse_entry(properties.updates[KEY.ledger_property]), mark_of(added.snapshot.summary)
    assert mark is not None
    assert (entry.snapshot_id, entry.sequence_number) == (added.snapshot.snapshot_id, 2)
    assert entry.table_uuid == str(lake.table().metadata.table_uuid)
    same = ("batch_id", "query_id", "fingerprint", "end", "offsets")
    assert [getattr(entry, name) for name in same] == [getattr(mark, name) for name in same]
    assert (mark.key, mark.outcome, mark.accepted) == (KEY, "committed", "")
    assert len(lake.catalog.sent) == 2


def test_where_tags_are_refused_none_is_asserted_or_set(lake: Lake) -> None:
    fence = Fence(lake, ledger_tag=False)
    for batch_id in range(3):
        fence.commit(batch_id)
    assert set(heads(lake)) == set(lake.table().metadata.refs) == {"main"}


def test_snapshots_follow_the_head_and_their_ids_are_random(lake: Lake, fence: Fence) -> None:
    for batch_id in range(5):
        fence.commit(batch_id)
    snapshots = lake.table().metadata.snapshots
    assert [snapshot.sequence_number for snapshot in snapshots] == [1, 2, 3, 4, 5]
    assert [snapshot.parent_snapshot_id for snapshot in snapshots] == [
        None,
        *(snapshot.snapshot_id for snapshot in snapshots[:-1]),
    ]
    drawn = [Effects().new_snapshot_id() for _ in range(1000)]
    assert len(set(drawn)) == 1000
    assert all(number in SNAPSHOT_IDS for number in drawn)


def test_time_never_runs_backwards_in_the_table(lake: Lake, fence: Fence, caplog: pytest.LogCaptureFixture) -> None:
    for batch_id, jump_ms in enumerate([0, -30_000, -3_600_000, -(10**12), +(10**9)]):
        fence.chance.move_ms(jump_ms)
        fence.commit(batch_id)
        assert lake.table().metadata.last_updated_ms == lake.head().timestamp_ms
    times = [entry.timestamp_ms for entry in lake.table().metadata.snapshot_log]
    assert times == sorted(times)
    assert [snapshot.timestamp_ms for snapshot in lake.table().metadata.snapshots] == times
    assert "lakesink.clock.behind" in caplog.text


def test_a_clock_that_is_a_little_behind_is_not_worth_a_word(
    lake: Lake, fence: Fence, caplog: pytest.LogCaptureFixture
) -> None:
    fence.commit(0)
    fence.chance.move_ms(-30_000)
    fence.commit(1)
    assert "lakesink.clock.behind" not in caplog.text
    assert lake.head().timestamp_ms >= START_MS


@pytest.mark.parametrize("branch", ["main", "audit"])
def test_how_long_a_branch_keeps_its_snapshots_is_left_as_it_was(lake: Lake, branch: str) -> None:
    append_foreign(lake)
    change(
        lake,
        SetSnapshotRefUpdate(
            ref_name=branch,
            type=SnapshotRefType.BRANCH,
            snapshot_id=lake.head().snapshot_id,
            max_ref_age_ms=None if branch == "main" else 777,
            max_snapshot_age_ms=888,
            min_snapshots_to_keep=9,
        ),
    )
    before = lake.table().metadata.refs[branch]
    Fence(lake, SinkKey("events", branch)).commit(0)
    after = lake.table().metadata.refs[branch]
    assert after.snapshot_id != before.snapshot_id
    assert after.model_copy(update={"snapshot_id": before.snapshot_id}) == before


def test_the_users_own_properties_are_in_every_snapshot_and_never_over_ours(lake: Lake) -> None:
    own = (("app.version", "7"), ("lakesink.batch-id", "999"), ("added-records", "999"))
    fence = Fence(lake, snapshot_properties=own)
    fence.commit(0)
    summary = lake.head().summary
    assert summary is not None
    assert (summary["app.version"], summary["lakesink.batch-id"]) == ("7", "0")


def test_every_attempt_looks_at_the_table_as_it_is_then(lake: Lake, fence: Fence) -> None:
    lake.catalog.faults = [refuses_with(ERRORS["409 conflict"])] * 3
    outcome = fence.commit(0)
    assert isinstance(outcome, Committed)
    assert (outcome.attempts, fence.loads) == (4, 4)


def test_an_attempt_writes_a_manifest_list_and_nothing_else(lake: Lake, fence: Fence) -> None:
    fence.commit(0)
    before = lake.files()
    lake.catalog.faults = [refuses_with(ERRORS["409 conflict"])] * 3
    fence.commit(1)
    added = {path.name.partition("-")[0] for path in lake.files() - before if path.suffix == ".avro"}
    assert added == {"snap"}
    assert len([path for path in lake.files() - before if path.suffix == ".avro"]) == 4


@pytest.mark.parametrize(
    ("policy", "attempts", "waits"),
    [
        (RetryPolicy(num_retries=0), 1, []),
        (RetryPolicy(num_retries=3, min_wait_ms=100, max_wait_ms=10_000), 4, [75, 150, 300]),
        (RetryPolicy(num_retries=5, min_wait_ms=100, max_wait_ms=250), 6, [75, 150, 187.5, 187.5, 187.5]),
        (RetryPolicy(num_retries=99, min_wait_ms=1000, max_wait_ms=1000, total_timeout_ms=2000), 3, [750, 750]),
        (RetryPolicy(num_retries=99, min_wait_ms=1000, max_wait_ms=1000, total_timeout_ms=1500), 3, [750, 750]),
        (RetryPolicy(num_retries=9, min_wait_ms=2**53, max_wait_ms=2**53, total_timeout_ms=2000), 1, []),
        (RetryPolicy(num_retries=3, min_wait_ms=0), 4, [0, 0, 0]),
    ],
    ids=["none", "doubling", "capped", "timed out", "at the time-out", "at once", "without waiting"],
)
def test_attempts_are_bounded_in_number_and_time(
    lake: Lake, policy: RetryPolicy, attempts: int, waits: list[float]
) -> None:
    fence = Fence(lake, retry=policy)
    lake.catalog.faults = [refuses_with(ERRORS["time-out"])] * 200
    with pytest.raises(CommitUnresolved):
        fence.commit(0)
    assert len(lake.catalog.sent) == attempts
    assert fence.chance.waited_ms == waits


def test_an_unresolved_commit_says_so_shortly_and_keeps_secrets(
    lake: Lake, fence: Fence, caplog: pytest.LogCaptureFixture
) -> None:
    said = OSError("postgresql://lake:hunter2@db/x said " + "no " * 500 + "\nand more")
    lake.catalog.faults = [refuses_with(said)] * 200
    with caplog.at_level(logging.DEBUG), pytest.raises(CommitUnresolved) as unresolved:
        fence.commit(0)
    first_line = str(unresolved.value).partition("\n")[0]
    assert first_line.startswith("[LAKESINK_COMMIT_UNRESOLVED] Batch 0 ")
    assert len(first_line) < 200
    assert "OSError" in unresolved.value.data
    assert "hunter2" not in str(unresolved.value) + caplog.text
    assert unresolved.value.__context__ is None


@pytest.mark.parametrize("key", [KEY, SinkKey("events", "audit")], ids=["main", "branch"])
def test_the_same_prepared_batch_commits_once_however_often_it_is_tried(lake: Lake, key: SinkKey) -> None:
    append_foreign(lake)
    branch_off(lake, "audit")
    fence = fence_of(lake.table, key, Chance().effects())
    batch = stream_batch(0, "q", start=[0], end=[1])
    decision = fence.decide(batch)
    prepared = fence.prepare(decision, [], schema=decision.table.schema())
    lake.catalog.faults = [lands_but_says(ERRORS["503 unavailable"])]
    outcomes = [fence.commit(batch, prepared) for _ in range(3)]
    assert {outcome.snapshot_id for outcome in outcomes if outcome} == {prepared.snapshot_id}
    assert len(lake.catalog.sent) == 1
    other = replace(prepared, snapshot_id=prepared.snapshot_id - 1)
    assert fence.commit(batch, other) == AlreadyCommitted(prepared.snapshot_id)


@pytest.mark.parametrize(("asks", "left"), [("true", 2), ("false", 5)])
def test_old_metadata_goes_after_a_commit_only_if_the_table_asks(tmp_path: Path, asks: str, left: int) -> None:
    trim = {"write.metadata.delete-after-commit.enabled": asks, "write.metadata.previous-versions-max": "1"}
    lake = Lake.make(tmp_path, properties=trim)
    fence = Fence(lake)
    for batch_id in range(4):
        fence.commit(batch_id)
    assert len([path for path in lake.files() if path.name.endswith(".metadata.json")]) == left


def test_a_schema_that_the_batch_brings_is_told_and_is_that_of_its_snapshot(lake: Lake) -> None:
    told: list[object] = []
    emit: Any = told.append
    fence = fence_of(lake.table, KEY, Chance().effects(emit))
    change = SchemaChange(added=(ColumnType(("new",), '"string"'),))
    decision = fence.decide(FIRST)
    schema = evolve(decision.table, change).table.schema()
    assert isinstance(fence.commit(FIRST, fence.prepare(decision, [], schema=schema, schema_change=change)), Committed)
    assert lake.head().schema_id == lake.table().schema().schema_id == 1
    assert [type(event) for event in told if isinstance(event, SchemaEvolved | SchemaIdTaken)] == [SchemaEvolved]


def test_a_branch_that_another_writer_rolls_back_before_the_answer_is_lost_was_not_left_out(lake: Lake) -> None:
    """Only an answer can show that a catalog left the branch where it was."""
    append_foreign(lake)
    branch_off(lake, "audit")
    before = lake.head("audit").snapshot_id

    def landed_and_undone(apply: Apply) -> CommitTableResponse:
        apply()
        roll_back(lake, before, "audit")
        raise ERRORS["time-out"]

    lake.catalog.faults = [landed_and_undone]
    assert Fence(lake, SinkKey("events", "audit")).commit(FIRST) is None, "it must be written again"


@pytest.mark.parametrize("branch", ["main", "audit"])
def test_an_answer_with_the_entry_and_the_old_head_shows_a_catalog_that_ignores_branches(
    lake: Lake, branch: str
) -> None:
    """On `main`, which every catalog moves, it can only be another writer, and the batch is written again."""
    append_foreign(lake)
    branch_off(lake, "audit")
    before = lake.head(branch).snapshot_id

    def moved_back(apply: Apply) -> CommitTableResponse:
        apply()
        roll_back(lake, before, branch)
        return CommitTableResponse(metadata=lake.table().metadata, metadata_location=lake.table().metadata_location)

    lake.catalog.faults = [moved_back]
    stops = pytest.raises(CatalogError, match=r"WITHOUT_TAGS\].* left the branch 'audit' where it was")
    with nullcontext() if branch == "main" else stops:
        assert Fence(lake, SinkKey("events", branch)).commit(FIRST) is None


def test_an_answer_that_shows_the_branch_and_the_entry_of_the_batch_before_is_no_reason_to_stop(lake: Lake) -> None:
    append_foreign(lake)
    branch_off(lake, "audit")
    fence = Fence(lake, SinkKey("events", "audit"))
    fence.commit(0)
    lake.catalog.faults = [says_yes_and_shows_what_was(lake)]
    committed = fence.commit(1)
    assert isinstance(committed, Committed)
    assert committed.attempts == 2


def test_a_table_of_format_version_1_counts_its_snapshots_from_one(tmp_path: Path) -> None:
    table = Lake.make(tmp_path, properties={"format-version": "1"}).table()
    assert snapshot_on(table, None, 2**40, [], {}, START_MS).sequence_number == 1


MEANWHILE: dict[str, Callable[[Lake], object]] = {
    "the head moved": append_foreign,
    "the branch is gone": lambda lake: remove_ref(lake, "main"),
    "another schema": lambda lake: lake.table().update_schema().add_column("new", LongType()).commit(),
    "another spec": lambda lake: lake.table().update_spec().add_identity("batch").commit(),
    "another format": upgrade,
    "another table": replace_table,
}


@pytest.mark.parametrize("happens", MEANWHILE.values(), ids=MEANWHILE)
def test_a_change_of_a_table_that_changes_meanwhile_is_not_made(lake: Lake, happens: Callable[[Lake], object]) -> None:
    append_foreign(lake)
    after: list[Table] = []

    def make(table: Table, snapshot_id: int) -> Change:
        happens(lake)
        after.append(lake.table())
        return Change("main", table.metadata.refs["main"].snapshot_id, snapshot_id, says={})

    commit = ChangeCommit(lake.table, "compaction", RetryPolicy(num_retries=0), Chance().effects())
    with suppress(CommitFailedException):
        assert isinstance(commit.run(lake.table(), make), Unseen)
    assert lake.table().metadata == after[0].metadata


def test_a_change_of_a_table_whose_name_another_one_has_is_not_even_made(lake: Lake) -> None:
    first = lake.table()
    replace_table(lake)
    commit = ChangeCommit(lake.table, "forget", effects=Chance().effects())
    assert commit.run(first, lambda *_: pytest.fail("it would be made")) == Unseen("another table has its name", 1)
    assert lake.catalog.sent == []
