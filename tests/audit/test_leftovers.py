"""Own files that no snapshot references are counted by what their names and the prepared records say, never touched."""

import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from lakesink_catalog.failpoints import FailpointReached
from lakesink_catalog.read.history import sinks
from lakesink_tools.audit.audit import audit
from lakesink_tools.audit.leftovers import Leftovers, own_name
from lakesink_tools.cli.sink_health import has_no_records
from lakesink_tools.operate.forget import Forgetting
from testkit.builders import TABLE, Lake, Stream, contents
from testkit.change_table import ChangeStream, upsert_lake
from testkit.maintenance import append_foreign, branch_off, expire, remove_ref, rewrite, set_property
from tests.audit.terminal import found, terminal

UUID = "0b9ae0a8-94d2-4e63-8d3a-2b9e4a5c1d70"


def leave(lake: Lake, name: str, size_bytes: int = 100) -> None:
    folder = lake.folder / "warehouse" / "demo" / "events" / "data"
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size_bytes))


def own(batch_id: int, sink: str = "events") -> str:
    return f"{sink}-{batch_id}-00000-{uuid.uuid4()}.parquet"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"events-7-00000-{UUID}.parquet", ("events", 7)),
        (f"s3://b/t/data/day=2026-01-01/events-7-00012-{UUID}.parquet", ("events", 7)),
        (f"data/0110/1001/0101/10110101-events-7-00000-{UUID}.parquet", ("events", 7)),
        (f"10110101-known-7-00000-{UUID}.parquet", ("10110101-known", 7)),
        (f"a-1-2.x_y-7-00000-{UUID}.parquet", ("a-1-2.x_y", 7)),
        (f"events-7-{UUID}-deletes.parquet", ("events", 7)),
        (f"00000-0-{UUID}.parquet", None),
        (f"00000-7-{UUID}-00001.parquet", None),
        (f"events-7-00000-{UUID}.orc", None),
        ("compacted.parquet", None),
    ],
)
def test_a_name_tells_sink_and_batch_if_it_is_ours(path: str, expected: tuple[str, int] | None) -> None:
    assert own_name(path, {"events", "10110101-known"}) == expected


def test_a_table_without_leftovers_has_none(lake: Lake, stream: Stream) -> None:
    append_foreign(lake)
    rewrite(lake)
    assert stream.writes == 4
    assert audit(lake.table()).leftovers == Leftovers()


def test_delete_files_of_the_table_are_no_leftovers_and_others_are(tmp_path: Path) -> None:
    stream = ChangeStream(upsert_lake(tmp_path)).filled(4)
    assert audit(stream.lake.table()).leftovers == Leftovers()
    data = next(tmp_path.rglob("*-deletes.parquet")).parent
    for batch_id, size_bytes in ((3, 10), (4, 100)):
        (data / f"events-{batch_id}-{uuid.uuid4()}-deletes.parquet").write_bytes(bytes(size_bytes))
    assert audit(stream.lake.table()).leftovers == Leftovers(1, 10, 1, 100)


def test_leftovers_are_told_by_whether_their_batch_is_past(lake: Lake, stream: Stream) -> None:
    assert stream.writes == 4
    for batch_id, size_bytes in ((1, 10), (3, 20), (4, 400), (9, 500)):
        leave(lake, own(batch_id), size_bytes)
    leave(lake, own(0, "unborn"), 600)
    leave(lake, "foreign.parquet", 1)
    before = contents(lake)
    proof = audit(lake.table())
    assert proof.leftovers == Leftovers(files=2, bytes=30, pending_files=3, pending_bytes=1500)
    assert proof.findings == ()
    assert [note.name for note in proof.notes] == ["orphans", "pending"]
    assert contents(lake) == before


def test_a_prepared_batch_is_no_leftover(lake: Lake, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKESINK_FAILPOINTS", "after-prepared@4=raise")
    with pytest.raises(FailpointReached):
        stream.run(4)
    assert audit(lake.table()).leftovers == Leftovers(prepared=("events 4",))
    monkeypatch.delenv("LAKESINK_FAILPOINTS")
    for record in (lake.folder / "warehouse").rglob("4-*.json"):
        record.write_bytes(record.read_bytes()[:-1])
    torn = audit(lake.table()).leftovers
    assert (torn.prepared, torn.pending_files) == ((), 1)


def test_a_prepared_batch_is_found_beside_what_is_prepared_for_its_changelog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stream = ChangeStream(upsert_lake(tmp_path), options={"changelog_table": "demo.changelog"}).filled(4)
    monkeypatch.setenv("LAKESINK_FAILPOINTS", "after-prepared@4=raise")
    with pytest.raises(FailpointReached):
        stream.run(4)
    found = audit(stream.lake.table()).leftovers
    deletes = list(tmp_path.rglob("events-4-*-deletes.parquet"))  # the restart locates again, and writes others
    assert (found.prepared, found.files, found.pending_files) == (("events 4",), 0, len(deletes))
    assert "lakesink.prepared.dropped" not in caplog.text


@pytest.mark.parametrize("begin", ["file://", "file:", ""])
def test_folders_are_found_however_the_table_spells_them(
    lake: Lake, stream: Stream, monkeypatch: pytest.MonkeyPatch, begin: str
) -> None:
    below = lake.folder / "warehouse/demo/events"
    set_property(lake, "write.data.path", f"{begin}{below}/d")
    set_property(lake, "write.metadata.path", f"{begin}{below}/m")
    monkeypatch.setenv("LAKESINK_FAILPOINTS", "after-prepared@4=raise")
    with pytest.raises(FailpointReached):
        stream.run(4)
    assert audit(lake.table()).leftovers == Leftovers(prepared=("events 4",))
    [record] = below.rglob("4-*.json")
    record.unlink()
    assert audit(lake.table()).leftovers.pending_files == 1


def test_status_names_a_batch_that_a_restart_will_commit(
    lake: Lake, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = terminal(lake, monkeypatch)
    assert "prepared" not in run("status").stdout
    monkeypatch.setenv("LAKESINK_FAILPOINTS", "after-prepared@4=raise")
    with pytest.raises(FailpointReached):
        stream.run(4)
    monkeypatch.delenv("LAKESINK_FAILPOINTS")
    waiting = run("status")
    assert waiting.exit_code == 0
    assert "Batch 4 of sink events is prepared and not committed" in waiting.stdout
    assert "the restart commits the prepared files" in waiting.stdout
    prepared = found(run("status", "--output", "json"))["prepared"]
    assert prepared == [{"sink": "events", "branch": "main", "batch_id": 4}]
    stream.run(4)
    assert found(run("status", "--output", "json"))["prepared"] == []


def test_a_record_that_cannot_be_read_hides_no_sink(
    lake: Lake, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stream.writes == 4
    folder = lake.folder / "warehouse" / "demo" / "events" / "metadata" / "lakesink"
    shutil.rmtree(folder, ignore_errors=True)
    folder.write_bytes(b"")
    result = terminal(lake, monkeypatch)("status")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[2].split()[-1] == "ok"
    assert "Prepared batches were not looked for: " in result.stdout


def test_another_sink_and_a_retired_one_are_told_the_same_way(lake: Lake, stream: Stream) -> None:
    other, retired = Stream(lake, sink_id="other"), Stream(lake, sink_id="retired")
    for batch_id in range(2):
        other.run(batch_id)
        retired.run(batch_id)
    Forgetting(lake.table, retired.key).run()
    for sink_id in ("other", "retired"):
        leave(lake, own(0, sink_id), 10)
    assert audit(lake.table(), sink=stream.sink_id).leftovers == Leftovers(files=2, bytes=20)
    assert audit(lake.table()).leftovers == Leftovers(files=2, bytes=20)


def test_a_sink_that_only_its_ledger_remembers_is_told_the_same_way(lake: Lake, stream: Stream) -> None:
    other = Stream(lake, sink_id="other")
    other.run(0)
    append_foreign(lake)
    for key in (stream.key, other.key):
        remove_ref(lake, key.ledger_tag)
    expire(lake)
    leave(lake, own(0, "other"), 10)
    assert audit(lake.table(), sink=stream.sink_id).leftovers == Leftovers(files=1, bytes=10)


def test_a_sink_of_two_branches_is_past_a_batch_when_both_are(lake: Lake, stream: Stream) -> None:
    branch_off(lake, "checks", next(iter(lake.table().metadata.snapshots)).snapshot_id)
    stream.run(stream.batch(4))
    other = Stream(lake, branch="checks", query="query-2")
    other.overrule(0)
    leave(lake, own(0), 10)
    leave(lake, own(2), 200)
    assert audit(lake.table()).leftovers == Leftovers(files=1, bytes=10, pending_files=1, pending_bytes=200)


@pytest.mark.parametrize("place", ["file:///elsewhere", "metadata/version-hint.text"])
def test_a_folder_that_cannot_be_listed_is_told(lake: Lake, stream: Stream, place: str) -> None:
    assert stream.writes == 4
    table = lake.table()
    if ":" not in place:
        place = f"{table.location()}/{place}"
        (lake.folder / "warehouse/demo/events/metadata/version-hint.text").write_text("4")
    set_property(lake, "write.data.path", place)
    proof = audit(lake.table())
    assert proof.findings == ()
    assert proof.leftovers.unlisted
    assert [note.name for note in proof.notes] == ["not checked"]


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff" * 100, b"[]\n[]"])
def test_a_record_that_is_none_protects_nothing(lake: Lake, stream: Stream, content: bytes) -> None:
    folder = lake.folder / "warehouse/demo/events/metadata" / stream.key.record_folder
    (folder / "9-x.json").write_bytes(content)
    assert audit(lake.table()).leftovers == Leftovers()


STATUS = """
import sys
from lakesink_tools.cli.main import main
try:
    main(["status", sys.argv[1], "--catalog", "test"])
finally:
    print(*{"requests", "fsspec"} & set(sys.modules), file=sys.stderr)
"""


def test_status_without_a_prepared_batch_imports_nothing_that_lists_folders(
    lake: Lake, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stream.writes == 4
    terminal(lake, monkeypatch)
    done = subprocess.run([sys.executable, "-c", STATUS, TABLE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.split()) == (0, [])


def test_a_record_counts_as_passed_by_its_name_and_its_sinks_folder(lake: Lake, stream: Stream) -> None:
    table = lake.table()
    states = sinks(table)
    folder = lake.folder / "warehouse/demo/events/metadata"
    [passed] = (folder / stream.key.record_folder).glob("3-*.json")
    assert has_no_records(table, states)
    assert not has_no_records(table, [])
    for name in ("4-abc.json", "3-abc.txt", "x.json"):
        other = passed.with_name(name)
        other.write_bytes(b"")
        assert not has_no_records(table, states), name
        other.unlink()
    elsewhere = lake.folder / "elsewhere"
    elsewhere.mkdir()
    (folder / "lakesink" / "other").symlink_to(elsewhere)
    assert has_no_records(table, states)
    (elsewhere / "3-abc.json").write_bytes(b"")
    assert not has_no_records(table, states)
