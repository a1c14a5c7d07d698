"""The votes of a batch's tasks, and the check that they are complete. Pure.

A vote is an envelope: the coordinator counts and compares votes without opening a receipt. Only the sink opens it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakesink_protocol.errors import WriteError
from lakesink_protocol.redact import shown
from lakesink_protocol.two_phase import RoutingWriter, TaskWriter

_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class Vote:
    """The result of one task.

    Attributes:
        task: Index of the task's partition in the job, from 0.
        receipts: Encoded receipts by participant.
        version: Version of lakesink in the task's process.
    """

    task: int
    receipts: Mapping[str, bytes]
    version: str = ""


@dataclass(frozen=True, slots=True)
class Votes:
    """The result of one job over a batch's rows.

    Attributes:
        planned_tasks: Number of tasks that the job had.
        cast: The votes that arrived, in any order.
        version: The driver's version of lakesink; every task must have the same.
    """

    planned_tasks: int
    cast: Sequence[Vote]
    version: str = ""

    @classmethod
    def in_order(cls, receipts: Mapping[str, Sequence[bytes]]) -> "Votes":
        """The votes of a job of this process, from the receipts of each participant in the order of the tasks."""
        tasks = max(map(len, receipts.values()), default=0)
        named = {name: dict(enumerate(found)) for name, found in receipts.items()}
        cast = [
            Vote(task, {name: found[task] for name, found in named.items() if task in found}) for task in range(tasks)
        ]
        return cls(tasks, cast)

    @property
    def participants(self) -> frozenset[str]:
        """Names of all participants for which a task has a receipt."""
        return frozenset(name for vote in self.cast for name in vote.receipts)

    def receipts(self, participant: str) -> list[bytes]:
        """One participant's receipts, in the order of the tasks."""
        ordered = sorted(self.cast, key=lambda vote: vote.task)
        return [vote.receipts[participant] for vote in ordered if participant in vote.receipts]

    def with_one_more(self, receipts: Mapping[str, bytes]) -> "Votes":
        """These votes, and those of one more task that ran in this process."""
        more = Vote(self.planned_tasks, receipts, self.version)
        return Votes(self.planned_tasks + 1, [*self.cast, more], self.version)

    def check(self, participants: Iterable[str]) -> None:
        """Raise WriteError unless every planned task voted once, for every participant, with the driver's lakesink."""
        if sorted(vote.task for vote in self.cast) != list(range(self.planned_tasks)):
            tasks = len({vote.task for vote in self.cast})
            planned, arrived = self.planned_tasks, len(self.cast)
            raise WriteError.of("VOTES_INCOMPLETE", planned=planned, arrived=arrived, tasks=tasks)
        for vote in self.cast:
            if vote.version != self.version:
                theirs = shown(vote.version, 20)
                raise receipt_rejected(f"a task ran lakesink {theirs}, the driver runs {self.version}")
        for name in participants:
            silent = sum(name not in vote.receipts for vote in self.cast)
            if silent:
                raise WriteError.of("VOTES_INCOMPLETE.of_one", silent=silent, planned=self.planned_tasks, name=name)


def receipts_of(name: str, writer: TaskWriter, written: bytes) -> Mapping[str, bytes]:
    """The receipts by participant in what a task's writer returned; `name` is the writer's own participant."""
    return writer.receipts(name, written) if isinstance(writer, RoutingWriter) else {name: written}


def together(receipts: Iterable[bytes]) -> bytes:
    """Receipts of one task as one text: each after its length."""
    return b"".join(len(receipt).to_bytes(_LENGTH_BYTES) + receipt for receipt in receipts)


def apart(written: bytes, count: int) -> list[bytes]:
    """So many receipts that are `together`; raises WriteError for another number."""
    found, end = [], 0
    while end < len(written):
        start = end + _LENGTH_BYTES
        end = start + int.from_bytes(written[end:start])
        found.append(written[start:end])
    if len(found) != count or end != len(written):
        raise receipt_rejected("a task sent another number of receipts than it was asked for")
    return found


def check_tasks(tasks: Iterable[int]) -> None:
    """Raise WriteError unless the opened receipts have the tasks 0, 1, 2, ..., each once, in any order.

    `Votes.check` counts envelopes only. An envelope with the receipt of another task would hide a missing receipt.
    """
    found = sorted(tasks)
    if found != list(range(len(found))):
        raise receipt_rejected("there is not exactly one receipt of every task")


def receipt_rejected(why: str) -> WriteError:
    """The error for a receipt that its sink rejects."""
    return WriteError.of("RECEIPT_REJECTED", why=why)
