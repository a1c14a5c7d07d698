"""Files of position deletes have the form of Iceberg's specification."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from lakesink.keys import live_rows
from lakesink.keys.deleted_rows import KnownDeletes, read_deleted
from lakesink.keys.live_rows import OldDeletes, applicable, merged, not_deleted
from lakesink.keys.scan import FILE, POSITION
from lakesink.parquet.deletes import FILE_PATH, POS, DeletedRows, write_deletes
from lakesink.parquet.positions import below
from lakesink_catalog.manifests.live import LiveFile
from lakesink_protocol.change import Content
from lakesink_protocol.errors import WriteError
from tests.locate.builders import opened


def create(location: str) -> Any:
    return pa.OSFile(location, "wb")


def rows(path: str, *positions: int) -> DeletedRows:
    return DeletedRows(path, 3, (b"p", None), BitMap64(positions))


@pytest.mark.parametrize("block", [1, 7, 1_000])
def test_rows_at_deleted_positions_are_left_out_in_blocks_of_any_size(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_rows, "_BLOCK_ROWS", block)
    chance = random.Random(block)
    found = [(chance.randrange(5), chance.randrange(20)) for _ in range(60)]
    deleted = {number: chance.sample(range(25), number * 4) for number in range(1, 6)}
    files, places = zip(*found, strict=True)
    rows = pa.table([pa.array(files, pa.int32()), pa.array(places, pa.int64())], [FILE, POSITION])
    positions = {number: BitMap64([*some, 2**62]) for number, some in deleted.items()}
    left = not_deleted(rows, positions).to_pydict()
    expected = [(number, place) for number, place in found if place not in deleted.get(number, [])]
    assert list(zip(left[FILE], left[POSITION], strict=True)) == expected


@pytest.mark.parametrize("positions", [[], [0], [2, 3, 4], [5], [1, 2**62]])
def test_positions_beyond_the_rows_of_a_file_are_left_out(positions: list[int]) -> None:
    for count in range(7):
        assert [*below(BitMap64(positions), count)] == [position for position in positions if position < count]


def test_a_file_names_one_data_file_in_its_rows_its_bounds_and_its_entry(tmp_path: Path) -> None:
    path = "s3://bucket/" + "long/" * 100 + "ä.parquet"
    [file] = write_deletes([rows(path, 0, 5, 2**40)], str(tmp_path), "s-0", create)
    read = pq.read_table(file.path)
    assert read.to_pydict() == {"file_path": [path] * 3, "pos": [0, 5, 2**40]}
    assert [field.nullable for field in read.schema] == [False, False]
    assert [int(field.metadata[b"PARQUET:field_id"]) for field in read.schema] == [2147483546, 2147483545]
    assert pq.read_metadata(file.path).metadata[b"delete-type"] == b"position"
    assert file.lower_bounds == {FILE_PATH: path.encode(), POS: (0).to_bytes(8, "little")}
    assert file.upper_bounds == {FILE_PATH: path.encode(), POS: (2**40).to_bytes(8, "little")}
    assert (file.content, file.referenced_data_file) == (Content.POSITION_DELETES, path)
    assert (file.spec_id, file.partition, file.record_count) == (3, (b"p", None), 3)
    assert file.value_counts == {FILE_PATH: 3, POS: 3}
    assert file.null_value_counts == {FILE_PATH: 0, POS: 0}
    assert file.file_size_bytes == Path(file.path).stat().st_size
    assert file.split_offsets == (4,)
    assert set(file.column_sizes) == {FILE_PATH, POS}


def test_each_data_file_gets_a_file_and_none_are_written_without_rows(tmp_path: Path) -> None:
    files = write_deletes([rows(f"d{number}", number) for number in range(50)], str(tmp_path), "s-0", create)
    assert [file.referenced_data_file for file in files] == [f"d{number}" for number in range(50)]
    assert len({file.path for file in files}) == 50
    assert write_deletes([], str(tmp_path), "s-0", create) == []


def test_a_million_positions_take_little_space(tmp_path: Path) -> None:
    deleted = DeletedRows("d" * 200, 0, (), BitMap64(range(1_000_000)))
    [file] = write_deletes([deleted], str(tmp_path), "s-0", create)
    assert pq.read_table(file.path)["pos"].combine_chunks().equals(pa.arange(0, 1_000_000))
    assert file.file_size_bytes < 4_000_000


def old(
    path: str,
    number: int = 5,
    names: str = "",
    partition: tuple[bytes, ...] = (b"a",),
    spec_id: int = 0,
    **bounds: bytes,
) -> LiveFile:
    lower, upper = ({FILE_PATH: bounds[end]} if end in bounds else {} for end in ("lower", "upper"))
    content = Content.POSITION_DELETES
    return LiveFile(path, content, spec_id, partition, 1, 1, number, lower, upper, names, manifest_path="")


@pytest.mark.parametrize(
    ("delete", "applies"),
    [
        (old("x", 5), True),
        (old("x", 6), True),
        (old("x", 4), False),
        (old("x", partition=(b"b",)), False),
        (old("x", names="d1"), True),
        (old("x", names="d2"), False),
        (old("x", names="d1", number=4), False),
        (old("x", names="d1", partition=(b"b",)), False),
        (old("x", lower=b"d1", upper=b"d1"), True),
        (old("x", lower=b"d2"), False),
        (old("x", upper=b"d0"), False),
    ],
)
def test_position_deletes_apply_to_files_of_their_partition_that_are_not_newer(delete: LiveFile, applies: bool) -> None:  # noqa: FBT001
    found = applicable([old("d1"), old("d9", 0, spec_id=1)], [delete])
    assert [one.data_files for one in found] == ([frozenset({"d1"})] if applies else [])
    assert all(one.only == bool(delete.referenced_data_file) for one in found)


def write_foreign(path: Path, deleted: dict[str, list[int]]) -> str:
    pairs = [(name, position) for name, positions in deleted.items() for position in positions]
    table = pa.table([[name for name, _ in pairs], pa.array([at for _, at in pairs], pa.int64())], ["file_path", "pos"])
    pq.write_table(table, path)
    return str(path)


def test_files_that_name_several_data_files_are_read_and_not_merged(tmp_path: Path) -> None:
    foreign = write_foreign(tmp_path / "f", {"d1": [1, 2], "d2": [3], "d3": [4]})
    lying = write_foreign(tmp_path / "l", {"d1": [7], "d4": [8]})
    [own] = write_deletes([rows("d1", 5)], str(tmp_path), "s-0", create)
    found = read_deleted(
        [
            OldDeletes(foreign, 4, frozenset({"d1", "d2"}), only=False),
            OldDeletes(lying, 2, frozenset({"d1"}), only=True),
            OldDeletes(own.path, 1, frozenset({"d1"}), only=True),
        ],
        opened,
        KnownDeletes(),
    )
    assert found.positions == {"d1": BitMap64([1, 2, 5, 7]), "d2": BitMap64([3])}
    assert found.alone == {"d1": {own.path: BitMap64([5])}}


def test_positions_of_others_are_read_in_any_order_and_more_than_once(tmp_path: Path) -> None:
    foreign = write_foreign(tmp_path / "f", {"d1": [5, 1, 2**40, 1], "d2": [3, 2]})
    deletes = [OldDeletes(foreign, 6, frozenset(names), only=False) for names in ({"d1"}, {"d1", "d2"})]
    for delete in deletes:
        found = read_deleted([delete], opened, KnownDeletes()).positions
        expected = {"d1": BitMap64([1, 5, 2**40]), "d2": BitMap64([2, 3])}
        assert found == {name: expected[name] for name in delete.data_files}


@pytest.mark.parametrize("wrong", [None, -1])
def test_a_position_that_is_null_or_negative_is_refused(tmp_path: Path, wrong: int | None) -> None:
    table = pa.table([["d1", "d1"], pa.array([wrong, 1], pa.int64())], ["file_path", "pos"])
    pq.write_table(table, tmp_path / "f")
    with pytest.raises(WriteError, match="a position is NULL or negative"):
        read_deleted([OldDeletes(str(tmp_path / "f"), 2, frozenset({"d1"}), only=True)], opened, KnownDeletes())


@pytest.mark.parametrize(
    ("new", "older", "taken"),
    [
        (1, {}, ""),
        (1, {"a": 65_535}, "a"),
        (1, {"a": 65_536}, ""),
        (8_192, {"a": 65_536}, ""),
        (8_193, {"a": 65_536}, "a"),
        (1, {"a": 65_536, "b": 65_535}, "ba"),
        (100, {"a": 500_000, "b": 60_000}, "b"),
        (2_501, {"a": 500_000, "b": 60_000}, "ba"),
        (100, {"a": 4_000_000, "b": 401_000, "c": 50_000}, "c"),
        (1_000, {"a": 4_000_000, "b": 401_000, "c": 50_000}, "cb"),
        (60_000, {"a": 4_000_000, "b": 401_000, "c": 50_000}, "cba"),
    ],
)
def test_a_new_delete_file_takes_the_place_of_all_that_are_not_much_larger(
    new: int, older: dict[str, int], taken: str
) -> None:
    first = {path: 10_000_000 * number for number, path in enumerate("abc", start=1)}
    files = {path: BitMap64(range(first[path], first[path] + rows)) for path, rows in older.items()}
    paths, positions = merged(BitMap64(range(new)), files)
    assert paths == list(taken)
    assert positions == BitMap64.union(BitMap64(range(new)), *(files[path] for path in taken))


def test_delete_files_that_share_positions_are_not_both_merged() -> None:
    older = {"a": BitMap64([1, 2]), "b": BitMap64([2, 3, 4]), "c": BitMap64([5, 6, 7, 8])}
    assert merged(BitMap64([9]), older) == (["a", "c"], BitMap64([1, 2, 5, 6, 7, 8, 9]))


def test_a_position_is_written_again_a_few_times_and_a_data_file_has_few_delete_files() -> None:
    files, written = dict[str, BitMap64](), 0
    for number in range(4_000):
        taken, positions = merged(BitMap64(range(500 * number, 500 * number + 500)), files)
        files = {path: there for path, there in files.items() if path not in taken} | {str(number): positions}
        written += len(positions)
        assert len(files) <= 3
    assert written < 100 * 4_000 * 500


def test_delete_files_are_remembered_while_there_is_room_and_the_older_ones_stay() -> None:
    known, asked = KnownDeletes(most_positions=5), [OldDeletes(path, 2, frozenset({"d"}), only=True) for path in "abc"]
    for path in "abc":
        known.keep(path, "d", BitMap64([1, 2]))
    assert [known.of(one) is not None for one in asked] == [True, True, False]
    known.retain({"b", "c"})
    known.keep("c", "d", BitMap64([3, 4]))
    assert [known.of(one) for one in asked] == [None, ({"d": BitMap64([1, 2])}, True), ({"d": BitMap64([3, 4])}, True)]
    assert known.of(OldDeletes("b", 3, frozenset({"d"}), only=True)) is None
    assert known.of(OldDeletes("b", 2, frozenset({"e"}), only=True)) is None


def test_a_delete_file_with_other_rows_than_its_manifest_states_is_refused(tmp_path: Path) -> None:
    foreign = write_foreign(tmp_path / "f", {"d1": [1, 2]})
    for path, count in ((foreign, 3), (str(tmp_path / "missing"), 1)):
        with pytest.raises(WriteError) as refused:
            read_deleted([OldDeletes(path, count, frozenset({"d1"}), only=True)], opened, KnownDeletes())
        assert refused.value.code == "LAKESINK_TABLE_FILE_UNREADABLE"
