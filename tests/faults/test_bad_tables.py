"""What stands under the table's name is not what the stream left there: one clear error with a stable code, or none."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.outcome import Committed
from testkit.builders import Lake, Stream
from testkit.maintenance import upgrade
from tests.audit.deletes import delete_by_equality


def becomes_a_view(lake: Lake) -> None:
    with sqlite3.connect(lake.folder / "catalog.db") as database:
        database.execute("UPDATE iceberg_tables SET iceberg_type = 'VIEW'")


def loses_its_metadata(lake: Lake) -> None:
    shutil.rmtree(place(lake) / "metadata")


def is_torn(lake: Lake) -> None:
    Path(lake.table().metadata_location.removeprefix("file://")).write_text("{")


def has_no_folder_for_data(lake: Lake) -> None:
    shutil.rmtree(place(lake) / "data")
    (place(lake) / "data").write_text("in the way")


def place(lake: Lake) -> Path:
    return Path(lake.table().location().removeprefix("file://"))


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (upgrade, "LAKESINK_UNSUPPORTED", "format version 3"),
        (becomes_a_view, "LAKESINK_TABLE_IS_VIEW", "is a view"),
        (loses_its_metadata, "LAKESINK_WAREHOUSE_UNWRITABLE", "Failed to open local file"),
        (is_torn, "LAKESINK_TABLE_METADATA_UNREADABLE", "validation error for TableMetadata"),
        (has_no_folder_for_data, "LAKESINK_STORAGE_WRITE", "Cannot create directory"),
    ],
)
def test_a_stream_that_meets_a_bad_table_says_what_it_is(
    tmp_path: Path, change: Callable[[Lake], None], code: str, says: str
) -> None:
    lake = Lake.make(tmp_path)
    stream = Stream(lake)
    stream.run(0)
    change(lake)
    with pytest.raises(LakesinkError) as refused:
        stream.run(1)
    first_line = str(refused.value).splitlines()[0]
    assert refused.value.code == code
    assert says in first_line
    assert len(first_line) <= 200
    assert refused.value.action


def test_a_stream_goes_on_into_a_table_that_gained_equality_deletes(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    stream = Stream(lake)
    stream.run(0)
    delete_by_equality(lake, 0)
    assert isinstance(stream.run(1), Committed)
