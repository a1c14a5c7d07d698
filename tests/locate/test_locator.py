"""Batches of changes make the table that a dictionary is, whatever else happens to the table."""

import pickle
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyroaring import BitMap64

from lakesink.keys.data_file import DataFile
from lakesink.keys.work import Group, groups_of
from lakesink.parquet.deletes import FILE_PATH, DeletedRows, write_deletes
from lakesink_catalog.manifests.live_reading import LiveMemory, live_files
from lakesink_protocol.errors import WriteError
from lakesink_protocol.row_changes import ChangeCounts, Operation
from testkit.examples import seeds
from testkit.tasks import new_table, spec_of
from tests.locate.store import SCHEMA, Key, Prepared, Row, RowChange, Store, without_name
from tests.locate.test_deletes import create

SPECS = {
    "unpartitioned": UNPARTITIONED_PARTITION_SPEC,
    "by a column that changes": spec_of("identity", source_ids=[4]),
    "by the key": spec_of("bucket[3]", "identity", source_ids=[1, 2]),
}


@contextmanager
def store(folder: Path, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC, *, ordered: bool = True) -> Iterator[Store]:
    with new_table(folder, SCHEMA, spec) as table:
        yield Store(table, folder, ordered)


def upsert(number: int, at: int = 0, value: str = "", tag: str = "", part: int = 0) -> RowChange:
    return RowChange((number, tag, at, part, value))


def delete(number: int, at: int = 0, tag: str = "") -> RowChange:
    return RowChange((number, tag, at, 0, ""), Operation.DELETE)


def apply(store: Store, *tasks: list[RowChange]) -> ChangeCounts:
    prepared = store.prepare(*tasks)
    located = store.locator(prepared)(store.table, store.head)
    store.commit(prepared, located)
    return located.counts


class Model:
    """The table as a dictionary from keys to all live rows of the key, oldest first."""

    def __init__(self, *, ordered: bool) -> None:
        self.rows: dict[Key, list[Row]] = {}
        self.ordered = ordered

    def apply(self, tasks: list[list[RowChange]]) -> None:
        best: dict[Key, RowChange] = {}
        for change in (one for task in tasks for one in task):
            known = best.get(change.key)
            if known is None or self._rank(change) > self._rank(known):
                best[change.key] = change
        for change in best.values():
            self._apply_one(change)

    def _rank(self, change: RowChange) -> Any:
        if not self.ordered:
            return change.offset
        return change.row[2], change.operation is not Operation.SNAPSHOT, change.offset

    def _apply_one(self, change: RowChange) -> None:
        rows = self.rows.pop(change.key, [])
        at = change.row[2]
        snapshot = change.operation is Operation.SNAPSHOT
        if self.ordered and any(row[2] > at or (snapshot and row[2] == at) for row in rows):  # type: ignore[operator]
            highest = max(row[2] for row in rows)  # type: ignore[type-var]
            self.rows[change.key] = [next(row for row in reversed(rows) if row[2] == highest)]
        elif change.operation is not Operation.DELETE:
            self.rows[change.key] = [change.row]

    def insert(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.rows.setdefault(row[:2], []).append(row)


def random_tasks(chance: random.Random, batch: int) -> list[list[RowChange]]:
    def change(key: int, task: int) -> RowChange:
        operation = chance.choices(list(Operation), [6, 3, 1])[0]
        value = f"{batch}.{task}.{key}"
        row = (key - 2**63 if key % 3 == 0 else key, "\0ä"[: key % 3], chance.randrange(20), chance.randrange(3), value)
        return RowChange(row, operation, place=0, offset=batch * 100 + task)

    keys = [chance.sample(range(40), chance.randrange(12)) for _ in range(3)]
    return [[change(key, task) for key in some] for task, some in enumerate(keys)]


def foreign_event(chance: random.Random, found: Store, model: Model, batch: int) -> None:
    """Another program writes to the table."""
    event = chance.randrange(5)
    if event == 0:
        found.compact()
    elif event == 1:
        rows = [
            (key[0], key[1], chance.randrange(100, 200), 1, f"foreign {batch}.{at}")
            for at, key in enumerate(model.rows)
        ]
        chosen = chance.sample(rows, min(3, len(rows)))
        found.publish(found.write(chosen))
        model.insert(chosen)
    elif event == 2:
        found.publish([without_name(file) for file in found.deletes()], {file.path for file in found.deletes()})
    elif event == 3:
        with found.table.update_schema() as update:
            update.rename_column(found.table.schema().find_column_name(1) or "", f"id_{batch}")


@pytest.mark.dear
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("ordered", [True, False], ids=["with a sequence", "without"])
@pytest.mark.parametrize("seed", seeds(1))
def test_random_batches_and_foreign_writers_leave_the_rows_of_a_dictionary(
    tmp_path: Path, spec: str, seed: int, *, ordered: bool
) -> None:
    chance, model = random.Random(f"{spec} {seed}"), Model(ordered=ordered)
    with store(tmp_path, SPECS[spec], ordered=ordered) as found:
        for batch in range(6):
            tasks = random_tasks(chance, batch)
            prepared = found.prepare(*tasks)
            locate = found.locator(prepared)
            locate(found.table, found.head)
            foreign_event(chance, found, model, batch)
            before = len(found.rows())
            located = locate(found.table, found.head)
            found.commit(prepared, located)
            model.apply(tasks)
            assert sorted(found.rows()) == sorted(row for rows in model.rows.values() for row in rows)
            check_counts(located.counts, prepared, located.masked, len(found.rows()) - before, sum(map(len, tasks)))
            named = [file.referenced_data_file for file in found.deletes() if file.referenced_data_file]
            assert len(set(named)) == len(named)  # one delete file of ours for each data file


def check_counts(counts: ChangeCounts, prepared: Prepared, masked: int, grown: int, changes: int) -> None:
    assert counts.balanced
    assert counts.upserts + counts.deletes + counts.superseded == changes
    assert grown == sum(file.record_count for file in prepared.files) - masked - counts.rows_removed
    assert grown == counts.upserts - counts.late_upserts - counts.rows_removed


def test_an_upsert_replaces_the_row_of_its_key_and_moves_it_to_another_partition(tmp_path: Path) -> None:
    with store(tmp_path, SPECS["by a column that changes"]) as found:
        apply(found, [upsert(1, 1, "a", part=1), upsert(2, 1, "b", part=1)])
        assert apply(found, [upsert(1, 2, "c", part=2)]) == ChangeCounts(upserts=1, updated=1)
        assert sorted(found.rows()) == [(1, "", 2, 2, "c"), (2, "", 1, 1, "b")]
        [file] = found.deletes()
        [data] = [one for one in found.data() if one.path == file.referenced_data_file]
        assert (file.spec_id, file.partition) == (data.spec_id, data.partition)


def test_an_older_change_has_no_effect_and_its_row_is_masked(tmp_path: Path) -> None:
    with store(tmp_path) as found:
        apply(found, [upsert(1, 5, "new"), upsert(2, 5, "same")])
        counts = apply(found, [upsert(1, 4, "old"), upsert(2, 5, "again"), delete(3), upsert(4)], [delete(5, 1)])
        assert counts == ChangeCounts(upserts=3, deletes=2, updated=1, inserted=1, late_upserts=1, absent=2)
        assert {row[4] for row in found.rows()} == {"new", "again", ""}
        assert apply(found, [delete(1, 4)]) == ChangeCounts(deletes=1, late_deletes=1)
        assert apply(found, [delete(1, 5)]) == ChangeCounts(deletes=1, deleted=1)
        assert apply(found, [upsert(1, 1, "back")]) == ChangeCounts(upserts=1, inserted=1)


def test_of_two_tasks_with_one_key_the_older_row_is_masked(tmp_path: Path) -> None:
    with store(tmp_path) as found:
        assert apply(found, [upsert(1, 2, "b")], [upsert(1, 1, "a"), upsert(2, 1, "c")]) == ChangeCounts(
            upserts=2, superseded=1, inserted=2
        )
        assert {row[4] for row in found.rows()} == {"b", "c"}
        assert apply(found, [upsert(1, 3, "d")], [delete(1, 4)]) == ChangeCounts(deletes=1, superseded=1, deleted=1)
        assert {row[4] for row in found.rows()} == {"c"}


def test_a_new_delete_file_contains_the_older_ones_and_replaces_them(tmp_path: Path) -> None:
    with store(tmp_path) as found:
        apply(found, [upsert(number) for number in range(9)])
        for number in (4, 1, 7):
            assert apply(found, [delete(number)]).deleted == 1
            [file] = found.deletes()
        table = pq.read_table(file.path.removeprefix("file://"))
        assert table["pos"].to_pylist() == [1, 4, 7]
        assert {row[0] for row in found.rows()} == {0, 2, 3, 5, 6, 8}


def test_a_foreign_delete_file_is_honoured_and_stays(tmp_path: Path) -> None:
    with store(tmp_path) as found:
        apply(found, [upsert(1), upsert(2), upsert(3)])
        apply(found, [delete(1)])
        [file] = found.deletes()
        found.publish([without_name(file)], {file.path})
        assert apply(found, [delete(1), delete(2)]) == ChangeCounts(deletes=2, deleted=1, absent=1)
        foreign, own = found.deletes()
        assert foreign.path == file.path
        assert pq.read_table(own.path.removeprefix("file://"))["pos"].to_pylist() == [1]
        assert [row[0] for row in found.rows()] == [3]


def test_bounds_of_a_delete_file_name_its_data_file_only_if_that_is_live(tmp_path: Path) -> None:
    """A bound may be cut: what is left of it is the beginning of any number of paths."""
    with store(tmp_path) as found:
        [data] = found.write([(1, "", 0, 0, "")])
        [own] = write_deletes([DeletedRows(data.path, 0, (), BitMap64([0]))], str(tmp_path), "s-0", create)
        cut = {FILE_PATH: data.path.encode()[:-9]}
        found.publish([data, own, replace(own, path=f"{own.path}-cut", lower_bounds=cut, upper_bounds=cut)])
        deletes = live_files(found.table, found.head, LiveMemory()).deletes
        assert [file.referenced_data_file for file in deletes] == [data.path, ""]


def test_several_rows_of_a_key_are_healed(tmp_path: Path) -> None:
    with store(tmp_path) as found:
        found.publish(found.write([(1, "", at, 0, str(at)) for at in (3, 9, 5)]))
        found.publish(found.write([(1, "", None, 0, "null"), (2, "", None, 0, "null")]))
        assert apply(found, [upsert(1, 7), delete(2, -9)]) == ChangeCounts(
            upserts=1, deletes=1, late_upserts=1, deleted=1, healed=3
        )
        assert found.rows() == [(1, "", 9, 0, "9")]


def test_a_row_of_a_snapshot_does_not_replace_a_live_row_of_its_sequence(tmp_path: Path) -> None:
    with store(tmp_path) as found:
        apply(found, [upsert(1, 5, "event")])
        row = RowChange((1, "", 5, 0, "load"), Operation.SNAPSHOT)
        assert apply(found, [row]) == ChangeCounts(upserts=1, late_upserts=1)
        assert [one[4] for one in found.rows()] == ["event"]


def test_the_deletes_of_a_head_are_remembered_and_a_new_head_searches_new_files_only(tmp_path: Path) -> None:
    with store(tmp_path) as found:
        apply(found, [upsert(number, 1) for number in range(5)])
        prepared = found.prepare([upsert(1, 2), upsert(9, 2)])
        locate = found.locator(prepared)
        first = locate(found.table, found.head)
        assert locate(found.table, found.head) is first
        [searched] = [Path(file.path.removeprefix("file://")) for file in found.data()]
        found.publish(found.write([(9, "", 1, 0, "rival")]))
        moved = searched.rename(searched.with_suffix(".away"))
        again = locate(found.table, found.head)
        moved.rename(searched)
        found.commit(prepared, again)
        assert again.counts == ChangeCounts(upserts=2, updated=2)
        assert len(found.rows()) == 5 + 1


def test_a_batch_without_changes_and_an_empty_table_cost_nothing(tmp_path: Path) -> None:
    with store(tmp_path) as found:
        prepared = found.prepare([upsert(1)])
        located = found.locator(prepared)(found.table, None)
        assert (located.deletes, located.counts) == ((), ChangeCounts(upserts=1, inserted=1))
        found.commit(prepared, located)
        nothing = found.locator(found.prepare([], []))(found.table, found.head)
        assert (nothing.head, nothing.deletes, nothing.counts) == (found.head, (), ChangeCounts())
        assert not (tmp_path / "cache").exists()


def test_groups_of_files_keep_both_limits_and_only_a_file_of_more_rows_is_beyond_them() -> None:
    files = [DataFile(str(place), rows) for place, rows in enumerate([1, 2, 3, 4, 2, 9, 1, 1, 1, 1])]
    groups = [[file.rows for file in group] for group in groups_of(files, most_rows=6, most_files=3)]
    assert groups == [[1, 2, 3], [4, 2], [9], [1, 1, 1], [1]]


def test_workers_find_what_the_driver_finds(tmp_path: Path) -> None:
    sizes: list[int] = []

    def run(function: Any, groups: Sequence[Group]) -> list[bytes]:
        sizes.append(len(pickle.dumps((function, groups[0]))))
        return [pickle.loads(pickle.dumps(function))(group) for group in groups]  # noqa: S301 - its own

    with store(tmp_path) as found:
        for batch in range(3):
            apply(found, [upsert(number, 1) for number in range(batch, 30, 3)])
        prepared = found.prepare([upsert(1, 0), delete(2, 3)], [upsert(2, 1), upsert(3, 2)])
        here = found.locator(prepared)(found.table, found.head)
        there = found.locator(prepared, workers=run, workers_from_bytes=0)(found.table, found.head)
        assert (
            there.counts
            == here.counts
            == ChangeCounts(upserts=2, deletes=1, superseded=1, updated=1, late_upserts=1, deleted=1)
        )
        assert sorted(file.record_count for file in there.deletes) == sorted(file.record_count for file in here.deletes)
        assert sizes[0] < 10_000


def test_data_files_that_lack_a_row_of_a_superseded_change_are_refused(tmp_path: Path) -> None:
    with store(tmp_path) as found:
        prepared = found.prepare([upsert(1, 2)], [upsert(1, 1)])
        lacking = Prepared(prepared.changes, prepared.files[:1])
        with pytest.raises(WriteError, match="LAKESINK_KEYS_FILE_DAMAGED") as refused:
            found.locator(lacking)(found.table, None)
        assert prepared.changes.keys_files[0].path in str(refused.value)


def test_files_without_field_ids_are_read_by_the_name_mapping(tmp_path: Path) -> None:
    with store(tmp_path) as found:
        [file] = found.write([(1, "a", 5, 0, "x"), (2, "b", 5, 0, "y")])
        path = Path(file.path.removeprefix("file://"))
        plain = pq.read_table(path)
        pq.write_table(plain.cast(pa.schema([field.remove_metadata() for field in plain.schema])), path)
        mapping = (
            '[{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["tag"]}, {"field-id": 3, "names": ["at"]}]'
        )
        with found.table.transaction() as change:
            change.set_properties({"schema.name-mapping.default": mapping})
        found.publish([file])
        prepared = found.prepare([delete(1, 4, "a"), delete(2, 5, "b")])
        located = found.locator(prepared)(found.table, found.head)
        assert located.counts == ChangeCounts(deletes=2, late_deletes=1, deleted=1)
