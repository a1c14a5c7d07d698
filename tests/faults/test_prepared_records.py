"""A prepared batch survives a crash and is committed as it is, or, if anything about it is not as it was, never."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakesink_catalog.manifests.write import write_batch_manifests
from lakesink_protocol.change import ContentFile
from lakesink_protocol.errors import CommitUnresolved
from lakesink_protocol.outcome import Committed
from testkit.builders import Lake, Stream, counted, expected, parquet_files
from testkit.maintenance import replace_table, set_property, sweep
from testkit.upserts import local

HOUR_MS = 3_600_000


class Crashed:
    """A stream with batch 0 in the table and batch 1 prepared, by a driver that died before its commit."""

    def __init__(self, folder: Path) -> None:
        self.lake = Lake.make(folder, properties={"commit.retry.num-retries": "0"})
        self.stream = Stream(self.lake)
        self.stream.run(0)
        self.lake.catalog.faults = [self.lake.catalog.arrives_late]
        with pytest.raises(CommitUnresolved):
            self.stream.run(1)
        self.prepared = self.payload()

    @property
    def record(self) -> Path:
        [path] = (self.lake.folder / "warehouse").rglob("lakesink/events/main/1-*.json")
        return path

    def payload(self) -> dict[str, Any]:
        body = json.loads(self.record.read_bytes().partition(b"\n")[2])
        payload: dict[str, Any] = body["participants"]["demo.events@main"]
        return payload

    def rewrite(self, **changed: Any) -> None:
        """The record says something else and digests itself as it should."""
        document = json.loads(self.record.read_bytes().partition(b"\n")[2])
        document["participants"]["demo.events@main"] |= changed
        body = json.dumps(document).encode()
        self.record.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)

    @property
    def data_file(self) -> Path:
        return local(self.prepared["files"][0][0])

    @property
    def manifest(self) -> Path:
        return local(self.prepared["manifests"][0]["path"])


def test_however_often_a_stream_starts_one_record_is_left(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    for number in range(6):
        Stream(lake).run(number)  # a new driver, as from cron
        Stream(lake).run(number)  # one that finds nothing new
        [left] = (tmp_path / "warehouse").rglob("lakesink/events/main/*.json")
        assert left.name.startswith(f"{number}-")
    assert counted(lake) == expected(*range(6))


@pytest.fixture
def crashed(tmp_path: Path) -> Crashed:
    return Crashed(tmp_path)


def test_the_restart_commits_the_very_files_that_were_prepared(crashed: Crashed) -> None:
    files = parquet_files(crashed.lake)
    outcome = crashed.stream.run(1)
    assert isinstance(outcome, Committed)
    assert (outcome.recovered, outcome.snapshot_id) == (True, crashed.prepared["snapshot_id"])
    assert (crashed.stream.writes, parquet_files(crashed.lake)) == (2, files)
    assert counted(crashed.lake) == expected(0, 1)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _pad(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\x00")


def _copied_outside(crashed: Crashed) -> str:
    outside = crashed.lake.folder / crashed.data_file.name
    outside.write_bytes(crashed.data_file.read_bytes())
    return f"file://{outside}"


def _manifest_at(crashed: Crashed, path: str) -> list[dict[str, Any]]:
    return [crashed.prepared["manifests"][0] | {"path": path}]


def _size(crashed: Crashed) -> int:
    return int(crashed.prepared["files"][0][1])


SPOILT: dict[str, Callable[[Crashed], object]] = {
    "record deleted": lambda crashed: crashed.record.unlink(),
    "record torn": lambda crashed: _cut(crashed.record),
    "record empty": lambda crashed: crashed.record.write_bytes(b""),
    "record padded": lambda crashed: _pad(crashed.record),
    "record of another batch": lambda crashed: crashed.record.write_bytes(
        crashed.record.read_bytes().replace(b'"batch_id":1', b'"batch_id":2')
    ),
    "too old": lambda crashed: _move_clock(crashed, 21 * HOUR_MS),
    "too old, and its files taken": lambda crashed: _left_alone(crashed, days=3),
    "from the future": lambda crashed: _move_clock(crashed, -HOUR_MS),
    "data file deleted": lambda crashed: crashed.data_file.unlink(),
    "data file taken by an orphan cleaner": lambda crashed: sweep(crashed.lake),
    "data file cut": lambda crashed: _cut(crashed.data_file),
    "data file padded": lambda crashed: _pad(crashed.data_file),
    "manifest deleted": lambda crashed: crashed.manifest.unlink(),
    "manifest cut": lambda crashed: _cut(crashed.manifest),
    "data file outside": lambda crashed: crashed.rewrite(files=[[_copied_outside(crashed), _size(crashed)]]),
    "data file by climbing": lambda crashed: crashed.rewrite(
        files=[[f"file://{crashed.data_file.parent}/../data/{crashed.data_file.name}", _size(crashed)]]
    ),
    "manifest outside": lambda crashed: crashed.rewrite(manifests=_manifest_at(crashed, _copied_outside(crashed))),
    "another branch": lambda crashed: crashed.rewrite(branch="audit"),
    "another ledger entry": lambda crashed: crashed.rewrite(follows=crashed.prepared["follows"] | {"snapshot_id": 7}),
    "no ledger entry": lambda crashed: crashed.rewrite(follows=None),
    "a schema that nobody knows": lambda crashed: crashed.rewrite(schema_id=99),
    "a spec that nobody knows": lambda crashed: crashed.rewrite(
        manifests=[crashed.prepared["manifests"][0] | {"spec": 9}]
    ),
    "snapshot -1": lambda crashed: crashed.rewrite(snapshot_id=-1),
    "a snapshot that is there": lambda crashed: crashed.rewrite(snapshot_id=crashed.lake.head().snapshot_id),
    "prepared on a human's word": lambda crashed: crashed.rewrite(accepted="Gap:1:commit"),
    "malformed": lambda crashed: crashed.rewrite(files=7),
    "malformed beyond depth": lambda crashed: crashed.rewrite(table_uuid=_nested(900)),
    "fewer rows": lambda crashed: crashed.rewrite(rows=crashed.prepared["rows"] - 1),
    "rows below zero": lambda crashed: crashed.rewrite(rows=-1),
    "more partitions than files": lambda crashed: crashed.rewrite(partitions=9),
    "the manifest twice": lambda crashed: crashed.rewrite(
        manifests=crashed.prepared["manifests"] * 2, files=crashed.prepared["files"] * 2, rows=6
    ),
    "no file": lambda crashed: crashed.rewrite(files=[], manifests=[], rows=crashed.prepared["rows"]),
    "the file of another batch": lambda crashed: _rewrite_manifest(crashed, path=_committed_file(crashed)),
    "a manifest with another file": lambda crashed: _rewrite_manifest(
        crashed, listed=False, path=_copied_outside(crashed)
    ),
    "a manifest with rows that the record lacks": lambda crashed: _rewrite_manifest(
        crashed, counted=False, record_count=1_000
    ),
    "a manifest with more rows than can be": lambda crashed: _rewrite_manifest(crashed, record_count=2**62),
    "a manifest of another snapshot": lambda crashed: crashed.rewrite(snapshot_id=2**40),
    "a manifest that is none": lambda crashed: _garble(crashed.manifest),
    "partition bounds that hide rows": lambda crashed: crashed.rewrite(
        manifests=[crashed.prepared["manifests"][0] | {"partitions": [[False, False, "AAAAAAAAAAA=", "AAAAAAAAAAA="]]}]
    ),
}


def _nested(depth: int) -> Any:
    return [] if depth == 0 else [_nested(depth - 1)]


def _garble(path: Path) -> None:
    path.write_bytes(b"\xff" * path.stat().st_size)


def _committed_file(crashed: Crashed) -> str:
    [task] = crashed.lake.table().scan().plan_files()
    return str(task.file.file_path)


def _rewrite_manifest(crashed: Crashed, *, listed: bool = True, counted: bool = True, **changed: Any) -> None:
    """A manifest of the batch's own snapshot that holds something else, and a record that knows its size."""
    table = crashed.lake.table()
    vote = replace(_receipt_of(crashed), **changed)
    forged = write_batch_manifests(table, [vote], schema=table.schema(), snapshot_id=crashed.prepared["snapshot_id"])
    document = forged[0].to_json() | ({} if counted else {"rows": crashed.prepared["rows"]})
    files = [[vote.path, vote.file_size_bytes]] if listed else crashed.prepared["files"]
    crashed.rewrite(manifests=[document], files=files, rows=document["rows"])


def _receipt_of(crashed: Crashed) -> ContentFile:
    path, size = crashed.prepared["files"][0]
    return ContentFile(path, 0, (), crashed.prepared["rows"], size, {}, {}, {}, {}, {}, {}, ())


def _move_clock(crashed: Crashed, by_ms: int) -> None:
    crashed.stream.chance.move_ms(by_ms)


def _left_alone(crashed: Crashed, days: int) -> None:
    _move_clock(crashed, days * 24 * HOUR_MS)
    sweep(crashed.lake)
    assert not crashed.data_file.exists()


@pytest.mark.parametrize("name", SPOILT)
def test_a_record_that_is_not_as_it_was_is_written_again_and_never_committed(crashed: Crashed, name: str) -> None:
    SPOILT[name](crashed)
    outcome = crashed.stream.run(1)
    assert isinstance(outcome, Committed)
    assert not outcome.recovered
    assert crashed.stream.writes == 3
    assert counted(crashed.lake) == expected(0, 1)
    referenced = {entry.file.file_path for entry in crashed.lake.table().scan().plan_files()}
    assert crashed.prepared["files"][0][0] not in referenced


def test_records_of_earlier_batches_go_and_the_newest_stays(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    stream = Stream(lake)
    sink = stream.sink()
    for batch_id in range(4):
        stream.run_with(sink, batch_id)
    left = [path.name.partition("-")[0] for path in (lake.folder / "warehouse").rglob("lakesink/**/*.json")]
    assert left == ["3"]


def test_a_record_whose_files_are_in_the_table_already_is_not_committed_again(tmp_path: Path) -> None:
    """The ledger property was removed, so that the record's batch seems to follow nothing, and an operator skips it."""
    lake = Lake.make(tmp_path)
    stream = Stream(lake)
    stream.run(0)
    set_property(lake, stream.key.ledger_property, None)
    outcome = stream.overrule(0, "skip")
    assert isinstance(outcome, Committed)
    assert (outcome.recovered, outcome.rows, stream.writes) == (False, 0, 1)
    assert counted(lake) == expected(0)


def test_a_record_left_by_an_earlier_table_stops_nobody_who_has_written_to_the_present_one(tmp_path: Path) -> None:
    """The checkpoint begins anew with the new table; the old one's record of the same batch lies where it lay."""
    crashed = Crashed(tmp_path)
    [tidied_by_the_next_batch] = crashed.record.parent.glob("0-*.json")
    tidied_by_the_next_batch.unlink()
    replace_table(crashed.lake)
    fresh = Stream(crashed.lake)
    fresh.run(0)
    assert crashed.record.exists()
    outcome = fresh.run(1)
    assert isinstance(outcome, Committed)
    assert not outcome.recovered
    assert counted(crashed.lake) == expected(0, 1)
