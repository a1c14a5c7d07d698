"""Drivers of one stream: processes that start, die, and are started again, with the real sink in each."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField

from lakesink.settings.settings import Settings
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.prepared import SNAPSHOT_IDS
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol.errors import (
    BatchRefused,
    CatalogError,
    CommitUnresolved,
    PartialBatch,
    QueryError,
    Reason,
    WriteError,
)
from lakesink_protocol.events import ChangesLocated, Event
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.outcome import AlreadyCommitted, Outcome
from proof.content import COLUMNS, NEW_COLUMNS, PLAIN, SIZE, Content
from proof.keyed_table import BY_ZONE, SIZED
from proof.keyed_table import SCHEMA as OF_CHANGES
from proof.oracle import Broken, Promise
from proof.simulator.catalog import LOCATION, TABLE_PROPERTIES, SimulatedCatalog, SimulatedServer
from proof.simulator.dead_letters import name_of as name_of_letters
from proof.simulator.keyed_tasks import KeyedTasks
from proof.simulator.spark import Asked, ConcurrentQuery, JobFailed, SimulatedCheckpoint, SimulatedQuery, Source
from proof.simulator.tasks import SimulatedSink, Tasks
from proof.simulator.truth import Truth, name_of
from proof.simulator.turns import SimulatedTurns
from proof.simulator.world import Actor, World

SCHEMA = Schema(*(NestedField(number, name, LongType()) for number, name in enumerate(COLUMNS, 1)))
OF_DOCUMENTS = Schema(*SCHEMA.fields, NestedField(3, SIZE, IntegerType()))
AILING = (CommitUnresolved, CatalogError, WriteError, PartialBatch, JobFailed, OSError)
OF_ROWS = {
    f"LAKESINK_{code}"
    for code in (
        *("SCHEMA_MISMATCH", "VALUE_MALFORMED", "EXPECTATION_UNMET", "DEAD_LETTERS_TOO_MANY", "OPERATION_UNKNOWN"),
        *("KEY_MISSING", "KEY_NULL", "SEQUENCE_NULL", "SEQUENCE_TIED", "REPAIR_INVALID"),
    )
}
"""Codes that blame the rows. No row of documents with changes deserves one, also while services fail."""
LETTERS_DIFFER, LOG_DIFFERS = "LAKESINK_DEAD_LETTERS_DIFFER", "LAKESINK_CHANGELOG_DIFFERS"
LEFT_BEHIND = "never got"
"""In the words of that error, if another query has left letters of a batch that the table lacks."""


@dataclass(eq=False)
class Stream:
    """One stream and all runs of it.

    Attributes:
        server: The catalog.
        truth: Told what queries ask for, and asked whether what they are told is right.
        checkpoint: The present checkpoint.
        source: What is read.
        evolves: True if each driver brings columns of its own.
        content: What the rows are for drivers that start from now on.
        maintenance: The option of queries that change rows by key.
        splits: How many rows were put aside, of how many, by every driver so far.
        trap: Kills the driver at the next commit of dead letters, or of a schema; empty for neither.
        content_after_trap: What the rows are for drivers that start after that; None if they stay what they were.
        sink_id: The present sink id.
        restarts: How often its supervisor still starts a driver that died.
        outcomes: What became of batches, by kind; errors by code.
        refused: The refusal that the newest run ended with; None if it ended otherwise.
        letters_differ: The batch whose letters differ from those in their table, if the newest run ended with that.
        advice: What that error says is to be done.
        finished: True if the newest run came to the end of the source.
        unknown: Snapshots of requests whose answer said nothing.
        located: Called by a driver that has located the rows to remove, right before it commits.
    """

    server: SimulatedServer
    truth: Truth
    checkpoint: SimulatedCheckpoint
    source: Source
    evolves: bool = False
    content: Content = PLAIN
    maintenance: Mapping[str, Any] | bool = field(default_factory=dict)
    splits: list[Content] = field(default_factory=list)
    trap: str = ""
    content_after_trap: Content | None = None
    sink_id: str = "events"
    restarts: int = 6
    outcomes: Counter[str] = field(default_factory=Counter)
    refused: BatchRefused | None = None
    letters_differ: Asked | None = None
    advice: str = ""
    finished: bool = False
    unknown: list[int] = field(default_factory=list)
    located: Callable[[], None] = field(default=lambda: None)
    running: list[Actor] = field(default_factory=list)
    _started: int = 0

    def __post_init__(self) -> None:
        self.turns = SimulatedTurns(self.world, self.outcomes)

    @property
    def letters(self) -> SimulatedServer:
        """The catalog of the table of dead letters."""
        return self.truth.beside.letters

    def client(self) -> SimulatedCatalog:
        """What a process holds of the catalog."""
        beside = self.truth.beside
        return SimulatedCatalog(self.server, beside.letters, beside.log, beside.replays)

    @property
    def world(self) -> World:
        """Clock, chance and scheduler."""
        return self.server.store.world

    def create_table(self) -> None:
        """Create the table, or replace it by another one of the same name."""
        self.server.create(schema_of(self.content), TABLE_PROPERTIES, LOCATION, spec_of(self.content))

    def start(self, wait_ms: int = 0, **options: Any) -> Actor:
        """Start a driver process."""
        checkpoint = self.checkpoint
        return self.run_as("driver", lambda: self._drive(checkpoint, options), wait_ms)

    def run_as(self, name: str, run: Callable[[], None], wait_ms: int = 0) -> Actor:
        """Start a process, which may be killed."""
        self._started += 1
        actor = self.world.start(f"{name} {self._started}", run)
        actor.wakes_at_ms += wait_ms
        self.running = [running for running in self.running if running.alive] + [actor]
        return actor

    def kill(self, actor: Actor) -> None:
        """SIGKILL: it does nothing more, not even clean up."""
        actor.killed = True
        self.outcomes["killed"] += 1

    def spring(self, trap: str) -> None:
        """Somebody has committed what a trap is set for."""
        actor = self.world.current
        if self.trap == trap and actor in self.running:
            self.trap = ""
            self.outcomes[f"killed at the commit of {trap}"] += 1
            if self.content_after_trap is None:
                self.kill(actor)
            else:  # two drivers with other options at a time are a known limit: who changes options stops all drivers
                self.content, self.content_after_trap = self.content_after_trap, None
                self.kill_all()
            self.start(self.world.random.randrange(1000))

    def kill_all(self) -> None:
        """Stop the stream the hard way."""
        for actor in self.running:
            if actor.alive:
                self.kill(actor)

    def _drive(self, checkpoint: SimulatedCheckpoint, options: Mapping[str, Any]) -> None:
        client = self.client()
        query = SimulatedQuery(checkpoint, self.source, self._sink(client, options), self.server.store, self.truth.ask)
        self.refused, self.letters_differ, self.finished = None, None, False
        ended = self._run(query, client)
        self.unknown += client.unknown
        self.world.tell(f"ends: {ended}")
        if ended == "finished":
            self.finished = checkpoint is self.checkpoint
        elif ended != "concurrent" and self.restarts > 0:
            is_refused = self.refused or self.letters_differ
            self.restarts -= 3 if is_refused else 1  # the same refusal each time tells nothing new
            self.start(self.world.random.randrange(2000), **options)

    def _run(self, query: SimulatedQuery, client: SimulatedCatalog) -> str:
        try:
            for outcome in query.run():
                self._judge_outcome(query, client, outcome)
        except ConcurrentQuery:
            return "concurrent"
        except BatchRefused as error:
            self._judge_refusal(query, client, error)
            return error.code
        except Exception as error:  # noqa: BLE001 - whatever the product raises is judged
            self._judge_error(error, query, client)
            return getattr(error, "code", type(error).__name__)
        return "finished"

    def _judge_outcome(self, query: SimulatedQuery, client: SimulatedCatalog, outcome: Outcome) -> None:
        assert query.asked is not None
        assert client.seen is not None
        batch = query.asked.batch
        if isinstance(outcome, AlreadyCommitted):
            self.outcomes["already committed"] += 1
            self.world.tell(f"batch {batch.batch_id} is in the table")
            seen = self.truth.states[client.seen.location]
            if not self.truth.may_be_skipped(seen, query.asked):
                self._broken(Promise.DECISIONS_ARE_RIGHT, f"skipped {name_of(query.asked)}, which is not there")
            elif not seen.holds(query.asked):
                self.outcomes["skipped, though rolled back: it had changed no row"] += 1
            return
        self.outcomes["recovered" if outcome.recovered else "committed"] += 1
        self.world.tell(f"batch {batch.batch_id} is committed{', recovered' if outcome.recovered else ''}")
        lied = self.world.faults["yes, and nothing done"]
        if outcome.snapshot_id is not None and not self.truth.was_there(outcome.snapshot_id) and not lied:
            self._broken(Promise.DECISIONS_ARE_RIGHT, f"said to have committed batch {batch.batch_id}, and had not")

    def _judge_refusal(self, query: SimulatedQuery, client: SimulatedCatalog, error: BatchRefused) -> None:
        self.refused = error
        self.outcomes[error.code] += 1
        assert query.asked is not None
        assert client.seen is not None
        self.world.tell(f"batch {query.asked.batch.batch_id} is refused: {error.reason.value}")
        if error.what.startswith(".".join(self.truth.beside.log.name)):
            right = error.reason is Reason.REWOUND and self._log_is_ahead(query.asked)
        elif self.is_of_letters(error):
            right = self.truth.letters.refusal_is_right(error.reason, self._letters_name(query.asked))
        else:
            right = self.truth.refusal_is_right(error.reason, query.asked, client.seen)
        if not right:
            self._broken(Promise.REFUSALS_ARE_RIGHT, f"{error.reason.value} for {name_of(query.asked)}")

    def _judge_error(self, error: Exception, query: SimulatedQuery, client: SimulatedCatalog) -> None:
        """What ails a service is no refusal, and is right as long as something does ail it."""
        code = getattr(error, "code", type(error).__name__)
        self.outcomes[code] += 1
        if isinstance(error, QueryError) and query.checkpoint.was_cut:
            return  # under a driver that was thought to be dead
        if code == LETTERS_DIFFER:
            assert query.asked is not None
            self.letters_differ, self.advice = query.asked, str(error)
            if not self._letters_may_differ(query.asked, client):
                self._broken(Promise.REFUSALS_ARE_RIGHT, f"{code} for {name_of(query.asked)}: {error}")
            return
        if code == LOG_DIFFERS and not (query.asked is not None and self._log_is_ahead(query.asked)):
            self._broken(Promise.REFUSALS_ARE_RIGHT, f"{code}, and no driver is ahead: {error}")
            return
        is_of_rows = self.content.has_features and code in OF_ROWS
        if self.world.calm or is_of_rows or not isinstance(error, AILING):
            self._broken(Promise.REFUSALS_ARE_RIGHT, f"stopped with {code}: {error}")

    def is_of_letters(self, error: BatchRefused) -> bool:
        """The table of dead letters refuses, not the stream's own."""
        return error.what.startswith(".".join(self.letters.name))

    def _letters_name(self, asked: Asked) -> tuple[str, int]:
        sink = str(self.truth.newest.version.metadata.table_uuid), self.sink_id
        return name_of_letters(sink, self.truth.branch, name_of(asked))

    def _letters_may_differ(self, asked: Asked, client: SimulatedCatalog) -> bool:
        """In the state of the stream's table that the driver saw last."""
        assert client.seen is not None
        refused = Counter(asked.rows.keys() & self.server.store.refused)
        aside = [Counter(filter(content.is_unfit, asked.rows)) for content in self.splits]
        aside += [one | refused for one in aside]
        seen, name = self.truth.states[client.seen.location], self._letters_name(asked)
        if LEFT_BEHIND in self.advice:
            left = {self._letters_name(one) for one in self.truth.asked.values() if not seen.holds(one)} - {name}
            return any(left & state.keys() for state in self.truth.letters.states)
        return self.truth.letters.may_differ(name, aside, is_open=not seen.holds(asked))

    def _log_is_ahead(self, asked: Asked) -> bool:
        """The changelog has changes of a later batch."""
        return any(row["_batch_id"] > asked.batch.batch_id for row in self.truth.beside.rows(self.truth.beside.log))

    def _watch(self, event: Event) -> None:
        if isinstance(event, ChangesLocated):
            self.located()

    def _broken(self, promise: Promise, what: str) -> None:
        self.truth.broken.append(Broken(promise, what))

    def _sink(self, client: SimulatedCatalog, options: Mapping[str, Any]) -> SimulatedSink:
        world, content, branch = self.world, self.content, self.truth.branch
        settings = {"sink_id": self.sink_id, "checkpoint": "/simulated", "branch": branch, **content.options, **options}
        if content.changing is not None:
            settings["maintenance"] = self.maintenance
        schema = content.schema
        self.splits.append(content)
        if self.evolves:
            new = [name for name in NEW_COLUMNS if world.random.random() < 0.5]
            schema = pa.schema([*schema, *((name, pa.int64()) for name in new)])
            settings["schema_evolution"] = "widen"
        sink = SimulatedSink(
            tasks=(Tasks if content.changing is None else KeyedTasks)(self.server.store, content),
            table=".".join(self.server.name),
            key=SinkKey(self.sink_id, branch),
            open_catalog=lambda: client,
            settings=Settings.parse(settings),
            schema=schema,
            effects=self.effects,
        )
        sink.can_write_again = not content.has_features or content.salt % 3 > 0
        return sink

    @property
    def effects(self) -> Effects:
        """Clock, chance and network of a process in this world."""
        world = self.world
        return Effects(
            now_ms=lambda: world.now_ms,
            monotonic_ms=lambda: world.now_ms,
            sleep_ms=world.sleep,
            jitter=world.random.random,
            new_snapshot_id=lambda: world.random.choice(SNAPSHOT_IDS),
            at_once=map,
            beside=map,
            turn=self.turns.at,
            emit=LISTENERS.also(self._watch),
        )


def schema_of(content: Content) -> Schema:
    """Of a table for these rows before anybody changes it."""
    if content.changing is not None:
        return SIZED if content.has_features else OF_CHANGES
    return OF_DOCUMENTS if content.follows else SCHEMA


def spec_of(content: Content) -> PartitionSpec:
    """How a table for these rows is partitioned before anybody changes it."""
    by_zone = content.changing is not None and content.changing.salt % 2
    return BY_ZONE if by_zone else UNPARTITIONED_PARTITION_SPEC
