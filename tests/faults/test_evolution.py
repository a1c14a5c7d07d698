"""Schema, spec, branch or table change between the vote and the commit, in one driver's life or over a restart."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform
from pyiceberg.types import LongType, MapType, NestedField, StringType

from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink_protocol.errors import BatchRefused, CommitUnresolved, Reason, WriteError
from lakesink_protocol.identity import MAIN_BRANCH
from lakesink_protocol.outcome import Committed
from testkit.answers import first
from testkit.builders import ROWS, SCHEMA, Fault, Lake, Stream, counted, expected, parquet_files
from testkit.maintenance import append_foreign, branch_off, remove_ref, replace_table

Evolve = Callable[[Lake], object]


def evolves_then_conflicts(evolve: Callable[[], object]) -> Fault:
    def act() -> None:
        evolve()
        raise CommitFailedException("somebody was quicker")

    return first(act)


def in_one_life(lake: Lake, stream: Stream, evolve: Evolve) -> bool:
    """Between two attempts of one driver; tells whether the batch was written again."""
    lake.catalog.faults = [evolves_then_conflicts(lambda: evolve(lake))]
    before = stream.writes
    assert isinstance(stream.run(1), Committed)
    return stream.writes > before + 1


def between_look_and_request(lake: Lake, stream: Stream, evolve: Evolve) -> bool:
    """After the look of an attempt and before its request is carried out."""
    lake.catalog.faults = [first(lambda: evolve(lake))]
    before = stream.writes
    assert isinstance(stream.run(1), Committed)
    return stream.writes > before + 1


def over_a_restart(lake: Lake, stream: Stream, evolve: Evolve) -> bool:
    lake.catalog.faults = [lake.catalog.arrives_late] * 2
    with pytest.raises(CommitUnresolved):
        stream.run(1)
    evolve(lake)
    before = stream.writes
    outcome = stream.run_with(_adapted(lake, stream), 1)
    assert isinstance(outcome, Committed)
    assert outcome.recovered == (stream.writes == before)
    return not outcome.recovered


def _adapted(lake: Lake, stream: Stream) -> IcebergSink:
    """A query whose rows no longer fit the table is refused, and the prepared batch waits until they do."""
    sink, known = stream.sink(), lake.table().schema().column_names
    if not set(ROWS.names) <= set(known):
        with pytest.raises(WriteError, match="SCHEMA_MISMATCH"):
            stream.run(1)
        sink.schema = pa.schema([(name, pa.int64()) for name in known])
    return sink


WHEN = [in_one_life, between_look_and_request, over_a_restart]


def add_optional(lake: Lake) -> None:
    with lake.table().update_schema() as update:
        update.add_column("later", StringType())


def drop_column(lake: Lake) -> None:
    with lake.table().update_schema() as update:
        update.delete_column("written")


def rename_column(lake: Lake) -> None:
    with lake.table().update_schema() as update:
        update.rename_column("written", "attempt")


def require_column(lake: Lake) -> None:
    with lake.table().update_schema(allow_incompatible_changes=True) as update:
        update.update_column("written", required=True)


def partition(lake: Lake) -> None:
    with lake.table().update_spec() as update:
        update.add_field("batch", BucketTransform(4))


def add_map(lake: Lake) -> None:
    """The key of a map is required wherever the map is there."""
    with lake.table().update_schema() as update:
        update.add_column("labels", MapType(90, StringType(), 91, LongType()))


@dataclass(frozen=True)
class Evolution:
    evolve: Evolve
    columns: tuple[str, ...] = ("batch", "position", "written")
    written_again: bool = False


EVOLUTIONS: dict[str, Evolution] = {
    "an optional column was added": Evolution(add_optional, ("batch", "position", "written", "later")),
    "a column was dropped": Evolution(drop_column, ("batch", "position")),
    "a column was renamed": Evolution(rename_column, ("batch", "position", "attempt")),
    "a partition field was added": Evolution(partition),
    "a column was made required": Evolution(require_column, written_again=True),
}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake.make(tmp_path, properties={"commit.retry.num-retries": "1"})
    Stream(lake).run(0)
    return lake


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("name", EVOLUTIONS)
def test_what_was_written_is_used_if_it_still_fits_and_written_again_if_not(
    lake: Lake, name: str, when: Callable[[Lake, Stream, Evolve], bool]
) -> None:
    case, stream = EVOLUTIONS[name], Stream(lake)
    assert when(lake, stream, case.evolve) == case.written_again
    table = lake.table()
    assert table.schema().column_names == list(case.columns)
    assert counted(lake) == expected(0, 1)
    rows = table.scan(row_filter="batch = 1").to_arrow()
    assert rows.column_names == list(case.columns)
    assert rows["position"].to_pylist() == [0, 1, 2]
    if "later" in case.columns:
        assert rows["later"].null_count == 3
    _stands_as_evolved(lake, stream, case)


def _stands_as_evolved(lake: Lake, stream: Stream, case: Evolution) -> None:
    """The stream goes on, under the new schema if its rows fit; files keep the spec that they were written under."""
    if set(case.columns) >= {"batch", "position", "written"}:
        assert isinstance(stream.run(2), Committed)
        assert counted(lake) == expected(0, 1, 2)
    specs = [task.file.spec_id for task in lake.table().scan(row_filter="batch < 2").plan_files()]
    assert specs == [0, 0]
    if case.evolve is partition:
        assert [task.file.spec_id for task in lake.table().scan(row_filter="batch = 2").plan_files()] == [1]


@pytest.mark.parametrize("when", [in_one_life, over_a_restart])
def test_files_of_an_old_spec_stay_right_when_its_field_becomes_void(
    tmp_path: Path, when: Callable[[Lake, Stream, Evolve], bool]
) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "batch"))
    lake = Lake.make(tmp_path, spec=spec, properties={"commit.retry.num-retries": "1"})
    stream = Stream(lake)
    stream.run(0)

    def unpartition(_: Lake) -> None:
        with lake.table().update_spec() as update:
            update.remove_field("batch")

    assert not when(lake, stream, unpartition)
    assert isinstance(stream.run(2), Committed)
    assert counted(lake) == expected(0, 1, 2)
    for batch_id in range(3):
        rows = lake.table().scan(row_filter=f"batch = {batch_id}").to_arrow()
        assert (rows.num_rows, set(rows["batch"].to_pylist())) == (3, {batch_id})


def test_an_added_map_is_no_reason_to_lose_a_batch(lake: Lake) -> None:
    stream = Stream(lake)
    over_a_restart(lake, stream, add_map)
    assert counted(lake) == expected(0, 1)


@pytest.mark.parametrize("keeps_properties", [True, False])
def test_a_table_replaced_between_vote_and_commit_gets_nothing(
    lake: Lake,
    keeps_properties: bool,  # noqa: FBT001 - a table of cases
) -> None:
    stream = Stream(lake)
    kept = [stream.key.ledger_property] if keeps_properties else []
    lake.catalog.faults = [first(lambda: replace_table(lake, *kept))]
    with pytest.raises(BatchRefused) as refused:
        stream.run(1)
    assert refused.value.reason is Reason.TABLE_REPLACED
    assert lake.table().metadata.snapshots == []


def test_the_first_batch_of_a_table_does_not_land_in_the_one_that_replaced_it(tmp_path: Path) -> None:
    """Both are empty: nothing but the UUID tells them apart."""
    lake = Lake.make(tmp_path)
    lake.catalog.faults = [first(lambda: replace_table(lake))]
    with pytest.raises(BatchRefused) as refused:
        Stream(lake).run(0)
    assert refused.value.reason is Reason.TABLE_REPLACED
    assert lake.table().metadata.snapshots == []


def test_a_table_replaced_while_the_stream_was_down_is_unknown_to_it(lake: Lake) -> None:
    replace_table(lake)
    with pytest.raises(BatchRefused) as refused:
        Stream(lake).run(1)
    assert refused.value.reason is Reason.UNKNOWN_HISTORY
    assert lake.table().metadata.snapshots == []


@pytest.fixture
def audit(lake: Lake) -> Stream:
    append_foreign(lake)
    branch_off(lake, "audit")
    return Stream(lake, sink_id="auditor", branch="audit").filled(2)


def test_a_branch_dropped_between_vote_and_commit_is_missing(lake: Lake, audit: Stream) -> None:
    lake.catalog.faults = [first(lambda: remove_ref(lake, "audit"))]
    with pytest.raises(BatchRefused) as refused:
        audit.run(2)
    assert refused.value.reason is Reason.BRANCH_MISSING


@pytest.mark.parametrize("live", [True, False], ids=["between vote and commit", "while the stream was down"])
def test_a_branch_made_anew_without_the_batches_is_a_rollback(lake: Lake, audit: Stream, live: bool) -> None:  # noqa: FBT001 - a case
    def anew() -> None:
        remove_ref(lake, "audit")
        branch_off(lake, "audit")

    if live:
        lake.catalog.faults = [first(anew)]
    else:
        anew()
    with pytest.raises(BatchRefused) as refused:
        audit.run(2)
    assert refused.value.reason is Reason.ROLLED_BACK
    assert not any(counted(lake, "audit")[row] for row in expected(1))


def test_a_branch_made_anew_where_it_was_goes_on(lake: Lake, audit: Stream) -> None:
    head = lake.head("audit").snapshot_id

    def anew() -> None:
        remove_ref(lake, "audit")
        branch_off(lake, "audit", head)

    lake.catalog.faults = [first(anew)]
    outcome = audit.run(2)
    assert isinstance(outcome, Committed)
    assert [mark.batch_id for mark in audit.marks()] == [0, 1, 2]


def test_one_sink_id_on_two_branches_is_two_streams(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    foreign = append_foreign(lake)
    branch_off(lake, "audit")
    streams = {branch: Stream(lake, branch=branch) for branch in (MAIN_BRANCH, "audit")}
    for batch_id in range(3):
        for stream in streams.values():
            assert isinstance(stream.run(batch_id), Committed)
            assert not isinstance(stream.run(batch_id), Committed)
    for branch in streams:
        assert counted(lake, branch) == expected(0, 1, 2) + foreign


def test_a_branch_that_is_promoted_to_main_carries_the_marks_of_another_branch(tmp_path: Path) -> None:
    """Fast-forwarded: main now holds what the sink wrote to `audit`, and a stream to main must not write it again."""
    lake = Lake.make(tmp_path)
    append_foreign(lake)
    branch_off(lake, "audit")
    Stream(lake, branch="audit").run(0)
    lake.table().manage_snapshots().set_current_snapshot(ref_name="audit").commit()
    with pytest.raises(BatchRefused) as refused:
        Stream(lake).run(0)
    assert refused.value.reason is Reason.UNKNOWN_HISTORY


def test_nothing_that_was_ever_written_is_deleted_by_all_this(lake: Lake) -> None:
    stream, seen = Stream(lake), parquet_files(lake)
    for evolve in (add_optional, partition, require_column):
        lake.catalog.faults = [evolves_then_conflicts(lambda evolve=evolve: evolve(lake))]  # type: ignore[misc] # bound now
        stream.run(len(stream.marks()))
        assert seen < parquet_files(lake)
        seen = parquet_files(lake)
    assert counted(lake) == expected(*range(4))


def test_a_void_field_that_lost_its_column_is_refused_by_name_before_a_task_runs(tmp_path: Path) -> None:
    schema = Schema(*SCHEMA.fields, NestedField(9, "old", StringType()))
    spec = PartitionSpec(PartitionField(9, 1000, VoidTransform(), "gone"))
    lake = Lake.make(tmp_path, schema=schema, spec=spec, properties={"commit.manifest.min-count-to-merge": "2"})
    stream = Stream(lake).filled(2)
    with lake.table().update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("old")
    writes = stream.writes
    with pytest.raises(BatchRefused, match=r"field 'gone' of demo\.events belongs to a column that was") as caught:
        stream.run(2)
    assert caught.value.reason is Reason.UNSUPPORTED
    assert "ALTER TABLE demo.events DROP PARTITION FIELD `gone`" in caught.value.action
    assert stream.writes == writes
    with lake.table().update_spec() as change:
        change.remove_field("gone")
    for batch in range(2, 6):
        stream.run(batch)
    assert counted(lake) == expected(*range(6))
    assert not any(b'["null", "null"]' in path.read_bytes() for path in lake.files())
