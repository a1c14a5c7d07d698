"""Groups that executors rewrite: what they send back is data, and is checked. The executor is a function here."""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from lakesink.keys.work import from_bytes, to_bytes
from lakesink.rows.plan import WritePlan
from lakesink.sinks.iceberg.upkeep import maintenance
from lakesink.sinks.iceberg.upkeep.choose import Limits, choose
from lakesink.sinks.iceberg.upkeep.policy import Policy
from lakesink.sinks.iceberg.upkeep.rewrite import FILES, FIRST, RECEIPT, WHY
from lakesink.sinks.iceberg.upkeep.seen import plan_of
from lakesink.spark.spark_errors import QueryStopped
from lakesink_catalog.manifests.live import LiveFiles
from lakesink_protocol import events
from lakesink_protocol.receipt import decode, encode
from tests.faults.test_sort_orders import ordered_by
from tests.upkeep.lake import Kept, files_of, rows

BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
FEW = Policy(target_file_size=30_000, min_input_files=2)


@dataclass
class Executors:
    """Runs as executors do: function, items and results travel as bytes. Each answer goes through `spoil`."""

    spoil: Callable[[int, bytes], bytes] = lambda _, answer: answer
    meanwhile: Callable[[], object] = lambda: None
    jobs: list[int] = field(default_factory=list)

    def __call__(self, function: Callable[[Any], bytes], items: Sequence[Any]) -> list[bytes]:
        self.jobs.append(len(items))
        answers = [function(pickle.loads(pickle.dumps(item))) for item in items]  # noqa: S301 - as Spark sends it
        self.meanwhile()
        return [self.spoil(number, answer) for number, answer in enumerate(answers)]


def in_parts(folder: Path, monkeypatch: pytest.MonkeyPatch, **make: Any) -> Kept:
    monkeypatch.setattr(maintenance, "EXECUTORS_FROM_BYTES", 0)
    kept = Kept.make(folder, **make)
    for number in range(9):
        kept.table.append(rows(number * 1_000, 300, "abc"[number % 3]))
    return kept


def run(kept: Kept, executors: Executors) -> Any:
    one = kept.maintenance(FEW)
    one.run_in_executors = executors
    return one.run()


@pytest.mark.parametrize("order", [0, 1])
def test_partitions_are_rewritten_in_one_job_and_deletes_are_carried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: int
) -> None:
    kept = in_parts(tmp_path, monkeypatch, spec=BY_PART)
    if order:
        ordered_by(kept.table, "id")
    kept.delete(lambda row: row["id"] % 10 == 0)
    executors = Executors(meanwhile=lambda: kept.delete(lambda row: row["id"] % 7 == 0))
    report = run(kept, executors)
    assert (executors.jobs, [group.files for group in report.groups]) == ([3], [3, 3, 3])
    ids = [one for number in range(9) for one in range(number * 1_000, number * 1_000 + 300) if one % 10 and one % 7]
    assert sorted(row for row in kept.table.scan().to_arrow().column("id").to_pylist()) == ids
    assert sum(group.carried for group in report.groups) > 300
    assert kept.checked == 3
    assert {one["sort_order_id"] for one in kept.table.inspect.data_files().to_pylist()} == {order}


@pytest.mark.parametrize("order", [0, 1])
def test_files_of_which_all_rows_are_deleted_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: int
) -> None:
    kept = in_parts(tmp_path, monkeypatch, spec=BY_PART)
    if order:
        ordered_by(kept.table, "id")
    kept.delete(lambda row: row["part"] == "b")
    report = run(kept, Executors())
    assert (sorted(group.into for group in report.groups), report.left) == ([0, 1, 1], ())
    assert kept.checked == 3


def test_rows_of_an_older_spec_come_into_their_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = in_parts(tmp_path, monkeypatch)
    with kept.table.update_spec() as update:
        update.add_identity("part")
    before = kept.rows()
    executors = Executors(meanwhile=lambda: kept.delete(lambda row: row["id"] in (3, 1_003)))
    report = run(kept, executors)
    assert [row for row in before if "'id': 3," not in str(row) and "'id': 1003," not in str(row)] == kept.rows()
    assert {file.spec_id for file in kept.live().data} == {1}
    assert sum(group.carried for group in report.groups) == 2


def test_groups_in_executors_are_about_one_new_file_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = in_parts(tmp_path, monkeypatch)
    for number in range(9, 40):
        kept.table.append(rows(number * 1_000, 300))
    before, executors = kept.rows(), Executors()
    report = run(kept, executors)
    assert kept.rows() == before
    assert {group.into for group in report.groups} == {1}
    assert (executors.jobs[0] > 2, sum(executors.jobs)) == (True, len(report.groups))
    assert sum(file.file_size_bytes < 0.75 * 30_000 for file in kept.live().data) <= 1


def test_new_files_are_planned_once_for_a_state_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, real, states = in_parts(tmp_path, monkeypatch, spec=BY_PART), plan_of, list[int]()

    def counted(table: Table, *given: Any) -> WritePlan:
        states.append(len(table.snapshots()))
        return real(table, *given)

    monkeypatch.setattr(maintenance, "plan_of", counted)
    assert len(run(kept, Executors()).groups) == 3
    assert states == [9, 12, 12]  # of the rounds, and of the figures at the end


def test_a_job_is_no_larger_than_what_spark_takes_back_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, executors = in_parts(tmp_path, monkeypatch, spec=BY_PART), Executors()
    monkeypatch.setattr(maintenance, "ROWS_AT_ONCE", 2_000)
    before = kept.rows()
    report = run(kept, executors)
    assert (executors.jobs, len(report.groups), kept.rows()) == ([2, 1], 3, before)


@pytest.mark.parametrize("count", [5, 17, 18, 20, 22, 35, 40, 100])
def test_no_file_of_a_partition_is_left_because_groups_are_small(tmp_path: Path, count: int) -> None:
    kept = Kept.make(tmp_path)
    kept.table.append(rows(0, 10))
    [file] = kept.live().data
    files = tuple(
        replace(file, path=f"f{one}", file_size_bytes=4_000, sequence_number=one) for one in range(1, count + 1)
    )
    groups, _ = choose(LiveFiles(files, ()), file.spec_id, Limits(64_000, 5, is_spread=True), {})
    assert sorted(one.path for group in groups for one in group.files) == sorted(one.path for one in files)
    assert max(group.bytes for group in groups) < 2 * 64_000


def _with(answer: bytes, **about: bytes) -> bytes:
    found = from_bytes(answer)
    return to_bytes(
        found.replace_schema_metadata({**found.schema.metadata, **{k.encode(): v for k, v in about.items()}})
    )


def _without_a_row(answer: bytes) -> bytes:
    receipt = decode(from_bytes(answer).schema.metadata[RECEIPT])
    [file] = receipt.files
    object.__setattr__(file, "record_count", file.record_count - 1)
    object.__setattr__(receipt, "rows", receipt.rows - 1)
    return _with(answer, receipt=encode(receipt))


def _elsewhere(answer: bytes) -> bytes:
    receipt = decode(from_bytes(answer).schema.metadata[RECEIPT])
    object.__setattr__(receipt.files[0], "path", "file:///tmp/elsewhere.parquet")
    return _with(answer, receipt=encode(receipt))


def _twice_the_first(answer: bytes) -> bytes:
    found = from_bytes(answer)
    receipt = decode(found.schema.metadata[RECEIPT])
    numbers = pa.array([0, *range(receipt.rows - 1)], pa.int64())
    return to_bytes(pa.table({"number": numbers}).replace_schema_metadata(found.schema.metadata))


def _that_failed(answer: bytes) -> bytes:
    empty, about = pa.table({"number": pa.nulls(0, pa.int64())}), from_bytes(answer).schema.metadata
    return to_bytes(empty.replace_schema_metadata({FIRST: about[FIRST], WHY: b"failed: OSError", FILES: b"{}"}))


@pytest.mark.parametrize("spoil", [_without_a_row, _elsewhere, _twice_the_first, _that_failed, lambda _: b"no answer"])
def test_an_answer_that_is_not_right_leaves_its_group_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[bytes], bytes]
) -> None:
    kept = in_parts(tmp_path, monkeypatch, spec=BY_PART)
    before, files = kept.rows(), files_of(kept)
    report = run(kept, Executors(spoil=lambda number, answer: spoil(answer) if number == 1 else answer))
    assert (kept.rows(), len(report.groups), len(report.left)) == (before, 2, 3)
    assert files <= files_of(kept)
    assert [type(one) for one in kept.told if isinstance(one, events.GroupFailed)] == [events.GroupFailed]


def test_an_answer_about_another_group_with_as_many_rows_replaces_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, answers = in_parts(tmp_path, monkeypatch, spec=BY_PART), list[bytes]()
    before = kept.rows()

    def the_first(number: int, answer: bytes) -> bytes:
        answers.append(answer)
        return answers[0] if number == 1 else answer

    report = run(kept, Executors(spoil=the_first))
    assert (kept.rows(), len(report.groups)) == (before, 2)
    told = "A task's receipt was rejected: it is about another group of files. Data: Nothing of this group of files was"
    assert all(one.reason.startswith(f"failed: [LAKESINK_RECEIPT_REJECTED] {told} committed") for one in report.left)
    assert not any("batch" in one.reason or "query" in one.reason for one in report.left)


def test_a_job_that_fails_leaves_all_its_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = in_parts(tmp_path, monkeypatch, spec=BY_PART)
    before = kept.rows()

    def no_executors() -> None:
        raise RuntimeError("no executors")

    report = run(kept, Executors(meanwhile=no_executors))
    assert (kept.rows(), report.groups, len(report.left)) == (before, (), 9)
    assert {one.reason for one in report.left} == {"failed: RuntimeError: no executors"}


def test_a_query_that_is_stopped_while_executors_rewrite_ends_the_run_and_no_group_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = in_parts(tmp_path, monkeypatch, spec=BY_PART)
    before = kept.rows()

    def stopped() -> None:
        raise QueryStopped

    executors = Executors(meanwhile=stopped)
    with pytest.raises(QueryStopped):
        run(kept, executors)
    assert (kept.rows(), executors.jobs, kept.told) == (before, [3], [])
