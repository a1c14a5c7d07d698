"""What is not as it was written is refused by name, or written again; never read, never published."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakesink
from lakesink.sinks.directory.marker import MarkerDamaged, parse_marker
from lakesink.sinks.staged.part_receipt import PartsReceipt, decode_parts, encode_parts
from lakesink.sinks.storage import LocalStorage
from lakesink_catalog.failpoints import VARIABLE, FailpointReached
from lakesink_protocol.errors import BatchRefused, CatalogError, Reason, WriteError
from lakesink_protocol.identity import digest
from lakesink_protocol.outcome import Committed
from lakesink_protocol.receipt_json import ReceiptInvalid
from testkit.builders import expected
from testkit.directory import Stream
from testkit.examples import examples

Change = Callable[[dict[str, Any]], Any]
HOUR_MS = 3_600_000


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    stream = Stream(tmp_path / "out")
    for number in range(3):
        stream.run(number)
    return stream


def refused(stream: Stream, reason: Reason) -> None:
    """The stream stops by name, readers too, and no file is written."""
    before = stream.part_files()
    for batch in (2, 3):
        with pytest.raises(BatchRefused) as refusal:
            stream.run(batch)
        assert refusal.value.reason is reason
    assert stream.part_files() == before


def rewrite(stream: Stream, number: int, change: Change, *, digested: bool = True) -> None:
    """Another marker in the place of one: changed, and digesting itself as it should."""
    path = stream.marker_path(number)
    document = json.loads(path.read_bytes())
    change(document)
    if digested:
        document.pop("digest")
        document["digest"] = digest(document)
    path.write_bytes(json.dumps(document).encode())


TORN: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "not JSON": lambda path: path.write_bytes(b"\xff\xfe{"),
    "another JSON": lambda path: path.write_text("[1]"),
    "deep JSON": lambda path: path.write_text("[" * 100_000),
    "a number": lambda path: path.write_text("1"),
    "another sink's": lambda path: path.write_bytes(path.read_bytes().replace(b"clicks", b"views1")),
    "changed": lambda path: path.write_bytes(path.read_bytes().replace(b'"rows":3', b'"rows":4')),
    "its neighbour": lambda path: path.write_bytes((path.parent / f"{1:020d}.json").read_bytes()),
}


@pytest.mark.parametrize("how", TORN)
def test_a_newest_marker_that_is_not_whole_stops_stream_and_readers(stream: Stream, how: str) -> None:
    TORN[how](stream.marker_path(2))
    refused(stream, Reason.LEDGER_DAMAGED)
    with pytest.raises(CatalogError, match=r"LAKESINK_LEDGER_DAMAGED.*commit 2"):
        lakesink.committed_files(stream.directory)


FORGED: dict[str, Change] = {
    "a newer version": lambda marker: marker.update(version=2),
    "a version that is true": lambda marker: marker.update(version=True),
    "a part outside": lambda marker: marker["parts"][0].update(path="_lakesink/clicks/parts/../../../secret.parquet"),
    "a part of another sink": lambda marker: marker["parts"][0].update(
        path=marker["parts"][0]["path"].replace("/clicks/", "/views/")
    ),
    "a part that is absolute": lambda marker: marker["parts"][0].update(path="/etc/passwd"),
    "a part of another batch": lambda marker: marker.update(batch_id=7, ledger_batch_id=7),
    "rows that do not add up": lambda marker: marker.update(rows=1000),
    "a number set high": lambda marker: marker.update(number=10**6),
    "another history": lambda marker: marker.update(directory_id="0" * 32),
    "another predecessor": lambda marker: marker.update(previous="0" * 32),
    "a field more": lambda marker: marker.update(more=1),
    "a field less": lambda marker: marker.pop("offsets"),
    "a batch id that is text": lambda marker: marker.update(batch_id="2"),
    "an unknown format": lambda marker: marker.update(format="csv"),
    "a part twice": lambda marker: marker.update(parts=marker["parts"] * 2, rows=6, bytes=2 * marker["bytes"]),
    "a batch that no commit bears": lambda marker: marker.update(ledger_batch_id=9),
}


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_newest_marker_stops_the_stream(stream: Stream, how: str) -> None:
    rewrite(stream, 2, FORGED[how])
    refused(stream, Reason.LEDGER_DAMAGED)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_marker_stops_stream_and_readers(stream: Stream, missing: int) -> None:
    stream.marker_path(missing).unlink()
    refused(stream, Reason.LEDGER_DAMAGED)
    with pytest.raises(CatalogError, match=f"commit {missing} is missing"):
        lakesink.committed_files(stream.directory)


def test_an_old_marker_that_was_changed_stops_readers_and_the_batch_that_asks_for_it(stream: Stream) -> None:
    old = stream.markers()[0]["committed_at"]
    rewrite(stream, 0, lambda marker: marker.update(committed_at="x" * len(old)))
    with pytest.raises(CatalogError, match="commit 1 does not follow commit 0"):
        lakesink.committed_files(stream.directory)
    with pytest.raises(BatchRefused) as refusal:
        stream.run(0)
    assert refusal.value.reason is Reason.LEDGER_DAMAGED


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("how", ["empty", "cut"])
def test_an_old_marker_that_is_torn_stops_a_stream_as_it_starts_like_its_readers(
    stream: Stream, how: str, number: int
) -> None:
    TORN[how](stream.marker_path(number))
    refused(stream, Reason.LEDGER_DAMAGED)
    with pytest.raises(CatalogError, match=f"commit {number}"):
        lakesink.committed_files(stream.directory)


def test_all_markers_lost_is_not_an_empty_directory(stream: Stream) -> None:
    for number in range(3):
        stream.marker_path(number).unlink()
    refused(stream, Reason.LEDGER_DAMAGED)
    with pytest.raises(CatalogError, match="commit 0 is missing"):
        lakesink.committed_files(stream.directory)


def test_what_a_first_batch_left_that_never_landed_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream(tmp_path / "out")
    prepared(stream, monkeypatch, 0)
    assert lakesink.committed_files(stream.directory) == []
    assert isinstance(stream.run(0), Committed)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"version":2,"count":9,"size_bytes":1}', b'{"version":1}'])
def test_without_a_high_water_that_can_be_read_every_marker_is_read_once(stream: Stream, content: bytes) -> None:
    (stream.root / "high-water.json").write_bytes(content)
    stream.storage.rounds.clear()
    assert isinstance(stream.run(3), Committed)
    assert stream.storage.rounds == [3]
    assert isinstance(stream.run(4), Committed)
    assert stream.storage.rounds == [3]


def test_a_high_water_that_cannot_be_written_stops_no_batch(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_file = LocalStorage.replace

    def full(self: LocalStorage, location: str, data: bytes) -> None:
        if location.endswith("high-water.json"):
            raise OSError(28, "No space left on device")
        replace_file(self, location, data)

    monkeypatch.setattr(LocalStorage, "replace", full)
    assert isinstance(stream.run(3), Committed)
    assert isinstance(stream.run(4), Committed)
    assert stream.counted() == expected(0, 1, 2, 3, 4)


def test_what_is_no_marker_is_passed_by(stream: Stream) -> None:
    for name in ("README", "1.json", ".00000000000000000003.json.draft", f"{3:020d}.json.tmp", f"{3:021d}.json"):
        (stream.root / "commits" / name).write_text("{}")
    assert isinstance(stream.run(3), Committed)
    assert stream.counted() == expected(0, 1, 2, 3)


def test_a_newest_marker_that_is_taken_away_under_a_running_stream_stops_it(stream: Stream) -> None:
    sink = stream.sink()
    stream.run_with(sink, 2)
    stream.marker_path(2).unlink()
    for batch in (2, 3):
        with pytest.raises(BatchRefused, match="lakesink rewind") as refusal:
            stream.run_with(sink, batch)
        assert refusal.value.reason is Reason.LEDGER_DAMAGED


def test_a_directory_that_another_history_takes_the_place_of_is_noticed_in_the_run(stream: Stream) -> None:
    sink = stream.sink()
    stream.run_with(sink, 3)
    stream.root.rename(stream.directory / "before")
    with pytest.raises(BatchRefused) as refusal:
        stream.run_with(sink, 4)
    assert refusal.value.reason is Reason.TABLE_REPLACED
    stream.run(0)
    with pytest.raises(BatchRefused) as refusal:
        stream.run_with(sink, 1)
    assert refusal.value.reason is Reason.TABLE_REPLACED


def prepared(stream: Stream, monkeypatch: pytest.MonkeyPatch, batch: int = 3) -> Path:
    """The record of a batch whose driver died before it published."""
    monkeypatch.setenv(VARIABLE, f"after-prepared@{batch}=raise")
    with pytest.raises(FailpointReached):
        stream.run(batch, tasks=2)
    monkeypatch.delenv(VARIABLE)
    return stream.root / "prepared" / f"{batch}-{stream.batch(batch).fingerprint}.json"


def forge_record(path: Path, change: Change) -> None:
    document = json.loads(path.read_bytes().partition(b"\n")[2])
    [payload] = document["participants"].values()
    change(payload)
    body = json.dumps(document).encode()
    path.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def written_again(stream: Stream, batch: int = 3) -> None:
    writes = stream.writes
    outcome = stream.run(batch, tasks=2)
    assert isinstance(outcome, Committed)
    assert not outcome.recovered
    assert stream.writes == writes + 1
    assert stream.counted() == expected(0, 1, 2) + expected(batch, rows=6)


def test_parts_of_a_recovered_batch_are_looked_for_however_old_they_may_be(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.options["prepared_max_age"] = "36500 days"
    prepared(stream, monkeypatch)
    next(part for part in stream.part_files() if part.name.startswith("clicks-3-")).unlink()
    written_again(stream)


PAYLOADS: dict[str, Change] = {
    "no parts": lambda payload: payload.pop("parts"),
    "parts that are text": lambda payload: payload.update(parts="abc"),
    "a part outside": lambda payload: payload["parts"][0].__setitem__(0, "../../../etc/passwd"),
    "a part of another batch": lambda payload: payload["parts"][0].__setitem__(
        0, payload["parts"][0][0].replace("clicks-3-", "clicks-2-")
    ),
    "a part twice": lambda payload: payload["parts"].append(payload["parts"][0]),
    "another size": lambda payload: payload["parts"][0].__setitem__(2, 1),
    "more rows than a marker can tell": lambda payload: payload["parts"][0].__setitem__(1, 2**63 - 1),
    "no rows": lambda payload: payload["parts"][0].__setitem__(1, 0),
    "a size below zero": lambda payload: payload["parts"][0].__setitem__(2, -1),
    "rows that are true": lambda payload: payload["parts"][0].__setitem__(1, True),  # noqa: FBT003 - a value
    "another predecessor": lambda payload: payload.update(follows="0" * 32),
    "another history": lambda payload: payload.update(directory_id="0" * 32),
    "a part of another format": lambda payload: payload["parts"][0].__setitem__(
        0, payload["parts"][0][0].replace(".parquet", ".jsonl")
    ),
    "a commit id that is a number": lambda payload: payload.update(commit_id=1),
    "a commit id that is long": lambda payload: payload.update(commit_id="a" * 10**6),
    "a history with a name of its own": lambda payload: payload.update(directory_id="../x"),
    "a human's word": lambda payload: payload.update(accepted="Gap:3:commit"),
}


@pytest.mark.parametrize("how", PAYLOADS)
def test_a_record_that_does_not_fit_is_dropped_and_the_batch_written_again(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    forge_record(prepared(stream, monkeypatch), PAYLOADS[how])
    written_again(stream)


@pytest.mark.parametrize("cut", [True, False])
def test_a_prepared_batch_whose_parts_are_gone_or_cut_is_written_again(
    stream: Stream,
    monkeypatch: pytest.MonkeyPatch,
    cut: bool,  # noqa: FBT001 - a table of cases
) -> None:
    prepared(stream, monkeypatch)
    part = stream.part_files()[-1]
    part.write_bytes(part.read_bytes()[:-1]) if cut else part.unlink()
    written_again(stream)


def test_a_prepared_batch_that_is_old_is_written_again(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(stream, monkeypatch)
    stream.chance.move_ms(21 * HOUR_MS)
    written_again(stream)


def test_a_prepared_batch_is_published_as_it_was_if_all_is_well(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(stream, monkeypatch)
    writes, parts = stream.writes, stream.part_files()
    outcome = stream.run(3, tasks=2)
    assert isinstance(outcome, Committed)
    assert outcome.recovered
    assert (stream.writes, stream.part_files()) == (writes, parts)


def receipts(stream: Stream, tasks: int = 2) -> tuple[Any, list[bytes]]:
    """A sink with an open batch, and the votes of its tasks."""
    sink, batch = stream.sink(), stream.batch(3)
    transaction = sink.begin(batch)
    assert not isinstance(transaction, lakesink.AlreadyCommitted)
    assert transaction.writer is not None
    return (sink, transaction), stream.write(batch, tasks=tasks)({"s": transaction.writer}).receipts("s")


def edited(receipt: bytes, change: Change) -> bytes:
    document = json.loads(receipt)
    change(document)
    return json.dumps(document).encode()


def _with_rows(rows: int) -> Change:
    def change(vote: dict[str, Any]) -> None:
        vote["parts"][0][1] = vote["rows"] = rows

    return change


VOTES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "one twice": lambda votes: [votes[0], votes[0]],
    "garbage": lambda votes: [votes[0], b"\x80\x04nonsense"],
    "nothing": lambda votes: [votes[0], b""],
    "too deep": lambda votes: [votes[0], b"[" * 100_000],
    "another version of receipts": lambda votes: [votes[0], edited(votes[1], lambda vote: vote.update(v=9))],
    "rows that do not add up": lambda votes: [votes[0], edited(votes[1], lambda vote: vote.update(rows=9))],
    "more rows than a marker can tell": lambda votes: [
        edited(votes[0], _with_rows(2**62)),
        edited(votes[1], _with_rows(2**62)),
    ],
    "a task that is no number": lambda votes: [votes[0], edited(votes[1], lambda vote: vote.update(task="1"))],
    "a path": lambda votes: [
        votes[0],
        edited(votes[1], lambda vote: vote["parts"][0].__setitem__(0, "../../other/parts/x.parquet")),
    ],
    "a part that another task might have": lambda votes: [
        votes[0],
        edited(
            votes[1],
            lambda vote: vote["parts"][0].__setitem__(0, vote["parts"][0][0].replace("-00001-", "-00000-")),
        ),
    ],
    "a part twice": lambda votes: [
        votes[0],
        edited(votes[1], lambda vote: vote.update(parts=vote["parts"] * 2, rows=vote["rows"] * 2)),
    ],
    "another task's part": lambda votes: [
        votes[0],
        edited(votes[1], lambda vote: vote.update(parts=json.loads(votes[0])["parts"])),
    ],
}


@pytest.mark.parametrize("how", VOTES)
def test_votes_that_are_not_to_be_believed_fail_the_batch(stream: Stream, how: str) -> None:
    (sink, transaction), votes = receipts(stream)
    with pytest.raises(WriteError, match="LAKESINK_RECEIPT_REJECTED") as error:
        sink.pre_commit(transaction, VOTES[how](votes))
    assert error.value.what.isprintable()
    assert stream.counted() == expected(0, 1, 2)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
WHOLE = examples(50)


@WHOLE
@given(data=st.binary(max_size=200) | ANYTHING.map(lambda value: json.dumps(value).encode()))
def test_no_bytes_are_taken_for_a_receipt_or_marker_by_chance(data: bytes) -> None:
    with pytest.raises(ReceiptInvalid):
        decode_parts(data, "clicks-3")
    with pytest.raises(MarkerDamaged):
        parse_marker(data, 0, "clicks")


@WHOLE
@given(name=st.sampled_from(["v", "task", "rows", "parts"]), value=ANYTHING, place=st.integers(0, 2))
def test_a_receipt_with_any_one_field_changed_is_a_receipt_or_refused(name: str, value: Any, place: int) -> None:
    good = encode_parts(PartsReceipt(0, 0, ()))
    document = json.loads(good)
    document[name] = [[*["clicks-3-00000-" + "0" * 36 + ".parquet", 1, 1][:place], value]] if place else value
    try:
        receipt = decode_parts(json.dumps(document).encode(), "clicks-3")
    except ReceiptInvalid:
        return
    assert decode_parts(encode_parts(receipt), "clicks-3") == receipt


def test_a_batch_of_another_sink_has_no_part_here(stream: Stream) -> None:
    other = replace(stream, sink_id="views")
    other.run(0)
    (sink, transaction), votes = receipts(stream, tasks=1)
    foreign = edited(votes[0], lambda vote: vote.update(parts=[[other.part_files()[0].name, 3, 803]]))
    with pytest.raises(WriteError, match="LAKESINK_RECEIPT_REJECTED"):
        sink.pre_commit(transaction, [foreign])
