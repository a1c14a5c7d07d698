"""Each batch once and whole in a directory, whatever a driver, a rival or the storage does."""

import itertools
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lakesink
from lakesink_catalog.failpoints import VARIABLE, FailpointReached
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.errors import BatchRefused, CommitUnresolved, Reason, WriteError
from lakesink_protocol.identity import Batch
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from testkit.builders import expected, offered
from testkit.directory import Fault, Stream, lost_answer, lost_request


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path / "out")


@pytest.mark.parametrize("tasks", [1, 3])
def test_each_batch_is_one_commit_and_each_row_is_there_once(stream: Stream, tasks: int) -> None:
    for number in range(4):
        outcome = stream.run(number, tasks=tasks)
        size = sum(path.stat().st_size for path in stream.part_files() if path.name.startswith(f"clicks-{number}-"))
        assert outcome == Committed(number, 3 * tasks, tasks, size, recovered=False, accepted=None, attempts=1)
    assert stream.counted() == expected(0, 1, 2, 3, rows=3 * tasks)
    assert stream.batches() == [0, 1, 2, 3]


def test_a_marker_tells_all_about_its_batch(stream: Stream) -> None:
    stream.run(0)
    stream.run(1, tasks=2)
    first, second = stream.markers()
    batch = stream.batch(1)
    assert {name: second[name] for name in ("batch_id", "query_id", "fingerprint", "start", "end", "offsets")} == {
        name: getattr(batch, name) for name in ("batch_id", "query_id", "fingerprint", "start", "end", "offsets")
    }
    assert (second["version"], second["lakesink"], second["format"]) == (1, lakesink.__version__, "parquet")
    assert second["previous"] == first["digest"]
    assert second["rows"] == 6
    for part in second["parts"]:
        path = stream.directory / part["path"]
        assert (path.stat().st_size, part["rows"]) == (part["bytes"], 3)


def test_a_replayed_batch_is_found_before_any_job_and_leaves_no_file(stream: Stream) -> None:
    stream.run(0)
    stream.run(1)
    before = stream.part_files()
    assert stream.run(1) == AlreadyCommitted(1)
    assert stream.run(0) == AlreadyCommitted(0)
    assert stream.writes == 2
    assert stream.part_files() == before


def test_however_often_a_stream_into_files_starts_one_record_is_left(tmp_path: Path) -> None:
    for number in range(4):
        Stream(tmp_path / "out").run(number)
        [left] = (tmp_path / "out").rglob("prepared/*.json")
        assert left.name.startswith(f"{number}-")
    assert Stream(tmp_path / "out").counted() == expected(0, 1, 2, 3)


@pytest.mark.parametrize("empty", [(0,), (1,), (3,), (0, 1), (0, 1, 2, 3)])
def test_an_empty_batch_is_a_commit_without_files_wherever_it_comes(stream: Stream, empty: Sequence[int]) -> None:
    for number in range(4):
        outcome = stream.run(number, rows=0 if number in empty else 3)
        assert isinstance(outcome, Committed)
        assert (outcome.files == 0) == (number in empty)
    assert stream.counted() == expected(*sorted({0, 1, 2, 3} - set(empty)))
    assert [len(marker["parts"]) for marker in stream.markers()] == [int(number not in empty) for number in range(4)]
    assert stream.run(3) == AlreadyCommitted(3)


@pytest.mark.parametrize(
    ("failpoint", "recovered", "orphans"), [("before-prepared", False, 1), ("after-prepared", True, 0)]
)
def test_a_batch_that_died_before_its_marker_is_published_by_the_next_driver(
    stream: Stream,
    monkeypatch: pytest.MonkeyPatch,
    failpoint: str,
    recovered: bool,  # noqa: FBT001 - a table of cases
    orphans: int,
) -> None:
    stream.run(0)
    monkeypatch.setenv(VARIABLE, f"{failpoint}@1=raise")
    with pytest.raises(FailpointReached):
        stream.run(1)
    monkeypatch.delenv(VARIABLE)
    left = stream.part_files()
    assert stream.counted() == expected(0)
    outcome = stream.run(1)
    assert isinstance(outcome, Committed)
    assert outcome.recovered == recovered
    assert stream.counted() == expected(0, 1)
    assert stream.markers()[1]["outcome"] == ("recovered" if recovered else "committed")
    assert len(stream.part_files()) == 2 + orphans
    assert set(left) <= set(stream.part_files())


def test_a_batch_whose_marker_landed_is_known_to_the_next_driver(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "after-commit@0=raise")
    with pytest.raises(FailpointReached):
        stream.run(0)
    monkeypatch.delenv(VARIABLE)
    assert stream.run(0) == AlreadyCommitted(0)
    assert stream.counted() == expected(0)


def other_query(batch: Batch) -> Batch:
    return replace(batch, query_id="query-2")


def cases() -> dict[str, tuple[Batch, Reason | int | str]]:
    """Batches that come to a directory with batches 0 to 2, which ended at offset 3, and what becomes of them."""
    stream = Stream(Path("/nowhere"))
    return {
        "the next": (stream.batch(3), "committed"),
        "the last": (stream.batch(2), 2),
        "an old one": (stream.batch(0), 0),
        "the last with other data": (stream.batch(2, end=9), Reason.BATCH_CHANGED),
        "the next starting elsewhere": (stream.batch(3, start=2), Reason.BATCH_CHANGED),
        "an old one with other data": (stream.batch(1, end=9), Reason.REWOUND),
        "one too far": (stream.batch(4), Reason.GAP),
        "a new checkpoint from the start": (other_query(stream.batch(0)), Reason.NEW_CHECKPOINT),
        "a new checkpoint where the sink ended": (other_query(stream.batch(0, start=3)), "committed"),
        "a new checkpoint with a later batch": (other_query(stream.batch(3)), Reason.NEW_CHECKPOINT),
    }


@pytest.mark.parametrize("case", cases())
def test_the_verdict_table_decides(stream: Stream, case: str) -> None:
    batch, becomes = cases()[case]
    for number in range(3):
        stream.run(number)
    before = (stream.markers(), stream.part_files())
    if isinstance(becomes, Reason):
        with pytest.raises(BatchRefused) as refused:
            stream.run(batch)
        assert refused.value.reason is becomes
        assert "table" not in str(refused.value)
        assert len(str(refused.value).splitlines()[0]) < 200
        assert (stream.markers(), stream.part_files()) == before
    elif becomes == "committed":
        assert isinstance(stream.run(batch), Committed)
        assert stream.counted() == expected(0, 1, 2, 3)
    else:
        assert stream.run(batch) == AlreadyCommitted(int(becomes))
        assert (stream.markers(), stream.part_files()) == before


def test_a_directory_that_knows_nothing_refuses_a_later_batch(stream: Stream) -> None:
    with pytest.raises(BatchRefused) as refused:
        stream.run(1)
    assert refused.value.reason is Reason.UNKNOWN_HISTORY
    assert not stream.directory.exists()


def test_a_new_checkpoint_that_took_over_counts_from_zero_and_goes_on(stream: Stream) -> None:
    for number in range(3):
        stream.run(number)
    later = replace(stream, query="query-2")
    for number in range(2):
        later.run(later.batch(number, start=number + 3))
    assert later.run(later.batch(1, start=4)) == AlreadyCommitted(4)
    assert stream.counted() == expected(0, 1, 2, 3, 4)
    assert stream.batches() == [0, 1, 2, 0, 1]


@pytest.mark.parametrize(("word", "rows"), [("commit", {0, 1, 4}), ("skip", {0, 1})])
def test_a_human_may_overrule_a_refusal_of_one_batch(stream: Stream, word: str, rows: set[int]) -> None:
    stream.run(0)
    stream.run(1)
    outcome = stream.overrule(4, word)
    assert isinstance(outcome, Committed)
    assert outcome.accepted
    assert re.fullmatch(rf"Gap:4@1-[0-9a-f]{{6}}:{word}", outcome.accepted)
    assert stream.counted() == expected(*sorted(rows))
    assert isinstance(stream.run(5), Committed)
    assert stream.markers()[2]["outcome"] == "accepted"


def test_a_word_left_in_the_code_is_good_for_one_lost_checkpoint(tmp_path: Path) -> None:
    first = Stream(tmp_path / "out")
    first.run(0)
    first.run(1)
    second = Stream(tmp_path / "out", query="query-2")
    with pytest.raises(BatchRefused) as refused:
        second.run(0)
    word = offered(refused.value)["commit"]
    for number in range(2):
        second.run(number, accept=word)
    with pytest.raises(BatchRefused) as again:
        Stream(tmp_path / "out", query="query-3").run(0, accept=word)
    assert again.value.reason is Reason.NEW_CHECKPOINT
    assert word not in again.value.action
    assert first.counted() == expected(0, 0, 1, 1)


def test_an_old_batch_that_a_human_let_in_does_not_move_the_ledger_back(stream: Stream) -> None:
    for number in range(3):
        stream.run(number)
    again = stream.batch(1, end=9)
    stream.overrule(again)
    assert stream.markers()[3]["ledger_batch_id"] == 2
    assert stream.run(again) == AlreadyCommitted(3)
    assert stream.run(2) == AlreadyCommitted(2)
    assert isinstance(stream.run(3), Committed)
    assert [marker["ledger_batch_id"] for marker in stream.markers()] == [0, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("faults", "attempts"),
    [
        ([lost_answer], 2),
        ([lost_request], 2),
        ([lost_request, lost_request, lost_answer], 4),
        ([lost_request, lost_answer], 3),
    ],
)
def test_an_outcome_that_is_not_known_is_looked_for(stream: Stream, faults: list[Fault], attempts: int) -> None:
    stream.run(0)
    stream.storage.faults = list(faults)
    outcome = stream.run(1)
    assert isinstance(outcome, Committed)
    assert outcome.attempts == attempts
    assert stream.counted() == expected(0, 1)
    assert stream.writes == 2
    assert stream.batches() == [0, 1]


@pytest.mark.parametrize("place", ["staged.sink.still_usable", "directory.directory_sink.FileSink.commit_of"])
def test_an_error_in_code_before_anything_was_sent_ends_the_batch_at_once(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def fail(*_: object) -> None:
        raise AttributeError("a defect")

    monkeypatch.setattr(f"lakesink.sinks.{place}", fail)
    with pytest.raises(WriteError, match="before anything was sent: AttributeError: a defect"):
        stream.run(0)
    assert stream.chance.waited_ms == []
    monkeypatch.undo()
    stream.storage.faults = [lost_answer]
    assert isinstance(stream.run(0), Committed)


def test_attempts_are_bounded_and_what_is_prepared_is_published_by_the_restart(stream: Stream) -> None:
    stream.run(0)
    stream.storage.faults = [lost_request] * 100
    with pytest.raises(CommitUnresolved, match="nobody there"):
        stream.run(1)
    assert 5_000 < sum(stream.chance.waited_ms) < 60_000
    stream.storage.faults = []
    outcome = stream.run(1)
    assert isinstance(outcome, Committed)
    assert outcome.recovered
    assert stream.writes == 2
    assert stream.counted() == expected(0, 1)


def test_the_last_attempt_may_have_landed_and_is_looked_for(stream: Stream) -> None:
    stream.run(0)
    stream.storage.faults = [lost_request] * 8 + [lost_answer]
    assert isinstance(stream.run(1), Committed)
    assert stream.counted() == expected(0, 1)


def test_a_request_that_arrives_late_changes_nothing(stream: Stream) -> None:
    stream.run(0)
    stream.storage.faults = [stream.storage.arrives_late]
    stream.run(1)
    stream.run(2)
    [late] = stream.storage.late
    with pytest.raises(FileExistsError):
        late()
    assert stream.counted() == expected(0, 1, 2)


def test_a_request_that_arrives_after_its_driver_died_is_the_batch(stream: Stream) -> None:
    stream.run(0)
    stream.storage.faults = [stream.storage.arrives_late] + [lost_request] * 100
    with pytest.raises(CommitUnresolved):
        stream.run(1)
    stream.storage.faults = []
    stream.storage.late[0]()
    assert stream.run(1) == AlreadyCommitted(1)
    assert stream.counted() == expected(0, 1)


def test_of_two_drivers_with_one_batch_one_publishes_and_the_other_learns_it(stream: Stream) -> None:
    stream.run(0)
    batch, slow = stream.batch(1), stream.sink()

    def job_with_a_rival_in_it(writers: Any) -> Any:
        receipts = stream.write(batch)(writers)
        assert isinstance(stream.run(1), Committed)
        assert isinstance(stream.run(2), Committed)
        return receipts

    outcome = run_batch(batch, [slow], job_with_a_rival_in_it)[slow.name]
    assert outcome == AlreadyCommitted(1)
    assert stream.counted() == expected(0, 1, 2)


def test_a_driver_whose_rival_published_other_data_is_refused(stream: Stream) -> None:
    stream.run(0)
    batch, slow = stream.batch(1, end=9), stream.sink()

    def job_with_a_rival_in_it(writers: Any) -> Any:
        receipts = stream.write(batch)(writers)
        stream.run(1)
        return receipts

    with pytest.raises(BatchRefused) as refused:
        run_batch(batch, [slow], job_with_a_rival_in_it)
    assert refused.value.reason is Reason.BATCH_CHANGED
    assert stream.counted() == expected(0, 1)


def test_a_batch_that_was_prepared_before_the_ledger_moved_is_written_again(stream: Stream) -> None:
    """A human lets an old batch in meanwhile: ours is still the next, but follows another marker."""
    for number in range(3):
        stream.run(number)
    batch, slow = stream.batch(3), stream.sink()

    def job_with_a_human_in_it(writers: Any) -> Any:
        receipts = stream.write(batch)(writers)
        if len(stream.markers()) == 3:
            stream.overrule(stream.batch(1, end=9))
        return receipts

    writes = stream.writes
    assert isinstance(run_batch(batch, [slow], job_with_a_human_in_it)[slow.name], Committed)
    assert stream.writes == writes + 3
    assert stream.batches() == [0, 1, 2, 1, 3]
    assert stream.counted()[3, 0] == 1


def test_two_first_drivers_make_one_history(stream: Stream) -> None:
    batch, slow = stream.batch(0), stream.sink()

    def job_with_a_rival_in_it(writers: Any) -> Any:
        receipts = stream.write(batch)(writers)
        stream.run(0)
        return receipts

    assert run_batch(batch, [slow], job_with_a_rival_in_it)[slow.name] == AlreadyCommitted(0)
    assert isinstance(stream.run_with(slow, 1), Committed)
    assert len({marker["directory_id"] for marker in stream.markers()}) == 1


def test_every_interleaving_of_two_drivers_leaves_each_row_once(tmp_path: Path) -> None:
    """Both run batches 0 to 2, each in its own process, in all orders of their steps."""
    for number, order in enumerate(set(itertools.permutations("aaabbb"))):
        stream = Stream(tmp_path / str(number))
        sinks = {"a": stream.sink(), "b": stream.sink()}
        next_batch = {"a": 0, "b": 0}
        for driver in order:
            stream.run_with(sinks[driver], next_batch[driver])
            next_batch[driver] += 1
        assert stream.counted() == expected(0, 1, 2)


def test_sinks_of_one_directory_do_not_know_each_other(stream: Stream) -> None:
    other = Stream(stream.directory, sink_id="views")
    for number in range(3):
        stream.run(number)
    other.run(0)
    assert stream.counted() == expected(0, 1, 2)
    assert other.counted() == expected(0)
    paths = lakesink.committed_files(stream.directory)
    assert Counter(path.split("/")[-3] for path in paths) == {"clicks": 3, "views": 1}


def test_a_run_reads_as_little_for_its_last_batch_as_for_its_third(stream: Stream) -> None:
    sink = stream.sink()
    costs = []
    for number in range(100):
        stream.storage.reads.clear()
        stream.run_with(sink, number)
        costs.append(len(stream.storage.reads))
    newest_and_next_twice, record = 4, 1
    assert set(costs[3:]) == {newest_and_next_twice + record}
    assert stream.storage.rounds == []


def test_a_start_lists_once_and_reads_the_end_of_the_history_only(stream: Stream) -> None:
    for number in range(100):
        stream.run(number, rows=0)
    stream.storage.reads.clear()
    stream.run(100)
    assert len(stream.storage.reads) <= 10
    assert sum(path.endswith("commits") for path in stream.storage.reads) == 1


def test_an_old_batch_is_found_in_few_rounds_of_reading(stream: Stream) -> None:
    for number in range(100):
        stream.run(number, rows=0)
    stream.storage.rounds.clear()
    assert stream.run(0, rows=0) == AlreadyCommitted(0)
    assert stream.storage.rounds == [1, 2, 4, 8, 16, 32, 36]


def test_nothing_of_the_log_can_be_read_as_rows_by_a_plain_reader(stream: Stream) -> None:
    stream.run(0)
    assert [path.name for path in stream.directory.iterdir()] == ["_lakesink"]
    assert all(json.loads(path.read_bytes())["digest"] for path in (stream.root / "commits").iterdir())
    assert {path.suffix for path in (stream.root / "commits").iterdir()} == {".json"}
