"""Participants of a batch in memory, the record of what they prepared, and the job that writes for them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.identity import Batch, stream_batch
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.two_phase import Durability, Payload, TaskWriter, TwoPhaseCommitSink
from lakesink_protocol.votes import Votes

BATCH = stream_batch(4, "q", start=[4], end=[5])
Step = BaseException | None


@dataclass(frozen=True)
class Rows:
    """Writes one task's rows into its receipt."""

    name: str

    def write(self, task: int, batches: Iterator[Any]) -> bytes:
        return f"{self.name}/{task}/{sum(batches)}".encode()


@dataclass(frozen=True)
class Open:
    writer: Rows | None
    prepared_log: "Log"


@dataclass(frozen=True)
class Ready:
    payload: Payload
    recovered: bool = False


@dataclass(eq=False)
class Shelf(TwoPhaseCommitSink[Open, Ready]):
    """A sink in memory: a batch is visible once it is on the shelf. It tells each call, and fails where it is told to.

    Attributes:
        fails: What a method raises, taken from the front, one a call.
        moved_on: How many commits find that the history moved, so that the batch must be written again.
    """

    name: str
    story: list[str]
    log: "Log"
    durability: Durability = Durability.PREPARED_SURVIVES
    adds_rows: bool = True
    usable: bool = True
    moved_on: int = 0
    fails: dict[str, list[Step]] = field(default_factory=dict)
    shelf: dict[int, Payload] = field(default_factory=dict)

    def begin(self, batch: Batch) -> Open | AlreadyCommitted:
        self._tell("begin")
        if batch.batch_id in self.shelf:
            return AlreadyCommitted(batch.batch_id)
        return Open(Rows(self.name) if self.adds_rows else None, self.log)

    def recover(self, transaction: Open, payload: Payload) -> Ready | None:  # noqa: ARG002 - the seam's
        self._tell("recover")
        return Ready(payload, recovered=True) if self.usable else None

    def pre_commit(self, transaction: Open, receipts: Sequence[bytes]) -> Ready:  # noqa: ARG002 - the seam's
        self._tell("pre_commit")
        return Ready({"receipts": [receipt.decode() for receipt in receipts]})

    def commit(self, transaction: Open, prepared: Ready) -> Outcome | None:  # noqa: ARG002 - the seam's
        self._tell("commit")
        if self.moved_on:
            self.moved_on -= 1
            self.usable = False
            return None
        self.shelf[BATCH.batch_id] = prepared.payload
        return Committed(
            1, len(prepared.payload["receipts"]), 1, 1, recovered=prepared.recovered, accepted=None, attempts=1
        )

    def abort(self, transaction: Open) -> None:  # noqa: ARG002 - the seam's
        self._tell("abort")

    def _tell(self, method: str) -> None:
        self.story.append(f"{self.name}.{method}")
        planned = self.fails.get(method)
        error = planned.pop(0) if planned else None
        if error is not None:
            raise error


@dataclass
class Log:
    """Prepared records in memory."""

    story: list[str]
    records: dict[int, Mapping[str, Payload]] = field(default_factory=dict)
    error: Exception | None = None

    def find(self, batch: Batch) -> Mapping[str, Payload] | None:
        self.story.append("find")
        return self.records.get(batch.batch_id)

    def put(self, batch: Batch, payloads: Mapping[str, Payload]) -> None:
        self.story.append("put")
        if self.error:
            raise self.error
        self.records[batch.batch_id] = payloads

    def landed(self, batch: Batch) -> None:  # noqa: ARG002 - the seam's
        self.story.append("landed")


@dataclass
class World:
    """Participants, log and job of one driver after another."""

    story: list[str] = field(default_factory=list)
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.log = Log(self.story)
        self.a = Shelf("a", self.story, self.log)
        self.b = Shelf("b", self.story, self.log)

    def write(self, writers: Mapping[str, TaskWriter]) -> Votes:
        self.story.append(f"write {'+'.join(writers)}")
        if self.error:
            raise self.error
        return Votes.in_order(
            {name: [writer.write(task, iter([1, 2])) for task in range(2)] for name, writer in writers.items()}
        )

    def run(self, *sinks: Shelf) -> dict[str, Outcome]:
        self.story.clear()
        return run_batch(BATCH, sinks or (self.a, self.b), self.write)

    def told(self, word: str) -> int:
        return sum(word in line for line in self.story)
