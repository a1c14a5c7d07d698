"""A stream without Spark: batches, drivers with the real coordinator, and the rows that readers should see."""

import itertools
import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.identity import Batch, stream_batch
from lakesink_protocol.outcome import AlreadyCommitted, Outcome
from lakesink_protocol.two_phase import TaskWriter, TwoPhaseCommitSink
from lakesink_protocol.votes import Votes
from lakesink_tools.testing.points import AtPoint, WatchedSink, Within
from lakesink_tools.testing.tagged_rows import Attempt, SeenRows, count_positions, wrong_rows

Sink = TwoPhaseCommitSink[Any, Any]
Cast = Callable[[TaskWriter, int, int], tuple[Sequence[bytes], Iterable[int]]]
"""Runs one job: takes writer, batch id and number of the run; returns its votes, and the positions of their rows."""


def shipped(writer: TaskWriter) -> TaskWriter:
    """The writer as an executor receives it: unpickled, so that two tasks never share an object."""
    copy: TaskWriter = pickle.loads(pickle.dumps(writer))
    return copy


def wrote(writer: TaskWriter, attempt: Attempt) -> bytes:
    """The receipt of one attempt, which has its own copy of the writer."""
    receipt = shipped(writer).write(attempt.task, attempt.batches())
    assert isinstance(receipt, bytes), f"write returned a {type(receipt).__name__}, not a receipt in bytes"
    return receipt


def cast_votes(
    writer: TaskWriter, batch_id: int, run: int, *, tasks: int = 3, rows: int = 4
) -> tuple[list[bytes], list[int]]:
    """Run a job without incidents."""
    attempts = [Attempt(batch_id, run, task, rows=rows) for task in range(tasks)]
    return [wrote(writer, attempt) for attempt in attempts], [at for attempt in attempts for at in attempt.positions]


empty = partial(cast_votes, rows=0)


@dataclass(slots=True)
class Stream:
    """Batches into one target, and the votes of all jobs."""

    open_sink: Callable[[], Sink]  # opens the sink, as a process that has just started
    read_rows: Callable[[], Iterable[tuple[int, int]]]  # the rows that a reader sees now
    query: str = "query-1"  # id of the query
    runs: "itertools.count[int]" = field(default_factory=itertools.count)  # numbers for future jobs
    # By batch, the positions that each of its jobs voted for.
    candidates: dict[int, list[frozenset[int]]] = field(default_factory=lambda: defaultdict(list))
    jobs: list[int] = field(default_factory=list)  # batch ids in the order of their jobs

    def batch(self, batch_id: int, *, end: int | None = None) -> Batch:
        """Batch n reads offsets n to n+1, unless another end is given."""
        return stream_batch(batch_id, self.query, start=[batch_id], end=[batch_id + 1 if end is None else end])

    def run(
        self,
        batch: Batch | int,
        *,
        sink: Sink | None = None,
        at_point: AtPoint = lambda *_: None,
        cast: Cast = cast_votes,
        within: Within = nullcontext,
    ) -> Outcome:
        """Run one batch; without `sink`, a driver that has just started opens one."""
        batch = self.batch(batch) if isinstance(batch, int) else batch
        watched = WatchedSink(sink or self.open_sink(), at_point, within)
        write = watched.writing(partial(self._job, batch.batch_id, cast))
        outcomes = run_batch(batch, [watched], write)
        return outcomes[watched.name]

    def run_all(self, *batch_ids: int, sink: Sink | None = None) -> None:
        """Run batches in this order; without `sink`, a new driver opens one for each batch."""
        for batch_id in batch_ids:
            self.run(batch_id, sink=sink)

    def goes_on(self, *batch_ids: int, sink: Sink | None = None) -> None:
        """Run batches, of which the last is the newest; readers must then see all batches up to it."""
        self.run_all(*batch_ids, sink=sink)
        self.check(*range(batch_ids[-1] + 1))

    def votes(self, transaction: Any, batch_id: int, cast: Cast = cast_votes) -> Sequence[bytes]:
        """The votes for a batch that a sink has begun."""
        return self._job(batch_id, cast, {"it": transaction.writer}).receipts("it")

    def begin(self, sink: Sink, batch_id: int) -> Any:
        """The transaction of a sink for a batch that is not committed."""
        transaction = sink.begin(self.batch(batch_id))
        assert not isinstance(transaction, AlreadyCommitted), (
            f"begin says that batch {batch_id} is committed, but it is not"
        )
        return transaction

    def pre_commit(self, sink: Sink, batch_id: int, cast: Cast = cast_votes) -> tuple[Any, Any]:
        """Begin and pre-commit a batch, without a record; returns transaction and prepared."""
        transaction = self.begin(sink, batch_id)
        prepared = sink.pre_commit(transaction, self.votes(transaction, batch_id, cast))
        assert prepared is not None, "only participants that votes name can have nothing to commit"
        return transaction, prepared

    def prepare(self, sink: Sink, batch_id: int) -> tuple[Any, Any]:
        """Begin and pre-commit a batch, with a durable record; returns transaction and prepared."""
        transaction, prepared = self.pre_commit(sink, batch_id)
        transaction.prepared_log.put(self.batch(batch_id), {sink.name: prepared.payload})
        return transaction, prepared

    def seen(self) -> SeenRows:
        """The rows that a reader sees now, by batch."""
        return count_positions(self.read_rows())

    def check(self, *batch_ids: int, when: str = "") -> None:
        """Readers must see exactly these batches, each with the votes of one of its jobs, each row once."""
        found = wrong_rows(self.seen(), self.candidates, batch_ids)
        assert not found, f"{when}: {found}" if when else found

    def _job(self, batch_id: int, cast: Cast, writers: Mapping[str, TaskWriter]) -> Votes:
        [(name, writer)] = writers.items()
        votes, positions = cast(writer, batch_id, next(self.runs))
        self.jobs.append(batch_id)
        self.candidates[batch_id].append(frozenset(positions))
        return Votes.in_order({name: votes})
