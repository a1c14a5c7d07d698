"""Runs one batch through its participants: decide for all, prepare all, then commit all. Pure.

The idea is Flink's `TwoPhaseCommitSinkFunction` (Nowojski and Winters, 2018), in Spark's terms. The batch id is the
checkpoint barrier, and the tasks' receipts are the votes. From the prepared record, a restarted process commits what an
earlier one pre-committed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lakesink_protocol import two_phase
from lakesink_protocol.errors import CommitUnresolved, LakesinkError, PartialBatch, WriteError
from lakesink_protocol.identity import MAIN_BRANCH, Batch
from lakesink_protocol.outcome import AlreadyCommitted, Outcome
from lakesink_protocol.redact import describe, safe_cause, shown
from lakesink_protocol.votes import Votes, receipt_rejected, receipts_of

Write = Callable[[Mapping[str, two_phase.TaskWriter]], Votes]
"""Runs one job over the batch's rows: gets task writers by participant, returns the votes of the tasks."""

Sink = two_phase.TwoPhaseCommitSink[Any, Any]
OpenSink = Callable[[str], Sink]
"""Opens the sink of a participant that a task named in its vote. The name is untrusted: refuse an invalid one."""

MAX_WRITES = 2
NO_VOTES = Votes(0, ())


def run_batch(
    batch: Batch, sinks: Sequence[Sink], write: Write, open_sink: OpenSink | None = None
) -> dict[str, Outcome]:
    """Run one batch through every participant.

    Participants that only the tasks name commit first, in the order of their names; then `sinks` in their order. When
    the last participant has the batch, all have it. Its log keeps the prepared record of all participants, because it
    lacks the batch as long as the record is needed.

    Args:
        batch: The batch to run.
        sinks: Participants with distinct names, in the order of their commits.
        write: Runs the job; called at most once, unless the target's history changes under a prepared batch, or a sink
            plans the batch anew after the votes.
        open_sink: Opens participants that only the tasks' votes name; by default the opener that one of the sinks has.
            Without any, such a vote is refused.

    Returns:
        The outcome of every participant, by name.

    Raises:
        BatchRefused: Some participant refused; nothing was committed in this run.
        PartialBatch: A participant failed after an earlier one had committed in this run.
        LakesinkError: The error of a participant; nothing was committed in this run.
    """
    run = BatchRun(batch, tuple(sinks), write, open_sink or _opener_of(sinks))
    try:
        log = run.settle()
    except Exception as error:
        if isinstance(error, LakesinkError):
            error.name_batch(batch.batch_id)
        if not run.landed:
            raise
        raise _partial(run, error) from safe_cause(error)
    if run.landed:
        log.landed(batch)
    return run.outcomes


def writers_for(batch: Batch, sinks: Sequence[Sink]) -> dict[str, two_phase.TaskWriter]:
    """The writers for the tasks of a batch, if another process counts their votes with `run_batch`.

    Changes nothing. Empty if there is nothing to write: the batch is committed or prepared, or adds no rows.

    Raises:
        BatchRefused: Some participant refuses the batch.
    """
    run = BatchRun(batch, tuple(sinks), lambda _: NO_VOTES, _opener_of(sinks))
    pending = run.begin_all()
    return {} if run.recover(pending) is not None else run.writers(pending)


@dataclass(slots=True, eq=False)
class _Open:
    """One participant that lacks the batch; `prepared` is None until it has voted."""

    sink: Sink
    transaction: Any
    prepared: Any = None


@dataclass(slots=True)
class BatchRun:
    """One run of a batch, with the outcome of each participant.

    Attributes:
        landed: Participants that this run committed.
        missing: Prepared participants that have not committed, in the order of commits.
        failed: Target that raised an error; empty if none did.
        _recorded: Participants of a record that cannot be used. They may have the batch, so they are asked again.
    """

    batch: Batch
    sinks: tuple[Sink, ...]
    write: Write
    open_sink: OpenSink | None
    outcomes: dict[str, Outcome] = field(default_factory=dict, init=False)
    landed: list[str] = field(default_factory=list, init=False)
    missing: list[str] = field(default_factory=list, init=False)
    failed: str = field(default="", init=False)
    _begun: list[_Open] = field(default_factory=list, init=False)
    _recorded: frozenset[str] = field(default=frozenset(), init=False)

    def settle(self) -> two_phase.PreparedLog:
        """Prepare and commit until every participant has the batch; returns the log that keeps its record."""
        log: two_phase.PreparedLog = two_phase.NoPreparedLog()
        for _ in range(MAX_WRITES):
            ready = self.prepare_all()
            log = _log_of(ready) if ready else log
            if self.commit_all(ready):
                return log
        with self._target(self.missing[0]):
            raise CommitUnresolved.of("COMMIT_UNRESOLVED.never_settled", batch_id=self.batch.batch_id, times=MAX_WRITES)

    def prepare_all(self) -> list[_Open]:
        """Every participant that lacks the batch, prepared, in the order of commits."""
        self._begun = []
        try:
            pending = self.begin_all()
            ready = (self.recover(pending) or self._written(pending)) if pending else []
        except BaseException:
            self._drop(list(self._begun))
            raise
        self.missing = [entry.sink.name for entry in ready]
        return ready

    def begin_all(self) -> list[_Open]:
        """Those of `sinks` that lack the batch."""
        return list(self._begin(self.sinks))

    def recover(self, pending: Sequence[_Open]) -> list[_Open] | None:
        """The batch that an earlier run prepared, if every participant that lacks it can use its part; else None."""
        if not pending or any(entry.sink.durability is two_phase.Durability.MUST_BE_REDONE for entry in pending):
            return None
        payloads = _log_of(pending).find(self.batch)
        if payloads is None:
            return None
        if self.open_sink is None and (named_before := self._named_by(payloads)):
            other = shown(named_before[0].removesuffix(f"@{MAIN_BRANCH}"), 60)  # it may have its rows of the batch
            raise WriteError.of("DEAD_LETTERS_DIFFER.no_table", batch_id=self.batch.batch_id, other=other)
        self._recorded = frozenset(payloads)
        named = list(self._begin(self._opened(payloads)))
        ready = [*named, *pending]
        for entry in ready:
            payload = payloads.get(entry.sink.name)
            with self._target(entry.sink.name):
                entry.prepared = None if payload is None else entry.sink.recover(entry.transaction, payload)
            if entry.prepared is None:
                self._drop(named)
                return None
        return ready

    def commit_all(self, ready: Sequence[_Open]) -> bool:
        """Commit in order; False if some participant must be written again."""
        for entry in ready:
            with self._target(entry.sink.name):
                outcome = entry.sink.commit(entry.transaction, entry.prepared)
            if outcome is None:
                return False
            self.outcomes[entry.sink.name] = outcome
            self.landed.append(entry.sink.name)
            self.missing.remove(entry.sink.name)
        return True

    def writers(self, pending: Sequence[_Open]) -> dict[str, two_phase.TaskWriter]:
        """The writers of the participants that add rows."""
        found: dict[str, two_phase.TaskWriter] = {}
        for entry in pending:
            writer = entry.transaction.writer
            if writer is not None:
                with self._target(entry.sink.name):
                    entry.sink.check_inputs(self.batch, entry.transaction)
                found[entry.sink.name] = writer
        return found

    def _written(self, pending: Sequence[_Open]) -> list[_Open]:
        votes: Votes | None = None
        while votes is None:
            writers = self.writers(pending)
            cast = self.write(writers) if writers else NO_VOTES
            if not isinstance(cast, Votes):
                raise TypeError(f"the job of a batch returns lakesink.two_phase.Votes, not {type(cast).__name__}")
            cast.check(writers)
            votes = self._completed(cast, writers, pending)
        named = list(self._begin(self._opened(votes.participants | self._recorded)))
        for entry in (*named, *pending):
            with self._target(entry.sink.name):
                entry.prepared = entry.sink.pre_commit(entry.transaction, votes.receipts(entry.sink.name))
        ready = [*(entry for entry in named if entry.prepared is not None), *pending]
        payloads = {entry.sink.name: entry.prepared.payload for entry in ready}
        _log_of(ready).put(self.batch, payloads)
        return ready

    def _completed(
        self, votes: Votes, writers: Mapping[str, two_phase.TaskWriter], pending: Sequence[_Open]
    ) -> Votes | None:
        """The votes with those of the rows that the tasks left; None if the job must run again."""
        completed = votes
        for entry in pending:
            name = entry.sink.name
            if name not in writers:
                continue
            with self._target(name):
                rest = entry.sink.write_rest(entry.transaction, votes.receipts(name))
                if isinstance(rest, two_phase.WriteAgain):
                    return None
                if rest is not None:
                    completed = completed.with_one_more(receipts_of(name, writers[name], rest))
        return completed

    def _begin(self, sinks: Iterable[Sink]) -> Iterator[_Open]:
        for sink in sinks:
            with self._target(sink.name):
                begun = sink.begin(self.batch)
            if isinstance(begun, AlreadyCommitted):
                self.outcomes.setdefault(sink.name, begun)
            else:
                self._begun.append(_Open(sink, begun))
                yield self._begun[-1]

    @contextmanager
    def _target(self, name: str) -> Iterator[None]:
        """If the batch has several targets, an error names the one that raised it; ``@main`` is left out."""
        try:
            yield
        except Exception as error:
            self.failed = name.removesuffix(f"@{MAIN_BRANCH}")
            if isinstance(error, LakesinkError) and max(len(self.sinks), len(self._begun)) > 1:
                error.name_target(self.failed)
            raise

    def _drop(self, entries: Sequence[_Open]) -> None:
        for entry in entries:
            self._begun.remove(entry)
            entry.sink.abort(entry.transaction)

    def _named_by(self, participants: Iterable[str]) -> list[str]:
        """Names that are not names of `sinks`."""
        return sorted(set(participants) - {sink.name for sink in self.sinks})

    def _opened(self, participants: Iterable[str]) -> Iterator[Sink]:
        for name in self._named_by(participants):
            if self.open_sink is None:
                raise receipt_rejected(f"a task wrote for {shown(name, 60)}, which is no target of this query")
            sink = self.open_sink(name)
            if sink.name != name:
                raise receipt_rejected(
                    f"a task wrote for {shown(name, 60)}, but the name of that target is {sink.name}"
                )
            yield sink


def _opener_of(sinks: Sequence[Sink]) -> OpenSink | None:
    return next((sink.open_named for sink in sinks if sink.open_named is not None), None)


def _log_of(entries: Sequence[_Open]) -> two_phase.PreparedLog:
    log: two_phase.PreparedLog = entries[-1].transaction.prepared_log
    return log


def _partial(run: BatchRun, error: Exception) -> PartialBatch:
    committed, lacking, failed = ", ".join(run.landed), ", ".join(run.missing), run.failed or run.missing[0]
    cause = (
        error
        if isinstance(error, LakesinkError)
        else CommitUnresolved.of("COMMIT_UNRESOLVED.failed", target=failed, error=describe(error))
    )
    partial = PartialBatch.of(
        "PARTIAL_BATCH",
        failed=failed,
        code=cause.code,
        committed=committed,
        lacking=lacking,
        lack="may lack it" if isinstance(cause, CommitUnresolved) else "did not",
        what=cause.what,
        action=cause.action,
    )
    partial.landed = tuple(run.landed)
    return partial
