"""Key columns of files that are not on the local disk are copied once, and a copy that is torn is never used."""

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType, StringType

from lakesink.keys import key_cache
from lakesink.keys.data_file import DataFile
from lakesink.keys.footers import Source
from lakesink.keys.key_cache import KeyCache
from lakesink.keys.newest import CHANGE
from lakesink.keys.scan import ScanLimits, find_rows
from lakesink.keys.work import Search
from lakesink_protocol.errors import WriteError
from tests.locate.builders import columns_of, opened, write_rows

COLUMNS = columns_of([LongType()], [StringType()])
ROWS = 100


class Bucket:
    """An object store: a folder behind another scheme, which counts what is opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: list[str] = []

    def put(self, name: str, first: int = 0, rows: int = ROWS) -> DataFile:
        values = pa.array(range(first, first + rows), pa.int64())
        columns = {("other", 9): values, ("id", 1): values, ("at", 2): values.cast(pa.string())}
        write_rows(self.folder / name, columns, rows_in_group=40)
        return DataFile(f"bucket://{name}", rows)

    def open(self, location: str) -> Any:
        self.opened.append(location.removeprefix("bucket://"))
        return (self.folder / location.removeprefix("bucket://")).open("rb")


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(tmp_path / "bucket")


def search(bucket: Bucket, tmp_path: Path, **limits: int) -> Search:
    return Search(COLUMNS, Source(bucket.open), KeyCache(str(tmp_path / "cache"), **limits))


def wanted(*keys: int) -> pa.Table:
    return pa.table([pa.arange(0, len(keys)), pa.array(keys, pa.int64())], [CHANGE, "k1"])


def copies(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").glob("*.parquet"), key=lambda path: path.stat().st_mtime)


def positions(found: pa.Table) -> list[tuple[int, int, str]]:
    rows = found.sort_by([("file", "ascending"), ("pos", "ascending")]).to_pylist()
    return [(row["file"], row["pos"], row["s2"]) for row in rows]


def test_a_file_is_read_once_by_all_processes_and_its_positions_stay(bucket: Bucket, tmp_path: Path) -> None:
    files = [bucket.put("a"), bucket.put("b", 1_000)]
    for _ in range(3):
        found = search(bucket, tmp_path).find(files, wanted(57, 1_099, 5_000))
        assert positions(found) == [(0, 57, "57"), (1, 99, "1099")]
    assert sorted(bucket.opened) == ["a", "b"]
    assert len(copies(tmp_path)) == 2
    assert not [entry for entry in (tmp_path / "cache").iterdir() if entry not in copies(tmp_path)]


def test_a_torn_or_foreign_copy_is_replaced(bucket: Bucket, tmp_path: Path) -> None:
    files = [bucket.put("a")]
    search(bucket, tmp_path).find(files, wanted(1))
    [copy] = copies(tmp_path)
    whole = copy.read_bytes()
    shorter = Path(write_rows(tmp_path / "shorter", {("k1", 1): pa.array([1]), ("s2", 2): pa.array(["x"])}))
    for content in (whole[:-9], b"", shorter.read_bytes()):
        copy.write_bytes(content)
        assert positions(search(bucket, tmp_path).find(files, wanted(1))) == [(0, 1, "1")]
        assert copy.read_bytes() == whole


def test_a_file_with_other_rows_than_its_manifest_states_is_refused_and_not_kept(
    bucket: Bucket, tmp_path: Path
) -> None:
    file = bucket.put("a")
    with pytest.raises(WriteError, match="LAKESINK_TABLE_FILE_UNREADABLE"):
        search(bucket, tmp_path).find([DataFile(file.path, ROWS + 1)], wanted(1))
    (bucket.folder / "a").unlink()
    with pytest.raises(WriteError, match="LAKESINK_TABLE_FILE_UNREADABLE"):
        search(bucket, tmp_path).find([file], wanted(1))
    assert not (tmp_path / "cache").exists() or not copies(tmp_path)


@pytest.mark.parametrize(("fit", "spare_bytes", "left"), [(3, 0, 3), (3, -1, 2), (2, 1, 2), (2, 0, 2), (2, -1, 1)])
def test_the_least_recently_used_copies_are_removed_as_far_as_the_limit_demands(
    bucket: Bucket, tmp_path: Path, fit: int, spare_bytes: int, left: int
) -> None:
    files = [bucket.put(name) for name in "abc"]
    for file in files:
        search(bucket, tmp_path).find([file], wanted(1))
    size = copies(tmp_path)[0].stat().st_size
    for age, copy in enumerate(reversed(copies(tmp_path))):
        os.utime(copy, (time.time() - age, time.time() - age))
    search(bucket, tmp_path).find([files[0]], wanted(1))  # the oldest is used again
    bucket.opened.clear()
    search(bucket, tmp_path, most_bytes=fit * size + spare_bytes).find([files[0]], wanted(1))
    assert len(copies(tmp_path)) == left
    assert bucket.opened == []  # its copy stayed


def test_files_beyond_the_limit_are_found_too(bucket: Bucket, tmp_path: Path) -> None:
    files = [bucket.put(str(number), number * ROWS) for number in range(5)]
    found = search(bucket, tmp_path, most_bytes=1).find(files, wanted(5, 450))
    assert positions(found) == [(0, 5, "5"), (4, 50, "450")]
    assert copies(tmp_path) == []


def test_threads_that_copy_the_same_files_disturb_nobody(bucket: Bucket, tmp_path: Path) -> None:
    files = [bucket.put(str(number), number * ROWS) for number in range(4)]
    keys = wanted(5, 105, 205, 305)

    def find(limit: int) -> list[tuple[int, int, str]]:
        return positions(search(bucket, tmp_path, most_bytes=limit).find(files, keys))

    with ThreadPoolExecutor(4) as pool:
        assert set(map(tuple, pool.map(find, [1, 2**30] * 6))) == {
            ((0, 5, "5"), (1, 5, "105"), (2, 5, "205"), (3, 5, "305"))
        }


def test_the_folder_is_private_and_leftovers_of_ended_processes_go(bucket: Bucket, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o777)
    old = time.time() - 2 * 24 * 60 * 60
    for name in ("held-old", "held-new"):
        (cache / name).mkdir()
    os.utime(cache / "held-old", (old, old))
    search(bucket, tmp_path).find([bucket.put("a")], wanted(1))
    assert cache.stat().st_mode & 0o777 == 0o700
    assert sorted(entry.name for entry in cache.iterdir() if entry.suffix != ".parquet") == ["held-new"]


def test_a_file_without_a_key_column_has_no_rows_of_the_keys(bucket: Bucket, tmp_path: Path) -> None:
    path = write_rows(bucket.folder / "a", {("other", 9): pa.array([1, 2])})
    for location, open_input in (("bucket://a", bucket.open), (path, opened)):
        searched = Search(COLUMNS, Source(open_input), KeyCache(str(tmp_path / "cache")))
        assert not searched.find([DataFile(location, 2)], wanted(1)).num_rows


def test_without_files_or_keys_nothing_is_found_and_no_file_is_opened(bucket: Bucket, tmp_path: Path) -> None:
    for files, keys in (([], wanted(1)), ([bucket.put("a")], wanted())):
        found = search(bucket, tmp_path).find(files, keys)
        assert (found.num_rows, found.column_names) == (0, ["file", "pos", CHANGE, "s2"])
    assert bucket.opened == []


def test_a_path_that_is_used_again_is_copied_again(bucket: Bucket, tmp_path: Path) -> None:
    for since, first in (("a table, 1", 0), ("a table, 2", 50), ("another table, 2", 90)):
        file = replace(bucket.put("a", first), since=since)
        assert positions(search(bucket, tmp_path).find([file], wanted(95))) == [(0, 95 - first, "95")]


def test_copies_that_cannot_be_searched_are_made_anew(bucket: Bucket, tmp_path: Path) -> None:
    files = [bucket.put("a"), bucket.put("b", 1_000)]
    search(bucket, tmp_path).find(files, wanted(1))
    for copy in copies(tmp_path):
        damaged, footer = bytearray(copy.read_bytes()), pq.read_metadata(copy)
        for group in range(footer.num_row_groups):
            page = footer.row_group(group).column(0).data_page_offset
            damaged[page : page + 8] = bytes(8)
        copy.write_bytes(damaged)
    assert positions(search(bucket, tmp_path).find(files, wanted(57, 1_099))) == [(0, 57, "57"), (1, 99, "1099")]
    assert len(copies(tmp_path)) == 2


def test_a_disk_without_hard_links_keeps_no_copy(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    for _ in range(2):
        assert positions(search(bucket, tmp_path).find([bucket.put("a")], wanted(57))) == [(0, 57, "57")]
    assert list((tmp_path / "cache").iterdir()) == []


def file_in_its_place(cache: Path, _: pytest.MonkeyPatch) -> None:
    cache.write_text("")


def removed_while_it_copies(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = key_cache._copy_columns  # noqa: SLF001

    def copy(*given: Any) -> None:
        real(*given)
        shutil.rmtree(cache)

    monkeypatch.setattr(key_cache, "_copy_columns", copy)


def full_disk(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copy(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(key_cache, "_copy_columns", copy)


@pytest.mark.parametrize("trouble", [file_in_its_place, removed_while_it_copies, full_disk])
def test_trouble_of_the_local_disk_is_told_as_such(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Callable[[Path, pytest.MonkeyPatch], None]
) -> None:
    trouble(tmp_path / "cache", monkeypatch)
    with pytest.raises(WriteError) as refused:
        search(bucket, tmp_path).find([bucket.put("a")], wanted(57))
    assert refused.value.code == "LAKESINK_LOCAL_DISK_FAILED"
    assert str(tmp_path / "cache") in str(refused.value)
    assert "Nothing" in str(refused.value)


def test_what_a_scan_spills_has_a_folder_though_that_of_the_session_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_rows(tmp_path / "a", {("id", 1): pa.array([7]), ("at", 2): pa.array(["x"])})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    found = find_rows([str(path)], wanted(7), COLUMNS, ScanLimits(kept_rows=0))
    assert found.num_rows == 1
