"""Prepared records of changes by key: who may use them, and what a record without its keys files is worth."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lakesink_protocol.outcome import Committed
from testkit.builders import Lake, Stream, is_prepared_record
from testkit.change_table import ChangeStream, Reference, rows_of, upsert_lake


class Killed(BaseException):
    """SIGKILL: nothing of the driver goes on."""


def die(_: Callable[[], object]) -> object:
    raise Killed


def prepared(lake: Lake, stream: Stream) -> Path:
    """The record of batch 0, whose driver dies before its commit."""
    lake.catalog.faults = [die]  # type: ignore[list-item] # a fault that never answers
    with pytest.raises(Killed):
        stream.run(0)
    [record] = filter(is_prepared_record, lake.files())
    return record


def version_of(record: Path) -> int:
    return int(json.loads(record.read_bytes().partition(b"\n")[2])["version"])


def test_an_older_lakesink_reads_records_of_appends_and_not_those_of_changes(tmp_path: Path) -> None:
    """It would commit the rows of such a record, and leave the rows that they replace."""
    for folder in ("changes", "appends"):
        (tmp_path / folder).mkdir()
    changes, appends = upsert_lake(tmp_path / "changes"), Lake.make(tmp_path / "appends")
    assert version_of(prepared(changes, ChangeStream(changes, seed=1))) == 3
    assert version_of(prepared(appends, Stream(appends))) == 2


@pytest.mark.parametrize("damage", ["removed", "cut", "changed"])
def test_a_batch_whose_keys_files_are_not_as_written_is_written_again(tmp_path: Path, damage: str) -> None:
    lake, reference = upsert_lake(tmp_path), Reference()
    stream = ChangeStream(lake, seed=1)
    prepared(lake, stream)
    for file in (path for path in lake.files() if path.suffix == ".keys"):
        data = file.read_bytes()
        if damage == "removed":
            file.unlink()
        else:
            file.write_bytes(data[:-8] if damage == "cut" else data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    outcome = stream.run(0)
    assert isinstance(outcome, Committed)
    assert not outcome.recovered
    reference.apply(stream.changes(0))
    assert rows_of(lake) == reference.table


def test_a_recovered_batch_is_the_one_that_was_prepared(tmp_path: Path) -> None:
    lake, reference = upsert_lake(tmp_path), Reference()
    stream = ChangeStream(lake, seed=1)
    prepared(lake, stream)
    outcome = stream.run(0)
    assert isinstance(outcome, Committed)
    assert outcome.recovered
    assert outcome.changes == reference.apply(stream.changes(0))
    assert rows_of(lake) == reference.table
