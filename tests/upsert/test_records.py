"""Prepared records of changes by key: who may use them, and what a record without its keys files is worth."""

import hashlib
import json
import operator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from lakesink_protocol.identity import SinkKind
from lakesink_protocol.outcome import Committed
from testkit.builders import Lake, Stream, is_prepared_record
from testkit.change_table import ChangeStream, Reference, rows_of, upsert_lake
from testkit.deaths import Killed, dies_before
from tests.decode.debezium.events import event
from tests.upsert.rows import live_rows
from tests.upsert.test_events_put_aside import row, stream_into, take


def prepared(lake: Lake, stream: Stream) -> Path:
    """The record of batch 0, whose driver dies before its commit."""
    lake.catalog.faults = [dies_before]
    with pytest.raises(Killed):
        stream.run(0)
    [record] = filter(is_prepared_record, lake.files())
    return record


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


def keys_files(lake: Lake) -> list[str]:
    return sorted(path.name for path in lake.files() if path.suffix == ".keys")


def of_batches(lake: Lake) -> set[str]:
    """The batches that still have keys files."""
    return {name.split("-")[1] for name in keys_files(lake)}


def test_keys_files_go_with_the_record_of_their_batch(tmp_path: Path) -> None:
    """The record of the last batch stays until the next one has landed, and so do its keys files."""
    lake, reference = upsert_lake(tmp_path), Reference()
    stream = ChangeStream(lake, seed=1)
    sink = stream.sink()
    for batch_id in range(4):
        stream.run_with(sink, batch_id)
        reference.apply(stream.changes(batch_id))
        assert of_batches(lake) == {str(batch_id)}
    assert rows_of(lake) == reference.table


def test_a_driver_removes_the_keys_files_of_the_driver_before_it(tmp_path: Path) -> None:
    lake = upsert_lake(tmp_path)
    for batch_id in range(3):
        ChangeStream(lake, seed=1).run(batch_id)
        assert of_batches(lake) == {str(batch_id)}


@pytest.mark.parametrize("forged", ["data file", "another batch", "another sink", "elsewhere", "no name of a task"])
def test_a_forged_record_removes_no_other_file(tmp_path: Path, forged: str) -> None:
    lake = upsert_lake(tmp_path)
    ChangeStream(lake, seed=1).run(0)
    [record], [keys, *_] = filter(is_prepared_record, lake.files()), keys_files(lake)
    [own] = [path for path in lake.files() if path.name == keys]
    named = {
        "data file": next(path for path in lake.files() if path.suffix == ".parquet"),
        "another batch": own.with_name(keys.replace("-0-", "-1-", 1)),
        "another sink": own.with_name(f"x{keys}"),
        "elsewhere": tmp_path / keys,
        "no name of a task": own.with_name(keys.replace(".keys", "-x.keys")),
    }[forged]
    for path in (named, own):
        path.touch()
    body = json.loads(record.read_bytes().partition(b"\n")[2])
    [payload] = body["participants"].values()
    payload["changes"]["files"] = [[f"file://{named}", *payload["changes"]["files"][0][1:]]]
    data = json.dumps(body, separators=(",", ":")).encode()
    record.write_bytes(hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
    ChangeStream(lake, seed=1).run(1)
    assert named.exists()
    assert own.exists()
    assert not record.exists()


def test_a_call_with_a_version_leaves_no_keys_files(tmp_path: Path) -> None:
    lake, reference = upsert_lake(tmp_path), Reference()
    for version in range(2):
        stream = ChangeStream(lake, seed=1, kind=SinkKind.TXN)
        stream.run(version)
        reference.apply(stream.changes(version))
    assert keys_files(lake) == []
    assert rows_of(lake) == reference.table


def test_keys_files_that_cannot_be_removed_stop_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, reference = upsert_lake(tmp_path), Reference()
    stream, real = ChangeStream(lake, seed=1), PyArrowFileIO.delete

    def delete(io: PyArrowFileIO, location: str) -> None:
        if str(location).endswith(".keys"):
            raise PermissionError(location)
        real(io, location)

    monkeypatch.setattr(PyArrowFileIO, "delete", delete)
    for batch_id in range(2):
        assert isinstance(stream.run(batch_id), Committed)
        reference.apply(stream.changes(batch_id))
    assert of_batches(lake) == {"0", "1"}
    assert rows_of(lake) == reference.table


@pytest.mark.parametrize(
    "options", [{"expect": {"small": ("size <> 3", "warn")}}, {"rescue_column": "rest"}], ids=["unmet", "rescued"]
)
def test_a_record_may_count_more_rows_than_stay_of_a_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    size = 3 if "expect" in options else 2**31
    stream = stream_into(tmp_path, **options)
    states = [event("c", row(1, version, size=size)) for version in range(1, 4)]
    stream.lake.catalog.faults = [operator.call, dies_before]
    with pytest.raises(Killed):
        take(stream, 0, [*states, b"{"])
    stream.restart()
    caplog.clear()
    outcome = take(stream, 0, [*states, b"{"])
    assert isinstance(outcome, Committed)
    assert outcome.recovered
    assert [one["version"] for one in live_rows(stream.lake)] == [3]
