"""A path can be used again, by a new table of the same name or for a new export: rows are found in the new file."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from lakesink_protocol.outcome import Committed
from testkit.builders import Lake
from tests.upsert.foreign_files import ID, add_file, lake_of, live_rows
from tests.upsert.rows import RowStream

COLUMNS = pa.schema([("id", pa.int64()), ("part", pa.string()), ("version", pa.int64())])


@pytest.fixture(autouse=True)
def local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the copies of key columns."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def add(lake: Lake, *ids: int, version: int, has_ids: bool) -> None:
    """A file with these rows. Without field ids its key columns are copied; with them its footer is remembered."""
    rows = {"id": pa.array(ids), "part": pa.array(["a"] * len(ids)), "version": pa.array([version] * len(ids))}
    add_file(lake, rows, "a", has_ids=has_ids)


@pytest.mark.parametrize("has_ids", [True, False])
def test_a_new_table_has_other_rows_under_the_same_path(tmp_path: Path, *, has_ids: bool) -> None:
    lake = lake_of(tmp_path, StringType(), ID)
    schema, spec = lake.table().schema(), lake.table().spec()
    for sink, ids in (("first", (1, 2, 3)), ("second", (3, 2, 1))):
        add(lake, *ids, version=1, has_ids=has_ids)
        outcome = RowStream(lake, sink_id=sink, columns=COLUMNS).change(0, [{"id": 1, "part": "a", "version": 5}])
        assert isinstance(outcome, Committed)
        assert live_rows(lake) == [(1, 5), (2, 1), (3, 1)]
        lake.catalog.drop_table(lake.name)
        lake.create(schema, spec)


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize("driver_stays", [True, False])
def test_a_table_gets_a_new_file_under_the_path_of_one_that_it_has_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_ids: bool, driver_stays: bool
) -> None:
    lake = lake_of(tmp_path, StringType(), ID)
    stream = RowStream(lake, columns=COLUMNS)
    if driver_stays:
        sink = stream.sink()
        monkeypatch.setattr(RowStream, "sink", lambda _: sink)
    add(lake, 1, 2, 3, version=1, has_ids=has_ids)
    stream.change(0, [{"id": 1, "part": "a", "version": 5}])
    lake.table().delete()
    add(lake, 3, 2, 1, version=6, has_ids=has_ids)
    stream.change(1, [{"id": 1, "part": "a", "version": 7}])
    assert live_rows(lake) == [(1, 7), (2, 6), (3, 6)]
