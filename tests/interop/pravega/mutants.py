"""The sink of Pravega, broken in one way each: what is easily got wrong with its transactions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pravega_controller import State
from pravega_ledger import Elected, Fate, Held
from pravega_segments import ANY_VERSION
from pravega_sink import Open, PravegaSink, Prepared

from lakesink import AlreadyCommitted, Committed, Outcome
from lakesink.two_phase import Payload
from lakesink_tools.testing.checks.base import OTHER
from lakesink_tools.testing.points import Phase


class CommitsWithoutAnElection(PravegaSink):
    """Asks the ledger first, commits its own transaction, and writes the ledger afterwards."""

    def commit(self, transaction: Open, prepared: Prepared) -> Outcome | None:
        held = self._ledger.read()
        if self._has(transaction.batch, held.newest):
            return AlreadyCommitted(None)
        own = Elected.of(transaction.batch, prepared.transaction)
        if self._ended(own.transaction) is not State.COMMITTED:
            return None
        self._ledger.swap(held, replace(own, fate=Fate.LANDED))
        return Committed(transaction.batch.batch_id, prepared.rows, recovered=prepared.recovered)


class ElectsWhateverTheVersion(PravegaSink):
    """Its swap asserts nothing: two drivers elect two transactions."""

    def commit(self, transaction: Open, prepared: Prepared) -> Outcome | None:
        held = self._ledger.read()
        if not self._has(transaction.batch, held.newest):
            blind = Held(held.born, held.newest, ANY_VERSION)
            self._ledger.swap(blind, Elected.of(transaction.batch, prepared.transaction))
        return super().commit(transaction, prepared)


class CommitsItsOwnThoughAnotherIsElected(PravegaSink):
    def _ended(self, transaction: int) -> State:  # noqa: ARG002 - that is what is wrong
        return super()._ended(self.own)

    def commit(self, transaction: Open, prepared: Prepared) -> Outcome | None:
        self.own = prepared.transaction
        return super().commit(transaction, prepared)


class TakesTheAnswerForTheEnd(PravegaSink):
    """Asks for the commit, and does not look at what came of it."""

    def _ended(self, transaction: int) -> State:
        self._controller.commit(transaction)
        return State.COMMITTED


class TakesAbortedForSuccess(PravegaSink):
    def _ended(self, transaction: int) -> State:
        state = super()._ended(transaction)
        return State.COMMITTED if state is State.ABORTED else state


class TakesForgottenForSuccess(PravegaSink):
    def _has(self, batch: Any, newest: Elected | None) -> bool:
        return newest is not None and newest.batch_id == batch.batch_id

    def _ended(self, transaction: int) -> State:  # noqa: ARG002 - that is what is wrong
        return State.COMMITTED


class BelievesThatAnOpenTransactionIsWhole(PravegaSink):
    def recover(self, transaction: Open, payload: Payload) -> Prepared | None:  # noqa: ARG002 - that is what is wrong
        return Prepared.parsed(payload)


class ForgetsTheLedger(PravegaSink):
    def _landed(self, held: Held, elected: Elected, batch: Any) -> bool:
        landed = super()._landed(held, elected, batch)
        now = self._ledger.read()
        if landed and held.newest is not None:
            self._ledger.swap(now, replace(elected, batch_id=elected.batch_id - 1))
        return landed


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken sink, and a check of the suite that sees it."""

    sink: type[PravegaSink]
    check: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


RIVAL, PHASE = "test_a_rival_commits_before_every_step", {"phase": Phase.COMMIT}

MUTANTS = (
    Mutant(CommitsWithoutAnElection, RIVAL, PHASE),
    Mutant(ElectsWhateverTheVersion, RIVAL, PHASE),
    Mutant(CommitsItsOwnThoughAnotherIsElected, RIVAL, PHASE),
    Mutant(TakesTheAnswerForTheEnd, "test_readers_see_a_batch_after_its_commit_and_not_before"),
    Mutant(BelievesThatAnOpenTransactionIsWhole, "test_the_record_of_another_batch_is_not_believed"),
    Mutant(ForgetsTheLedger, "test_a_replayed_batch_is_neither_written_nor_committed", {"batches": 1, "by": OTHER}),
)
