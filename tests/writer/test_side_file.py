"""A file beside the data files is whole when it is closed, gone when it is abandoned, and told by its name."""

import hashlib
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import LongType

from lakesink.parquet.side_file import SideFile, is_side_file, read_side_file
from lakesink_protocol.errors import WriteError
from testkit.tasks import column, plan_for


def side_file(folder: Path, digest: object = None) -> SideFile:
    return SideFile(plan_for(column(LongType()), folder), 3, "kept", digest)


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"c": values})


def test_a_closed_file_has_all_rows_is_let_go_and_is_what_is_said_of_it(tmp_path: Path) -> None:
    digest = hashlib.sha256()
    file = side_file(tmp_path / "data", digest)
    assert (file.location, file.rows, file.size_bytes) == ("", 0, 0)
    file.add(rows(1, 2))
    file.add(rows(3))
    [path] = (tmp_path / "data").iterdir()
    assert path in held()
    file.close()
    assert path not in held()
    written = path.read_bytes()
    assert (file.location, file.rows, file.size_bytes) == (str(path), 3, len(written))
    assert digest.digest() == hashlib.sha256(written).digest()
    assert [batch["c"].to_pylist() for batch in read_side_file(pa.BufferReader(written))] == [[1, 2], [3]]


def held() -> list[Path]:
    """The files that this process has open."""
    return [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]


def test_an_abandoned_file_is_gone_and_let_go_also_without_a_row(tmp_path: Path) -> None:
    file = side_file(tmp_path / "data")
    file.abandon()
    file.add(rows(1))
    [path] = (tmp_path / "data").iterdir()
    file.abandon()
    assert list((tmp_path / "data").iterdir()) == []
    assert not [link for link in held() if link.name.startswith(path.name)]


def test_a_file_without_rows_is_not_created(tmp_path: Path) -> None:
    side_file(tmp_path / "data").close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_created_is_told_by_its_folder(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    with pytest.raises(WriteError, match="LAKESINK_STORAGE_WRITE") as caught:
        side_file(tmp_path / "data").add(rows(1))
    assert f"The file is {str(tmp_path / 'data')!r}." in str(caught.value)


class BreaksLater:
    """A digest that raises the error of a full storage once `is_broken` is set."""

    is_broken = False

    def update(self, _: bytes) -> None:
        if self.is_broken:
            raise OSError("no more room")


def test_a_file_that_fails_later_is_told_by_its_name_and_counts_no_row(tmp_path: Path) -> None:
    digest = BreaksLater()
    file = side_file(tmp_path, digest)
    file.add(rows(1))
    digest.is_broken = True
    with pytest.raises(WriteError, match="LAKESINK_STORAGE_WRITE") as caught:
        file.add(rows(2))
    assert f"The file is {file.location!r}." in str(caught.value)
    assert file.rows == 1


def test_only_a_name_that_the_task_can_have_chosen_is_its_file(tmp_path: Path) -> None:
    file = side_file(tmp_path)
    file.add(rows(1))
    file.abandon()
    folder, name = str(tmp_path), Path(file.location).name
    assert is_side_file(file.location, folder, "events-7", 3, "kept")
    assert not is_side_file(name, folder, "events-7", 3, "kept")
    assert not is_side_file(f"{folder}/deeper/{name}", folder, "events-7", 3, "kept")
    assert not is_side_file(f"{file.location}.kept", folder, "events-7", 3, "kept")
    assert not is_side_file(file.location, folder, "events-8", 3, "kept")
    assert not is_side_file(file.location, folder, "events-7", 4, "kept")
    assert not is_side_file(file.location, folder, "events-7", 3, "left")
