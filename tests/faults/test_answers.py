"""Whatever a catalog answers, and whatever it did: the batch is in the table once, and no file is deleted."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import CommitTableResponse

from lakesink_protocol.errors import CatalogError, CommitUnresolved, LakesinkError
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from testkit.answers import (
    ERRORS,
    first,
    lands_but_says,
    lands_then,
    refuses_with,
    says_yes_and_shows_another_branch,
    says_yes_and_shows_another_parent,
    says_yes_and_shows_what_was,
    sent_twice,
)
from testkit.builders import TABLE, Apply, Fault, Lake, Stream, counted, expected, lasting_contents, parquet_files
from testkit.maintenance import append_foreign, branch_off, expire, remove_ref, rewrite

RETRIES = 4


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A table with batch 0 of `stream`; whatever a test does, no file of it may go or change."""
    lake = Lake.make(tmp_path, properties={"commit.retry.num-retries": str(RETRIES)})
    Stream(lake).run(0)
    before = lasting_contents(lake)
    yield lake
    after = lasting_contents(lake)
    assert before == {path: after.get(path) for path in before}


@pytest.fixture
def stream(lake: Lake) -> Stream:
    return Stream(lake)


def landed_once(lake: Lake, stream: Stream, outcome: object, *, attempts: int, batches: int = 2) -> None:
    assert isinstance(outcome, Committed)
    assert outcome.attempts == attempts
    assert [mark.batch_id for mark in stream.marks()] == list(range(batches))
    assert stream.snapshot_of(batches - 1) == outcome.snapshot_id
    assert counted(lake) == expected(*range(batches))
    assert isinstance(stream.run(batches - 1), AlreadyCommitted)


@pytest.mark.parametrize("error", ERRORS)
def test_a_batch_that_landed_is_recognised_whatever_the_answer(lake: Lake, stream: Stream, error: str) -> None:
    lake.catalog.faults = [lands_but_says(ERRORS[error])]
    landed_once(lake, stream, stream.run(1), attempts=2)
    assert len(lake.catalog.sent) == 2


@pytest.mark.parametrize("error", ERRORS)
def test_a_batch_that_did_not_land_is_sent_again_whatever_the_answer(lake: Lake, stream: Stream, error: str) -> None:
    lake.catalog.faults = [refuses_with(ERRORS[error])] * 2
    landed_once(lake, stream, stream.run(1), attempts=3)
    assert stream.writes == 1


def test_a_request_sent_twice_by_the_transport_lands_once(lake: Lake, stream: Stream) -> None:
    lake.catalog.faults = [sent_twice]
    landed_once(lake, stream, stream.run(1), attempts=2)


def test_a_yes_without_a_commit_is_not_believed(lake: Lake, stream: Stream) -> None:
    lake.catalog.faults = [says_yes_and_shows_what_was(lake)]
    landed_once(lake, stream, stream.run(1), attempts=2)


def test_a_yes_that_shows_another_head_is_looked_at_again(lake: Lake, stream: Stream) -> None:
    lake.catalog.faults = [says_yes_and_shows_another_branch(lake, "main")]
    landed_once(lake, stream, stream.run(1), attempts=2)


def test_a_yes_that_shows_another_parent_is_looked_at_again(lake: Lake, stream: Stream) -> None:
    lake.catalog.faults = [says_yes_and_shows_another_parent]
    landed_once(lake, stream, stream.run(1), attempts=2)


@pytest.mark.parametrize("when", range(1, RETRIES))
def test_a_request_that_arrives_late_and_its_retry_are_one_commit(lake: Lake, stream: Stream, when: int) -> None:
    """It arrives while lakesink waits before the attempt of this number, or after everything."""
    lake.catalog.faults = [lake.catalog.arrives_late] * when

    def deliver(wait_ms: float) -> None:
        stream.chance.waited_ms.append(wait_ms)
        if len(stream.chance.waited_ms) == when:
            lake.catalog.late.pop(0)()

    sink = stream.sink()
    sink = replace(sink, effects=replace(sink.effects, sleep_ms=deliver))
    landed_once(lake, stream, stream.run_with(sink, 1), attempts=when + 1)
    for late in lake.catalog.late:
        with pytest.raises(Exception, match=r"Requirement failed|already exists|sequence number"):
            late()
    assert counted(lake) == expected(0, 1)


def test_a_late_request_that_lost_is_refused_by_the_catalog(lake: Lake, stream: Stream) -> None:
    lake.catalog.faults = [lake.catalog.arrives_late]
    landed_once(lake, stream, stream.run(1), attempts=2)
    [late] = lake.catalog.late
    with pytest.raises(Exception, match="Requirement failed"):
        late()
    assert counted(lake) == expected(0, 1)


def test_if_nobody_ever_knows_the_record_is_kept_and_the_restart_commits_it_once(lake: Lake, stream: Stream) -> None:
    lake.catalog.faults = [refuses_with(ERRORS["time-out"])] * (RETRIES + 1)
    sink = stream.sink()
    with pytest.raises(CommitUnresolved) as unresolved:
        stream.run_with(sink, 1)
    assert len(str(unresolved.value).partition("\n")[0]) < 200
    parquet = parquet_files(lake)
    asked = {updates[0].snapshot.snapshot_id for _, updates in lake.catalog.sent[1:]}  # type: ignore[union-attr] # an AddSnapshotUpdate
    assert counted(lake) == expected(0)
    outcome = stream.run(1)
    assert isinstance(outcome, Committed)
    assert outcome.recovered
    assert asked == {outcome.snapshot_id}
    assert (parquet_files(lake), stream.writes) == (parquet, 1)
    assert stream.marks()[-1].outcome == "recovered"
    assert counted(lake) == expected(0, 1)


def test_if_the_last_attempt_landed_unseen_the_last_look_finds_it(lake: Lake, stream: Stream) -> None:
    lake.catalog.faults = [
        *[refuses_with(ERRORS["time-out"])] * RETRIES,
        lands_but_says(ERRORS["time-out"]),
    ]
    landed_once(lake, stream, stream.run(1), attempts=RETRIES + 1)


def test_if_it_landed_and_the_catalog_is_gone_ever_after_the_restart_finds_it(lake: Lake, stream: Stream) -> None:
    def unplug() -> None:
        lake.catalog.load_faults = [ERRORS["reset"]] * (RETRIES + 2)

    lake.catalog.faults = [lands_then(unplug)]
    with pytest.raises(CommitUnresolved):
        stream.run(1)
    assert lake.catalog.load_faults == [ERRORS["reset"]]
    lake.catalog.load_faults = []
    assert isinstance(stream.run(1), AlreadyCommitted)
    assert stream.writes == 1
    assert counted(lake) == expected(0, 1)


def test_a_look_that_fails_is_made_again(lake: Lake, stream: Stream) -> None:
    def unplug() -> None:
        lake.catalog.load_faults = [ERRORS["503 unavailable"], ERRORS["garbled body"]]

    lake.catalog.faults = [lands_then(unplug)]
    landed_once(lake, stream, stream.run(1), attempts=4)


def test_a_final_word_before_anything_was_sent_ends_the_batch_at_once(lake: Lake, stream: Stream) -> None:
    sink = stream.sink()
    transaction = sink.begin(stream.batch(1))
    assert not isinstance(transaction, AlreadyCommitted)
    prepared = sink.pre_commit(transaction, stream.write(stream.batch(1))({"s": transaction.writer}).receipts("s"))  # type: ignore[dict-item] # there is one
    lake.catalog.rename_table(TABLE, "demo.elsewhere")
    with pytest.raises(CatalogError) as missing:
        sink.commit(transaction, prepared)
    assert missing.value.code == "LAKESINK_TABLE_MISSING"
    assert stream.chance.waited_ms == []


@pytest.mark.parametrize(
    "error", [AttributeError("'int' object has no attribute 'value'"), ValueError("x"), KeyError(1)]
)
@pytest.mark.parametrize("place", ["still_usable", "check_has_head", "build_request", "view_table", "load"])
def test_an_error_in_code_before_anything_was_sent_ends_the_batch_at_once(
    lake: Lake, stream: Stream, monkeypatch: pytest.MonkeyPatch, place: str, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    def commit() -> None:
        if place == "load":
            monkeypatch.setattr(lake.catalog, "load_table", fail)
        else:
            monkeypatch.setattr(f"lakesink_catalog.commit.batch_commit.{place}", fail)

    before, sent = lake.head(), len(lake.catalog.sent)
    sink = stream.sink()
    sink.before_commit = commit
    with pytest.raises(LakesinkError) as failed:
        stream.run_with(sink, 1)
    if place != "load":  # a catalog's configuration can lead to such errors, too
        assert failed.value.code == "LAKESINK_COMMIT_FAILED"
        assert "before anything was sent" in failed.value.what
        assert failed.value.__cause__ is error
    assert not isinstance(failed.value, CommitUnresolved)
    assert stream.chance.waited_ms == []
    monkeypatch.undo()
    assert (lake.head(), len(lake.catalog.sent)) == (before, sent)
    outcome = stream.run(1)
    assert isinstance(outcome, Committed)
    assert outcome.recovered


@pytest.mark.parametrize("place", ["shows", "delete_old_metadata", "client"])
def test_an_error_in_code_after_the_request_was_sent_is_looked_at(
    lake: Lake, stream: Stream, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def fail(*_: object) -> None:
        monkeypatch.undo()
        raise AttributeError("a defect")

    if place == "client":
        lake.catalog.faults = [lands_but_says(AttributeError("a defect"))]
    else:
        owner = "batch_commit.FencedCommit.shows" if place == "shows" else "batch_commit.delete_old_metadata"
        monkeypatch.setattr(f"lakesink_catalog.commit.{owner}", fail)
    landed_once(lake, stream, stream.run(1), attempts=2)


def test_no_word_is_final_once_a_request_is_on_its_way(lake: Lake, stream: Stream) -> None:
    """A table that is not there for a moment may be a catalog that is being restored, and the batch in it."""

    def vanish() -> None:
        lake.catalog.load_faults = [NoSuchTableError("demo.events")] * 2

    lake.catalog.faults = [lands_then(vanish)]
    landed_once(lake, stream, stream.run(1), attempts=4)


@pytest.mark.parametrize("times", [1, RETRIES])
def test_others_who_are_quicker_only_cost_attempts(lake: Lake, stream: Stream, times: int) -> None:
    foreign: Counter[tuple[int, int]] = Counter()
    lake.catalog.faults = [first(lambda: foreign.update(append_foreign(lake)))] * times
    outcome = stream.run(1)
    assert isinstance(outcome, Committed)
    assert outcome.attempts == times + 1
    assert counted(lake) == expected(0, 1) + foreign
    assert stream.writes == 1


def test_others_who_are_quicker_on_another_branch_only_cost_attempts(lake: Lake, stream: Stream) -> None:
    branch_off(lake, "audit")
    foreign: Counter[tuple[int, int]] = Counter()
    lake.catalog.faults = [first(lambda: foreign.update(append_foreign(lake, "audit")))] * 2
    outcome = stream.run(1)
    assert isinstance(outcome, Committed)
    assert counted(lake) == expected(0, 1)
    assert counted(lake, "audit") == expected(0) + foreign


def test_others_who_rewrite_all_files_meanwhile_only_cost_an_attempt(lake: Lake, stream: Stream) -> None:
    lake.catalog.faults = [first(lambda: rewrite(lake))]
    assert isinstance(stream.run(1), Committed)
    assert counted(lake) == expected(0, 1)


@pytest.mark.parametrize("ledger_tag", [True, False], ids=["with tag", "without tag"])
def test_a_batch_that_landed_is_recognised_under_others_and_after_expiry(lake: Lake, ledger_tag: bool) -> None:  # noqa: FBT001 - a case
    stream = Stream(lake, options={"ledger_tag": ledger_tag})
    foreign: Counter[tuple[int, int]] = Counter()

    def others() -> None:
        foreign.update(append_foreign(lake))
        if not ledger_tag and stream.key.ledger_tag in lake.table().metadata.refs:
            remove_ref(lake, stream.key.ledger_tag)
        expire(lake)

    lake.catalog.faults = [lands_then(others)]
    outcome = stream.run(1)
    assert isinstance(outcome, Committed)
    assert counted(lake) == expected(0, 1) + foreign


def test_sinks_of_one_table_keep_their_own_ledgers(lake: Lake) -> None:
    streams = [Stream(lake, sink_id=name) for name in ("events", "clicks", "loads")]
    for batch_id in range(1, 4):
        for stream in streams:
            for earlier in range(len(stream.marks()), batch_id + 1):
                lake.catalog.faults = [lands_but_says(ERRORS["409 conflict"])]
                assert isinstance(stream.run(earlier), Committed)
            assert isinstance(stream.run(batch_id), AlreadyCommitted)
    assert [len(stream.marks()) for stream in streams] == [4, 4, 4]
    assert counted(lake) == Counter(dict.fromkeys(expected(*range(4)), 3))


@pytest.mark.parametrize("fault", [lands_but_says, refuses_with], ids=["landed", "did not land"])
def test_the_look_of_the_next_attempt_decides_and_not_the_answer(
    lake: Lake, fault: Callable[[Exception], Fault]
) -> None:
    """A rival commits the very batch between a lost answer and the next look: whoever landed, it is there once."""
    stream, rival = Stream(lake), Stream(lake, catalog=Lake.connect(lake.folder))
    lake.catalog.faults = [fault(ERRORS["503 unavailable"])]

    def others(_: float) -> None:
        rival.run(1)

    sink = stream.sink()
    sink = replace(sink, effects=replace(sink.effects, sleep_ms=others))
    outcome = stream.run_with(sink, 1)
    assert isinstance(outcome, Committed | AlreadyCommitted)
    assert outcome.snapshot_id == stream.snapshot_of(1)
    assert counted(lake) == expected(0, 1)


def test_an_answer_that_cannot_be_read_to_the_end_is_unknown_and_not_a_failed_commit(
    lake: Lake, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is carried out; the answer shows another head, and the evidence that this asks for cannot be read."""

    def no_storage(*_: object) -> None:
        monkeypatch.undo()
        raise OSError("the store is away")

    def fault(apply: Apply) -> CommitTableResponse:
        answer = apply()
        shown = answer.metadata
        newest = shown.snapshots[-1].model_copy(update={"snapshot_id": 1, "parent_snapshot_id": 2})
        ref = shown.refs["main"].model_copy(update={"snapshot_id": 1})
        metadata = shown.model_copy(
            update={"snapshots": [*shown.snapshots, newest], "refs": {**shown.refs, "main": ref}}
        )
        monkeypatch.setattr(PyArrowFileIO, "new_input", no_storage)
        return CommitTableResponse(metadata=metadata, metadata_location=answer.metadata_location)

    lake.catalog.faults = [fault]
    landed_once(lake, stream, stream.run(1), attempts=2)


def test_no_secret_of_the_catalog_is_told_whatever_the_catalog_says(
    lake: Lake, stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    lake.catalog.properties["s3.secret-access-key"] = "canary-in-the-mine"
    lake.catalog.faults = [refuses_with(OSError("the signature by canary-in-the-mine does not match"))] * 9
    with caplog.at_level(logging.DEBUG), pytest.raises(CommitUnresolved) as unresolved:
        stream.run(1)
    assert "signature" in str(unresolved.value)
    assert "canary" not in str(unresolved.value) + caplog.text
