"""The changelog of changes by key, under random changes, deaths and rivals: a fold over it gives the table's rows."""

import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import SetSnapshotRefUpdate
from pyiceberg.types import LongType, StringType

from lakesink.sinks.iceberg.side import side_sink
from lakesink_catalog.tables.tables import find_table, load_table
from lakesink_protocol.errors import BatchRefused, CommitUnresolved, Reason, SettingsError, WriteError
from lakesink_protocol.identity import SinkKind
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_tools.audit.audit import audit
from lakesink_tools.audit.finding import Code
from testkit.builders import Lake, offered
from testkit.change_table import ROWS, Change, ChangeStream, Reference, rows_of, upsert_lake, votes_of
from testkit.deaths import Killed, answer_is_lost, dies_after, dies_before, until_it_lives
from testkit.examples import seeds

LOG = "demo.changelog"
METADATA = ("_operation", "_sink", "_batch_id", "_source_partition", "_source_offset")


def logging(lake: Lake, seed: int = 1, **options: Any) -> ChangeStream:
    return ChangeStream(lake, seed=seed, options={"changelog_table": LOG, **options})


def log_of(lake: Lake) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.catalog.load_table(LOG).scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["_batch_id"], row["version"], row["id"]))


def logged(changes: Sequence[Change], batch: int) -> list[dict[str, Any]]:
    """The rows that the changelog must have of a batch; a delete has its key and its version."""
    absent = dict.fromkeys(("part", "value", "amount"))
    said = {"_sink": "events", "_batch_id": batch, "_source_partition": None, "_source_offset": None}
    rows = [
        {
            **(absent if one.deletes else {}),
            **({"id": one.key, "version": one.version} if one.deletes else one.row),
            "_operation": "delete" if one.deletes else "upsert",
            **said,
        }
        for one in changes
    ]
    return sorted(rows, key=lambda row: (row["version"], row["id"]))


def folded(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that a reader of the changelog has: it applies the batches in order, and of each the newest changes."""
    rows: dict[int, dict[str, Any]] = {}
    for _, batch in groupby(log, lambda row: row["_batch_id"]):
        newest = {row["id"]: row for row in sorted(batch, key=lambda row: row["version"])}
        for key, row in newest.items():
            if key in rows and rows[key]["version"] > row["version"]:
                continue
            rows.pop(key, None)
            if row["_operation"] != "delete":
                rows[key] = {name: value for name, value in row.items() if name not in METADATA}
    return [rows[key] for key in sorted(rows)]


def heads(lake: Lake) -> tuple[int, int]:
    """The numbers of snapshots of the table and of its changelog."""
    return tuple(len(lake.catalog.load_table(name).snapshots()) for name in ("demo.events", LOG))  # type: ignore[return-value]


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.dear
def test_a_fold_over_the_changelog_gives_the_rows_of_the_table(tmp_path: Path, seed: int, *, partitioned: bool) -> None:
    lake, reference, expected = upsert_lake(tmp_path, partitioned=partitioned), Reference(), []
    stream = logging(lake, seed)
    for number in range(10):
        outcome = stream.run(number)
        counts = reference.apply(stream.changes(number))
        expected += logged(stream.changes(number), number)
        assert isinstance(outcome, Committed)
        assert outcome.changes == counts
        assert isinstance(stream.run(number), AlreadyCommitted)
        assert log_of(lake) == expected
        assert folded(log_of(lake)) == rows_of(lake) == reference.table


@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.dear
def test_deaths_and_lost_answers_leave_each_batch_once_in_both_tables(tmp_path: Path, seed: int) -> None:
    lake, reference, expected = upsert_lake(tmp_path), Reference(), []
    stream, chance = logging(lake, 100 + seed), random.Random(seed)

    for number in range(10):
        faults = [dies_before, dies_after, answer_is_lost]
        lake.catalog.faults = chance.choices(faults, k=chance.randrange(5))
        until_it_lives(partial(stream.run, number))
        lake.catalog.faults = []
        reference.apply(stream.changes(number))
        expected += logged(stream.changes(number), number)
        assert log_of(lake) == expected
        assert folded(expected) == rows_of(lake) == reference.table


def test_two_tasks_with_one_key_log_both_changes(tmp_path: Path) -> None:
    lake = upsert_lake(tmp_path)
    stream, expected = logging(lake, 3), []
    for number in range(4):
        changes = stream.changes(number)
        stream.run_changes(number, [changes[: len(changes) // 2], changes[len(changes) // 2 :]])
        expected += logged(changes, number)
        assert log_of(lake) == expected
        assert folded(expected) == rows_of(lake)


def killed_between(lake: Lake, stream: ChangeStream, number: int = 0, landed: int = 1) -> None:
    """The driver dies when the changelog has the batch, and the table lacks it."""

    def lands(apply: Callable[[], object]) -> object:
        return apply()

    lake.catalog.faults = [*[lands] * landed, dies_before]  # type: ignore[list-item]
    with pytest.raises(Killed):
        stream.run(number)
    lake.catalog.faults = []


def forget_records(lake: Lake) -> None:
    for path in lake.files():
        if "/lakesink/" in str(path):
            path.unlink()


def test_a_batch_that_is_written_again_finds_its_changes_in_the_changelog(tmp_path: Path) -> None:
    lake, stream = upsert_lake(tmp_path), None
    stream = logging(lake)
    killed_between(lake, stream)
    assert len(log_of(lake)) == len(stream.changes(0))
    assert rows_of(lake) == []
    forget_records(lake)
    outcome = stream.run(0)
    assert isinstance(outcome, Committed)
    assert not outcome.recovered
    assert log_of(lake) == logged(stream.changes(0), 0)
    assert folded(log_of(lake)) == rows_of(lake)


@pytest.mark.parametrize("how", ["another value", "one change fewer", "a delete"])
def test_a_batch_that_is_written_again_with_other_changes_is_refused(tmp_path: Path, how: str) -> None:
    lake = upsert_lake(tmp_path)
    stream = logging(lake)
    killed_between(lake, stream)
    forget_records(lake)
    first, *others = stream.changes(0)
    other = Change(first.key, first.version, first.part, "other", first.amount, deletes=how == "a delete")
    changes = others if how == "one change fewer" else [other, *others]
    with pytest.raises(WriteError) as refused:
        stream.run_changes(0, [changes])
    assert refused.value.code == "LAKESINK_CHANGELOG_DIFFERS"
    assert rows_of(lake) == []
    assert isinstance(stream.run_changes(0, [stream.changes(0)]), Committed)  # in other tasks
    assert folded(log_of(lake)) == rows_of(lake)


def test_a_version_that_is_given_again_with_other_rows_is_refused_once_its_changes_are_logged(tmp_path: Path) -> None:
    lake = upsert_lake(tmp_path)
    job = ChangeStream(lake, seed=1, kind=SinkKind.TXN, options={"changelog_table": LOG})
    killed_between(lake, job, 7)
    with pytest.raises(WriteError, match="CHANGELOG_DIFFERS"):
        job.run_changes(7, [job.changes(8)])
    assert isinstance(job.run(7), Committed)
    assert folded(log_of(lake)) == rows_of(lake)


@pytest.mark.parametrize("now", [None, "demo.another"])
@pytest.mark.parametrize("landed", [0, 1])
def test_a_batch_is_completed_with_the_changelog_that_it_was_prepared_for(
    tmp_path: Path, now: str | None, landed: int
) -> None:
    lake = upsert_lake(tmp_path)
    stream = logging(lake)
    killed_between(lake, stream, landed=landed)
    said = r"demo\.changelog has changes of batch 0" if landed else r"prepared for the changelog demo\.changelog"
    with pytest.raises(WriteError, match=said) as refused:
        stream.run(0, changelog_table=now)
    assert "changelog_table='demo.changelog'" in refused.value.action
    outcome = stream.run(0)
    assert isinstance(outcome, Committed)
    assert outcome.recovered


def test_changes_that_are_refused_on_the_head_are_in_neither_table(tmp_path: Path) -> None:
    lake = upsert_lake(tmp_path)
    stream = logging(lake, on_late="fail")
    first = stream.changes(0)[0]
    stream.run_changes(0, [[Change(1, 5, "a", "new", first.amount)]])
    with pytest.raises(WriteError, match="CHANGES_LATE"):
        stream.run_changes(1, [[Change(1, 4, "a", "late", first.amount)]])
    tied = [Change(2, 9, "a", value, first.amount) for value in ("one", "other")]
    with pytest.raises(WriteError, match="SEQUENCE_TIED"):
        stream.run_changes(1, [tied[:1], tied[1:]])
    assert heads(lake) == (1, 1)
    assert [row["value"] for row in log_of(lake)] == ["new"]


def roll_back(lake: Lake, name: str) -> None:
    """To the snapshot before the newest one."""
    table = lake.catalog.load_table(name)
    to = SetSnapshotRefUpdate(
        ref_name="main",
        type=SnapshotRefType.BRANCH,
        snapshot_id=table.current_snapshot().parent_snapshot_id,  # type: ignore[union-attr]
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    lake.catalog.commit_table(table, (), (to,))


def test_a_changelog_that_was_rolled_back_is_refused_by_name(tmp_path: Path) -> None:
    lake = upsert_lake(tmp_path)
    stream = logging(lake)
    stream.filled(2)
    roll_back(lake, LOG)
    with pytest.raises(BatchRefused) as refused:
        stream.run(2)
    assert refused.value.reason is Reason.ROLLED_BACK
    assert refused.value.what.startswith(f"{LOG}: The changelog was rolled back")
    assert isinstance(stream.run(2, accept=offered(refused.value)["commit"]), Committed)
    assert [row["_batch_id"] for row in log_of(lake)] == [0] * len(stream.changes(0)) + [2] * len(stream.changes(2))


def test_a_rollback_of_the_table_names_the_changelog_and_the_snapshot_before(tmp_path: Path) -> None:
    lake = upsert_lake(tmp_path)
    stream = logging(lake, maintenance="off")
    stream.filled(3)
    before = lake.catalog.load_table(LOG).snapshots()[-3].snapshot_id
    for _ in range(2):
        roll_back(lake, "demo.events")
    with pytest.raises(BatchRefused) as refused:
        stream.run(3)
    assert refused.value.reason is Reason.ROLLED_BACK
    assert f"{LOG} still has changes of batches 1 to 2" in refused.value.data
    by = "(`lakesink rewind` does this with `--table demo.events`.)"
    assert refused.value.choices[0].startswith(f"Roll {LOG} back to snapshot {before}. {by} Stop the stream,")


def test_a_table_that_was_rolled_back_without_its_changelog_is_refused(tmp_path: Path) -> None:
    lake = upsert_lake(tmp_path)
    stream = logging(lake)
    stream.filled(3)
    for _ in range(2):
        roll_back(lake, "demo.events")
    with pytest.raises(WriteError, match=r"demo\.changelog has changes of batch 2, but the next batch is 1") as refused:
        stream.run(1)
    assert refused.value.code == "LAKESINK_CHANGELOG_DIFFERS"
    for _ in range(2):
        roll_back(lake, LOG)
    for number in (1, 2):
        stream.run(number)
    assert folded(log_of(lake)) == rows_of(lake)


def test_a_changelog_that_was_dropped_is_refused_by_name(tmp_path: Path) -> None:
    lake = upsert_lake(tmp_path)
    stream = logging(lake)
    stream.run(0)
    lake.catalog.drop_table(LOG)
    with pytest.raises(WriteError, match=r"demo\.changelog has no changes of this query"):
        stream.run(1)
    assert isinstance(stream.run(1, changelog_table="demo.next"), Committed)


@pytest.mark.parametrize("behind", [1, 2, 3, 100])
def test_an_older_state_of_the_changelog_is_not_taken_for_one_that_was_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: int
) -> None:
    lake = upsert_lake(tmp_path)
    stream = logging(lake)
    stream.run(0)
    now = lake.catalog.load_table(LOG)
    first = now.metadata.metadata_log[0].metadata_file
    before = Table(now.name(), FromInputFile.table_metadata(now.io.new_input(first)), first, now.io, lake.catalog)
    left = [before] * behind
    for looks in (find_table, load_table):
        monkeypatch.setattr(side_sink, looks.__name__, lambda *of, looks=looks: left.pop() if left else looks(*of))
    if behind == 100:
        with pytest.raises(CommitUnresolved, match="older state than it has"):
            stream.run(1)
    else:
        assert isinstance(stream.run(1), Committed)
        assert folded(log_of(lake)) == rows_of(lake)


def test_a_changelog_begins_with_the_first_batch_of_a_query_that_names_it(tmp_path: Path) -> None:
    lake = upsert_lake(tmp_path)
    stream = ChangeStream(lake, seed=2).filled(3)
    for number in (3, 4):
        stream.run(number, changelog_table=LOG)
    stream.run(5)
    stream.run(6, changelog_table=LOG)
    assert {row["_batch_id"] for row in log_of(lake)} == {3, 4, 6}


def test_the_changelog_follows_new_and_wider_columns_and_keeps_dropped_ones(tmp_path: Path) -> None:
    lake = upsert_lake(tmp_path)
    stream = logging(lake)
    stream.run(0)
    with lake.table().update_schema() as update:
        update.add_column("note", StringType())
        update.delete_column("part")
    stream.options["except_column_list"] = ["part"]
    sink, change = stream.sink(), Change(3, 9_000, "a", "v", stream.changes(0)[0].amount)
    sink.schema = ROWS.remove(ROWS.get_field_index("part"))
    stream.run_with(sink, 1, job=lambda writers: votes_of(writers, [[change]]))
    table = lake.catalog.load_table(LOG)
    assert table.schema().find_field("note").field_type == StringType()
    assert table.schema().find_field("id").field_type == LongType()
    [row] = [row for row in log_of(lake) if row["_batch_id"] == 1]
    assert (row["part"], row["note"], row["value"]) == (None, None, "v")


def test_a_table_with_other_columns_is_no_changelog(tmp_path: Path) -> None:
    lake = upsert_lake(tmp_path)
    lake.catalog.create_table(LOG, pa.schema([("id", pa.string())]))
    with pytest.raises(WriteError, match=r"The table demo\.changelog cannot keep changes: Column 'id'"):
        logging(lake).run(0)
    assert rows_of(lake) == []


def test_a_table_with_a_column_of_the_changelog_has_none(tmp_path: Path) -> None:
    lake = upsert_lake(tmp_path)
    with lake.table().update_schema() as change:
        change.add_column("_Batch_Id", LongType())
    with pytest.raises(SettingsError, match="'_Batch_Id'"):
        logging(lake).run(0)


@pytest.mark.parametrize("name", ["demo.events", "demo.events__dead_letters"])
def test_the_table_and_its_dead_letters_are_no_changelog(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="changelog_table"):
        logging(upsert_lake(tmp_path), changelog_table=name).run(0)


def _add_to(table: Table, rows: int) -> None:
    table.append(table.scan(limit=rows).to_arrow())


def test_the_audit_compares_the_changes_that_batches_state_with_those_in_the_changelog(tmp_path: Path) -> None:
    lake = upsert_lake(tmp_path)
    stream = logging(lake, maintenance="off")
    stream.filled(3)
    clean = audit(lake.table())
    assert clean.findings == ()
    [note] = [note for note in clean.notes if note.name == "changelog"]
    changes = sum(len(stream.changes(number)) for number in range(3))
    assert note.found == f"{LOG} has the {changes} changes of 3 batches."
    roll_back(lake, LOG)
    assert [finding.code for finding in audit(lake.table()).findings] == [Code.CHANGELOG_DIFFERS]
    lake.catalog.drop_table(LOG)
    assert [finding.code for finding in audit(lake.table()).findings] == [Code.CHANGELOG_DIFFERS]
