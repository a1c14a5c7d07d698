"""A batch needs a valid receipt of every task. Other attempts and an abort change nothing."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
import pytest

from lakesink_protocol.errors import WriteError
from lakesink_protocol.two_phase import Durability, TaskWriter
from lakesink_tools.testing.checks.base import SinkUnderTest, keeps
from lakesink_tools.testing.promises import Promise
from lakesink_tools.testing.stream import Cast, Stream, cast_votes, shipped, wrote
from lakesink_tools.testing.tagged_rows import Attempt

Votes = Sequence[bytes]

BAD_VOTES: dict[str, Callable[[Votes, Votes], Votes]] = {
    "one is there in place of another": lambda votes, _: [votes[0], votes[0], votes[2]],
    "one is empty": lambda votes, _: [votes[0], b"", votes[2]],
    "one is junk": lambda votes, _: [votes[0], b"\x00\xff junk", votes[2]],
    "one is cut short": lambda votes, _: [votes[0], votes[1][: len(votes[1]) // 2], votes[2]],
    "one is JSON and no receipt": lambda votes, _: [votes[0], b"{}", votes[2]],
    "one is of another batch": lambda votes, others: [votes[0], others[1], votes[2]],
}
"""Replacements for the votes of three tasks; the second argument has the votes of the previous batch."""


def killed_halfway(attempt: Attempt) -> Iterator[pa.RecordBatch]:
    """Rows that end with an error, as when Spark kills a task."""
    yield next(attempt.batches())
    raise InterruptedError("the task was killed")


def retried(writer: TaskWriter, batch_id: int, run: int) -> tuple[list[bytes], list[int]]:
    """Every task fails once, halfway."""
    first = [Attempt(batch_id, run, task) for task in range(3)]
    second = [Attempt(batch_id, run, task, number=1) for task in range(3)]
    for attempt in first:
        try:
            shipped(writer).write(attempt.task, killed_halfway(attempt))
        except InterruptedError:
            continue
        raise AssertionError("a task whose rows ended with an error cast a vote")
    return [wrote(writer, attempt) for attempt in second], [at for attempt in second for at in attempt.positions]


def speculative(counts: int, writer: TaskWriter, batch_id: int, run: int) -> tuple[list[bytes], list[int]]:
    """Every task has two successful attempts, one after the other; one of them counts."""
    attempts = [[Attempt(batch_id, run, task, number) for number in range(2)] for task in range(3)]
    votes = [[wrote(writer, attempt) for attempt in pair] for pair in attempts]
    return [pair[counts] for pair in votes], [at for pair in attempts for at in pair[counts].positions]


def side_by_side(counts: int, writer: TaskWriter, batch_id: int, run: int) -> tuple[list[bytes], list[int]]:
    """Every task has two attempts: the second begins and ends while the first is in the middle of its rows."""
    votes: list[bytes] = []
    positions: list[int] = []
    for task in range(3):
        outer, inner = Attempt(batch_id, run, task), Attempt(batch_id, run, task, number=1)
        of_inner: list[bytes] = []

        def rows(
            outer: Attempt = outer, inner: Attempt = inner, done: list[bytes] = of_inner
        ) -> Iterator[pa.RecordBatch]:
            for number, batch in enumerate(outer.batches()):
                if number == 1:
                    done.append(wrote(writer, inner))
                yield batch

        of_outer = shipped(writer).write(task, rows())
        votes.append((of_outer, of_inner[0])[counts])
        positions.extend((outer, inner)[counts].positions)
    return votes, positions


ATTEMPTS: dict[str, Cast] = {
    "the first of each task fails halfway": retried,
    "of two in turn the first counts": partial(speculative, 0),
    "of two in turn the second counts": partial(speculative, 1),
    "of two side by side the longer counts": partial(side_by_side, 0),
    "of two side by side the shorter counts": partial(side_by_side, 1),
}


ABORTS = ("before votes", "after votes", "after pre-commit")


class VoteChecks(SinkUnderTest):
    """Receipts, attempts, aborts."""

    @keeps(Promise.VOTES)
    @pytest.mark.parametrize("bad", BAD_VOTES)
    def test_a_malformed_receipt_or_one_of_another_task_or_batch_fails_it(self, stream: Stream, bad: str) -> None:
        """Nothing becomes visible, and the batch can be written again."""
        before: list[bytes] = []

        def of_batch_0(writer: TaskWriter, batch_id: int, run: int) -> tuple[list[bytes], list[int]]:
            votes, positions = cast_votes(writer, batch_id, run)
            before.extend(votes)
            return votes, positions

        def tampered(writer: TaskWriter, batch_id: int, run: int) -> tuple[Votes, list[int]]:
            votes, positions = cast_votes(writer, batch_id, run)
            return BAD_VOTES[bad](votes, before), positions

        stream.run(0, cast=of_batch_0)
        sink = stream.open_sink()
        try:
            stream.run(1, sink=sink, cast=tampered)
        except WriteError:
            pass
        else:
            raise AssertionError("pre_commit raised no WriteError")
        stream.check(0)
        stream.run(1, sink=sink)
        stream.goes_on(1, 2)

    @keeps(Promise.ATTEMPTS)
    @pytest.mark.parametrize("attempts", ATTEMPTS)
    def test_of_the_attempts_of_a_task_one_counts(self, stream: Stream, attempts: str) -> None:
        """Tasks are retried or run twice; attempts may write different rows. The votes decide which rows count."""
        for batch_id in range(2):
            stream.run(batch_id, cast=ATTEMPTS[attempts])
            stream.check(*range(batch_id + 1))

    @keeps(Promise.ATTEMPTS)
    def test_an_attempt_that_ends_after_the_commit_changes_nothing(self, stream: Stream) -> None:
        """A late attempt: Spark no longer waits for it."""
        writers: list[TaskWriter] = []

        def remembered(writer: TaskWriter, batch_id: int, run: int) -> tuple[list[bytes], list[int]]:
            writers.append(writer)
            return cast_votes(writer, batch_id, run)

        stream.run(0, cast=remembered)
        for task in range(3):
            wrote(writers[0], Attempt(0, run=0, task=task, number=5))
        stream.check(0)
        stream.goes_on(0, 1)

    @keeps(Promise.ABORT)
    @pytest.mark.parametrize("when", ABORTS)
    def test_another_drivers_abort_spoils_nothing_that_is_prepared(self, stream: Stream, when: str) -> None:
        """One driver has prepared the batch, a second one begins it and aborts, a third one completes it."""
        stream.run(0)
        sink, aborting = stream.open_sink(), stream.open_sink()
        stream.prepare(sink, 1)
        aborted = stream.begin(aborting, 1)
        votes = stream.votes(aborted, 1) if when != "before votes" else ()
        if when == "after pre-commit":
            aborting.pre_commit(aborted, votes)
        aborting.abort(aborted)
        self._completes(stream)

    @keeps(Promise.ABORT)
    def test_an_abort_after_the_record_spoils_nothing(self, stream: Stream) -> None:
        """An abort may follow a failed commit, although the commit may have landed."""
        stream.run(0)
        sink = stream.open_sink()
        transaction, _ = stream.prepare(sink, 1)
        sink.abort(transaction)
        self._completes(stream)

    @keeps(Promise.ABORT)
    def test_an_abort_after_the_commit_spoils_nothing(self, stream: Stream) -> None:
        """The driver that committed aborts, and another one that had begun before."""
        stream.run(0)
        sink, late = stream.open_sink(), stream.open_sink()
        transaction, of_late = stream.begin(sink, 1), stream.begin(late, 1)
        sink.commit(transaction, sink.pre_commit(transaction, stream.votes(transaction, 1)))
        sink.abort(transaction)
        late.abort(of_late)
        stream.check(0, 1)
        stream.goes_on(1, 2)

    def _completes(self, stream: Stream) -> None:
        stream.check(0)
        jobs = len(stream.jobs)
        stream.run(1)
        if stream.open_sink().durability is Durability.PREPARED_SURVIVES:
            assert len(stream.jobs) == jobs, "the prepared batch could not be used after the abort"
        stream.goes_on(2)
