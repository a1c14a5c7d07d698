"""A metadata folder that fails: one named error that says where the data is, and the next try is as if it never was."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFile

from lakesink_protocol.catalogue import DataState
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from testkit.builders import Lake, Stream, counted, expected
from tests.faults.test_replays import BATCHES, expiry, happens, others, rewritten

FULL = OSError(28, "No space left on device")


def when(failing: Callable[[str], bool], method: Any) -> Any:
    def fails(file: PyArrowFile, *args: Any, **kwargs: Any) -> Any:
        if failing(file.location):
            raise FULL
        return method(file, *args, **kwargs)

    return fails


FAILURES: dict[str, tuple[str, Callable[[str], bool]]] = {
    "no manifest can be written": ("create", lambda path: path.endswith("-m0.avro")),
    "no prepared record can be written": ("create", lambda path: path.endswith(".json")),
    "no prepared record can be looked for": ("open", lambda path: "/lakesink/" in path),
}


@pytest.mark.parametrize("name", FAILURES)
def test_storage_that_fails_before_the_commit_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lake = Lake.make(tmp_path)
    stream = Stream(lake)
    stream.run(0)
    method, failing = FAILURES[name]
    with monkeypatch.context() as broken:
        broken.setattr(
            PyArrowFile,
            method,
            when(lambda path: "metadata.json" not in path and failing(path), getattr(PyArrowFile, method)),
        )
        with pytest.raises(CatalogError, match="LAKESINK_WAREHOUSE_UNWRITABLE") as failed:
            stream.run(1)
    first_line = str(failed.value).partition("\n")[0]
    assert len(first_line) < 200
    assert "No space left" in first_line
    assert re.sub("batch [0-9]+", "this batch", failed.value.data) == DataState.NOT_IN.value
    assert counted(lake) == expected(0)
    assert isinstance(stream.run(1), Committed)
    assert counted(lake) == expected(0, 1)


def test_prepared_files_that_cannot_be_looked_at_are_neither_dropped_nor_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is away says nothing about the files: the record stays for the next try."""
    lake = Lake.make(tmp_path, properties={"commit.retry.num-retries": "0"})
    stream = Stream(lake)
    lake.catalog.faults = [lake.catalog.arrives_late]
    with pytest.raises(Exception, match="COMMIT_UNRESOLVED"):
        stream.run(0)
    with monkeypatch.context() as broken:
        broken.setattr(PyArrowFile, "__len__", when(lambda path: path.endswith(".parquet"), PyArrowFile.__len__))
        with pytest.raises(CatalogError, match="LAKESINK_WAREHOUSE_UNWRITABLE"):
            stream.run(0)
    outcome = stream.run(0)
    assert isinstance(outcome, Committed)
    assert outcome.recovered
    assert stream.writes == 1


@pytest.mark.parametrize("files", ["snap-", ".metadata.json"])
def test_older_files_that_a_decision_needs_and_cannot_read_are_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: str
) -> None:
    lake = Lake.make(tmp_path)
    stream = Stream(lake).filled(BATCHES)
    foreign = happens(lake, stream, (rewritten, expiry, others))
    newest = lake.table().metadata_location
    with monkeypatch.context() as broken:
        broken.setattr(
            PyArrowFile, "open", when(lambda path: files in path and not newest.endswith(path), PyArrowFile.open)
        )
        with pytest.raises(CatalogError, match="LAKESINK_WAREHOUSE_UNWRITABLE") as failed:
            stream.run(BATCHES - 1)
    assert re.sub("batch [0-9]+", "this batch", failed.value.data) == DataState.NOT_IN.value
    assert isinstance(stream.run(BATCHES - 1), AlreadyCommitted)
    assert counted(lake) == expected(*range(BATCHES)) + foreign
