"""A process that replays the dead letters of a stream of changes: the shipped loop, and a repair that is right."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from pyiceberg.table import Table

from lakesink.settings.relations import Entry
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.change_plan import stored_columns
from lakesink.sinks.iceberg.iceberg_sink import BeforeCommit, IcebergSink
from lakesink.sinks.iceberg.side import replays
from lakesink.sinks.iceberg.side.replay_loop import Repaired, ReplayLoop
from lakesink_catalog.commit.effects import Effects
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.errors import BatchRefused, LakesinkError, Reason
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.outcome import Outcome
from lakesink_protocol.two_phase import TaskWriter, receipts_of
from lakesink_protocol.votes import Vote, Votes
from proof.oracle import Broken, Key, Promise
from proof.simulator.beside import LETTERS
from proof.simulator.catalog import EVENTS, SimulatedCatalog
from proof.simulator.drivers import OF_ROWS, Stream
from proof.simulator.keyed_truth import KeyedTruth
from proof.simulator.spark import JobFailed
from proof.simulator.tasks import SimulatedSink, Tasks

ABSENT = "LAKESINK_KEYS_ABSENT"


@dataclass(eq=False)
class Replay:
    """One run of the loop.

    Attributes:
        done: True once it has come to its end, or to a refusal that is right.
        accept: A word that overrules the refusal of an earlier run.
        refused: The refusal of a replay that was rolled back; None if the run ended otherwise.
    """

    stream: Stream
    truth: KeyedTruth
    accept: str = ""
    done: bool = False
    refused: BatchRefused | None = None
    _given: list[Key] = field(default_factory=list)

    def run(self) -> None:
        """Replay all letters."""
        stream, client = self.stream, self.stream.client()
        given = self.stream.content.of_replays | {"branch": self.truth.branch}
        given |= {"accept": self.accept} if self.accept else {}
        settings = Settings.parse(given, entry=Entry.REPLAY)
        table, letters = map(".".join, (EVENTS, LETTERS))
        append = partial(self._append, client)
        try:
            done = ReplayLoop(table, letters, settings, lambda: client, client, self._repair, append).run()
        except (LakesinkError, JobFailed, OSError) as error:
            code = getattr(error, "code", type(error).__name__)
            stream.outcomes[f"replay: {code}"] += 1
            stream.world.tell(f"ends: {code}")
            self._judge(error, client)
            return
        self.done = True
        stream.outcomes["replay done"] += 1
        stream.world.tell(f"replays {done.letters} letters in {done.replays} replays")
        if stream.world.calm:
            self.truth.broken += self.truth.judge_replays()

    def _judge(self, error: Exception, client: SimulatedCatalog) -> None:
        """Absent keys are a refusal that is right or wrong; other errors are right as long as something ails."""
        code = getattr(error, "code", "")
        if code == ABSENT and client.seen is not None:
            self.done = self.truth.is_absent(self.truth.states[client.seen.location], self._given)
            if not self.done or self.stream.content.on_absent != "fail":
                self._broken(Promise.REFUSALS_ARE_RIGHT, f"no key of {self._given} is absent")
        elif isinstance(error, BatchRefused) and error.reason is Reason.ROLLED_BACK and self.truth.undid_replays:
            self.refused = error
        elif self.stream.world.calm or code in OF_ROWS:
            self._broken(Promise.REFUSALS_ARE_RIGHT, f"a replay stopped with {error}")

    def _repair(self, letters: pa.Table, table: Table) -> Repaired:  # noqa: ARG002 - the shipped loop gives it
        """All letters, in the order of the source."""
        columns = (letters[name].to_pylist() for name in ("partition", "offset", "letter_id"))
        found = sorted(zip(*columns, strict=True))
        self._given = [(partition, offset) for partition, offset, _ in found]
        return Repaired([letter for *_, letter in found], self.stream.content.repaired(self._given))

    def _append(
        self,
        client: SimulatedCatalog,
        rows: pa.Table,
        table: str,
        key: SinkKey,
        batch: Batch,
        settings: Settings,
        before_commit: BeforeCommit,
    ) -> Outcome:
        sink = SimulatedSink(
            tasks=Tasks(self.stream.server.store, self.stream.content),
            table=table,
            key=key,
            open_catalog=lambda: client,
            settings=settings,
            schema=stored_columns(rows.schema, settings, case_sensitive=False),
            effects=self.stream.effects,
            before_commit=before_commit,
        )

        def write(writers: Mapping[str, TaskWriter]) -> Votes:
            [(name, writer)] = writers.items()
            return Votes(1, [Vote(0, receipts_of(name, writer, writer.write(0, iter(rows.to_batches()))))])

        return run_batch(batch, [sink], write)[sink.name]

    def _broken(self, promise: Promise, what: str) -> None:
        self.truth.broken.append(Broken(promise, what))


@contextmanager
def assigning_with(effects: Effects) -> Iterator[None]:
    """Inside, letters are assigned to replays with this clock and chance."""
    with_effects = partial(IcebergSink, effects=effects)
    replays.IcebergSink = with_effects  # type: ignore[attr-defined, assignment] # it is only called
    try:
        yield
    finally:
        replays.IcebergSink = IcebergSink  # type: ignore[attr-defined]
