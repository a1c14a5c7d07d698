"""What trouble with the local disk, and with a file of the table, is told as."""

import errno
import io
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakesink.keys.footers import open_parquet
from lakesink.keys.locate_errors import file_unreadable, on_local_disk, private_folder, reading
from lakesink_protocol.errors import WriteError


def test_a_folder_is_made_for_this_user_alone(tmp_path: Path) -> None:
    made = private_folder(str(tmp_path / "a" / "b"))
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o777)
    assert private_folder(str(made)).stat().st_mode & 0o777 == 0o700


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(WriteError, match="LAKESINK_CACHE_UNSAFE"):
        private_folder(str(tmp_path))


@pytest.mark.parametrize(
    ("number", "reads_others", "is_of_the_disk"),
    [
        (errno.ENOENT, False, True),
        (errno.ENOSPC, False, True),
        (errno.ENOSPC, True, True),
        (errno.EROFS, True, True),
        (errno.ENOENT, True, False),
    ],
)
def test_an_error_is_of_the_local_disk_unless_a_file_of_the_table_may_have_it_too(
    number: int, *, reads_others: bool, is_of_the_disk: bool
) -> None:
    error = OSError(number, "trouble")
    with pytest.raises((WriteError, OSError)) as raised, on_local_disk("/cache", reads_others=reads_others):
        raise error
    if is_of_the_disk:
        assert isinstance(raised.value, WriteError)
        assert raised.value.code == "LAKESINK_LOCAL_DISK_FAILED"
    else:
        assert raised.value is error


def parquet(rows: int) -> io.BytesIO:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": range(rows)}), sink)
    return sink


def test_a_data_file_is_parquet_and_has_as_many_rows_as_its_manifest_states() -> None:
    assert open_parquet("p", parquet(3), 3).metadata.num_rows == 3
    for source, why in ((parquet(3), "its footer has 3 rows, and its manifest has 4"), (io.BytesIO(b"junk"), "")):
        with pytest.raises(WriteError) as error:
            open_parquet("p", source, 4)
        assert error.value.code == "LAKESINK_TABLE_FILE_UNREADABLE"
        assert why in str(error.value)


def test_an_error_while_a_file_is_read_is_told_with_the_file() -> None:
    with pytest.raises(WriteError) as error, reading("s3://b/f", file_unreadable):
        raise FileNotFoundError("gone")
    assert error.value.code == "LAKESINK_TABLE_FILE_UNREADABLE"
    assert "s3://b/f" in str(error.value)
