"""A batch that does not follow the target's history is refused, and records from storage are checked."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lakesink_protocol.errors import BatchRefused, LakesinkError
from lakesink_protocol.identity import Batch
from lakesink_protocol.outcome import AlreadyCommitted
from lakesink_tools.testing.checks.base import BATCHES, BY_PROCESS, OTHER, SinkUnderTest, keeps
from lakesink_tools.testing.promises import Promise
from lakesink_tools.testing.stream import Stream

LAST = BATCHES - 1

STRANGE: dict[str, Callable[[Stream], Batch]] = {
    "the last with other data": lambda stream: stream.batch(LAST, end=99),
    "an old one with other data": lambda stream: stream.batch(0, end=99),
    "one too far": lambda stream: stream.batch(LAST + 2),
    "the first of a new checkpoint": lambda stream: replace(stream, query="query-2").batch(0),
    "a later one of another checkpoint": lambda stream: replace(stream, query="query-2").batch(LAST + 1),
    "the last of another checkpoint": lambda stream: replace(stream, query="query-2").batch(LAST),
}
"""Batches that a target with three batches must refuse."""

MISSING = object()
JUNK: tuple[Any, ...] = (None, -1, "../../x")

Payload = dict[str, Any]


def damaged(payload: Payload, name: str, junk: Any) -> Payload:
    """The payload with junk under one of its keys; without the key if it is `MISSING`."""
    kept = {key: value for key, value in payload.items() if key != name}
    return kept if junk is MISSING else {**kept, name: junk}


class HistoryChecks(SinkUnderTest):
    """Refusals, and records from storage."""

    @keeps(Promise.HISTORY)
    @BY_PROCESS
    @pytest.mark.parametrize("strange", STRANGE)
    def test_a_batch_that_does_not_follow_is_refused_before_it_is_written(
        self, stream: Stream, strange: str, by: str
    ) -> None:
        """Other data, a new checkpoint, a gap. The stream itself continues."""
        sink = stream.open_sink()
        stream.run_all(*range(BATCHES), sink=sink)
        seen, jobs = stream.seen(), list(stream.jobs)
        sink = stream.open_sink() if by == OTHER else sink
        self._is_refused(stream, sink, STRANGE[strange](stream))
        assert stream.jobs == jobs, "a job ran for a batch that is refused"
        assert stream.seen() == seen, "a refused batch changed what readers see"
        stream.goes_on(BATCHES, sink=sink)

    @keeps(Promise.HISTORY)
    def test_a_later_batch_is_refused_by_a_target_that_knows_none(self, stream: Stream) -> None:
        """The batches before it are in another target, or lost."""
        self._is_refused(stream, stream.open_sink(), stream.batch(1))
        assert not stream.seen(), "a refused batch is visible"
        stream.goes_on(0, 1)

    @keeps(Promise.HISTORY)
    def test_an_old_batch_is_known_or_refused(self, stream: Stream) -> None:
        """The checkpoint is older than the target."""
        stream.run_all(*range(BATCHES))
        jobs = list(stream.jobs)
        try:
            outcome = stream.run(0)
        except BatchRefused:
            pass
        else:
            assert isinstance(outcome, AlreadyCommitted), f"the outcome is {outcome!r}"
        assert stream.jobs == jobs, "a job ran for an old batch"
        stream.check(*range(BATCHES))

    @keeps(Promise.PAYLOAD)
    def test_a_record_that_was_spoilt_is_not_believed(self, stream: Stream) -> None:
        """With any damaged record, the batch is written again or refused; each damaged record is of another batch."""
        self.skip_unless_it_recovers(stream)
        names = list(self._payload(stream, 0))
        self._record(stream, 0, {})
        self._survives(stream, 0, "an empty record")
        for name, junk in itertools.product(names, (MISSING, *JUNK)):
            batch_id = len(stream.seen())
            self._record(stream, batch_id, damaged(self._payload(stream, batch_id), name, junk))
            what = f"without {name}" if junk is MISSING else f"with {junk!r} as {name}"
            self._survives(stream, batch_id, f"a record {what}")

    @keeps(Promise.PAYLOAD)
    def test_the_record_of_another_batch_is_not_believed(self, stream: Stream) -> None:
        """Its files are committed already: a second commit would double them."""
        self.skip_unless_it_recovers(stream)
        payload = self._payload(stream, 0)
        stream.run(0)
        self._record(stream, 1, payload)
        self._survives(stream, 1, "a record is of batch 0")

    def _payload(self, stream: Stream, batch_id: int) -> Payload:
        """A driver prepares a batch and does not commit it."""
        return dict(stream.pre_commit(stream.open_sink(), batch_id)[1].payload)

    def _record(self, stream: Stream, batch_id: int, payload: Payload) -> None:
        sink = stream.open_sink()
        transaction = stream.begin(sink, batch_id)
        transaction.prepared_log.put(stream.batch(batch_id), {sink.name: payload})

    def _survives(self, stream: Stream, batch_id: int, what: str) -> None:
        try:
            stream.run(batch_id)
        except LakesinkError:
            stream.check(*range(batch_id))
        except Exception as error:
            raise AssertionError(f"{what}: it ended with {error!r}") from error
        else:
            stream.check(*range(batch_id + 1), when=what)

    def _is_refused(self, stream: Stream, sink: Any, batch: Batch) -> None:
        try:
            outcome = stream.run(batch, sink=sink)
        except BatchRefused:
            return
        raise AssertionError(f"the outcome is {outcome!r}: no BatchRefused was raised")
