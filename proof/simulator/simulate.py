"""One seed: a world is drawn, runs into its faults, calms down, and is judged."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any

from pyiceberg.table import Table

from proof.oracle import Broken, Promise, Rows, facts_of, files_whole, rows_once, untouched
from proof.simulator.catalog import SimulatedCatalog, SimulatedServer, Version
from proof.simulator.dead_letters import DeadLetters
from proof.simulator.dead_letters import name_of as name_of_letters
from proof.simulator.drivers import LETTERS_DIFFER, Stream
from proof.simulator.engines import Engine
from proof.simulator.keyed_engine import KeyedEngine
from proof.simulator.keyed_files import rows_in_file
from proof.simulator.keyed_truth import KeyedTruth
from proof.simulator.operator import Operator
from proof.simulator.pace import remember, remembering
from proof.simulator.pools import pooling_in
from proof.simulator.readers import Reader
from proof.simulator.replays import assigning_with
from proof.simulator.scenario import Scenario, draw
from proof.simulator.searching import searching_in_memory
from proof.simulator.spark import SimulatedCheckpoint, Source, keys
from proof.simulator.store import SimulatedIO, SimulatedStore
from proof.simulator.truth import Truth, name_of
from proof.simulator.uploads import writing_into
from proof.simulator.world import World
from testkit.builders import offered

MENDINGS = 8
"""How often an operator follows what a refusal says before the run counts as one that does not end."""
remember()


@dataclass(frozen=True, slots=True)
class Report:
    """What one seed came to.

    Attributes:
        seed: The seed.
        broken: Broken promises; empty if all was well.
        story: What happened, a line each.
        faults: Injected faults by kind.
        done: What others and the operator did, by kind.
        outcomes: What became of batches and runs, by kind.
        changes: What became of changes of rows by key.
        batches: Own batches under the head at the end.
        rows: Own rows that had to be there.
        lost: Rows of them that were not.
        doubled: Rows that were there too often.
        letters: Rows of them that were put aside.
        evolutions: Commits of batches that changed the schema.
        unknown: Commits whose answer said nothing.
        unknown_landed: How many of them were carried out all the same, or later.
        orphans: Files that nothing refers to, at the end.
        steps: Steps of the scheduler.
    """

    seed: int
    broken: tuple[Broken, ...]
    story: tuple[str, ...]
    faults: Counter[str]
    done: Counter[str]
    outcomes: Counter[str]
    changes: Counter[str]
    batches: int
    rows: int
    lost: int
    doubled: int
    letters: int
    evolutions: int
    unknown: int
    unknown_landed: int
    orphans: int
    steps: int

    def without_story(self) -> "Report":
        """The figures alone."""
        return replace(self, story=())

    def to_json(self) -> dict[str, Any]:
        """JSON-able form."""
        return {part.name: getattr(self, part.name) for part in fields(self)} | {"broken": [*map(str, self.broken)]}


def simulate(seed: int, drawn: Callable[[Random], Scenario] = draw) -> Report:
    """Run one seed. The same seed gives the same story, as long as neither lakesink nor the simulator changes.

    Args:
        seed: All chance comes from it.
        drawn: Draws the scenario.
    """
    world = World(seed)
    scenario = drawn(world.random)
    try:
        with searching_in_memory(), pooling_in(world), remembering():
            play = Play.of(world, scenario)
            with writing_into(play.server.store), assigning_with(play.stream.effects):
                return play.report()
    except Exception as error:
        raise AssertionError(f"the simulator itself fails on seed {seed}") from error
    finally:
        world.over = True
        for actor in world.everybody:
            actor.discard()


@dataclass(eq=False)
class Play:
    """All that a seed sets up."""

    world: World
    truth: Truth
    server: SimulatedServer
    stream: Stream
    engine: Engine
    operator: Operator
    reader: Reader

    @classmethod
    def of(cls, world: World, scenario: Scenario) -> "Play":
        """Set the stage."""
        store = SimulatedStore(world)
        truth = _truth_of(store, scenario)
        server = SimulatedServer(store, applied=truth.note)
        store.referenced = truth.refers_to
        source = Source(scenario.end, scenario.most)
        checkpoint = SimulatedCheckpoint.new(world, (0,) * len(scenario.end))
        stream = Stream(
            server, truth, checkpoint, source, scenario.evolves, scenario.content, maintenance=scenario.maintenance
        )
        stream.create_table()
        reader = Reader.of(stream)
        _set_traps(stream, reader)
        engine = _engine_of(server, truth)
        engine.fork()
        world.chances = scenario.chances
        operator = Operator(stream, engine, scenario.actions)
        stream.located = operator.act_between
        return cls(world, truth, server, stream, engine, operator, reader)

    def report(self) -> Report:
        """Run and judge."""
        self.stream.start()
        self.world.start("others", self.operator.act)
        ends = self.world.run()
        self.world.calm = True
        self.world.tell("all is calm from here")
        ends = ends and self._settle() and self._replay()
        broken = [*self.truth.broken, *self.truth.letters.broken]
        if not ends:
            broken.append(Broken(Promise.THE_RUN_ENDS, f"still at it, or refused: {self._refused()}"))
        table, found = self._table(), self.truth.rows(self.truth.newest.version.metadata, self.truth.branch)
        source = keys((0,) * len(self.stream.source.end), self.stream.source.end)
        expected, foreign = self.truth.expected_at_end(source)
        aside = self._aside()
        if ends:
            broken += [*self.truth.judge_end(source), *rows_once(found + aside, expected + foreign)]
        for at in (table, *self._letters_table()):
            broken += files_whole(facts_of(at, self.stream.sink_id, self.truth.branch), self._stored)
        broken += self._judge_letters()
        if ends:
            self.reader.settle()
        broken += self.reader.broken
        broken += untouched(self.server.store.touched, lambda _: True)
        reachable = self.truth.all_reachable()
        return Report(
            seed=self.world.seed,
            broken=tuple(dict.fromkeys(broken)),
            story=tuple(self.world.story),
            faults=self.world.faults,
            done=self.operator.done + self.engine.done + self.reader.done,
            outcomes=self.stream.outcomes,
            changes=self.truth.counts,
            batches=len(self.truth.newest.batches),
            rows=sum(expected.values()),
            lost=sum((expected - found - aside).values()) if ends else 0,
            doubled=sum((found + aside - expected - foreign).values()),
            letters=aside.total(),
            evolutions=self.truth.evolutions,
            unknown=len(self.stream.unknown),
            unknown_landed=sum(map(self.truth.was_there, self.stream.unknown)),
            orphans=sum(path.endswith(".parquet") and path not in reachable for path in self.server.store.files),
            steps=self.world.steps,
        )

    def _settle(self) -> bool:
        """No more faults: the stream runs to its end, its operator doing what each refusal says."""
        options: dict[str, Any] = {}
        source = self.stream.source
        self.stream.source = replace(source, end=tuple(last + 1 for last in source.end))  # else nobody asks again
        for _ in range(MENDINGS):
            self.stream.restarts = 0
            self.stream.start(**options)
            if not self.world.run():
                return False
            if self.stream.finished:
                return True
            if self.stream.letters_differ is not None:
                self.operator.mend_letters(self.stream.letters_differ)
            elif self.stream.refused is None:
                return False
            else:
                options = self.operator.mend(self.stream.refused)
        return False

    def _replay(self) -> bool:
        """All letters of changes are replayed at last, or it is right that they are not."""
        if not self.stream.content.has_features or self.truth.letters.newest is None:
            return True
        accept = ""
        for _ in range(MENDINGS):
            replay = self.operator.replay(accept)
            if not self.world.run():
                return False
            if replay.refused is None:
                return replay.done
            accept = offered(replay.refused)["commit"]  # expiry hides whether an older replay of this number is there
        return False

    def _refused(self) -> str:
        return str(self.stream.refused or (self.stream.letters_differ and LETTERS_DIFFER))

    def _aside(self) -> Rows:
        """Rows of batches in the table that were dead letters when these landed."""
        return sum((landed.aside for landed in self.truth.newest.path), Counter())

    def _judge_letters(self) -> list[Broken]:
        letters, broken = self.truth.letters, []
        for landed in self.truth.newest.path:
            if landed.asked is not None:
                name = name_of_letters(landed.sink, self.truth.branch, name_of(landed.asked))
                broken += letters.judge_end(name, landed.aside)
        return broken

    def _letters_table(self) -> list[Table]:
        found = self.truth.letters.newest
        return [] if found is None else [self._table_of(self.stream.letters, found)]

    def _stored(self, path: str) -> tuple[int, int] | None:
        stored = self.server.store.files.get(path)
        if stored is None:
            return None
        content = stored.read()
        return len(content), rows_in_file(content) if stored.rows is None else stored.rows.total()

    def _table(self) -> Table:
        return self._table_of(self.server, self.truth.newest.version)

    def _table_of(self, server: SimulatedServer, version: Version) -> Table:
        io = SimulatedIO(self.server.store, quiet=True)
        return Table(server.name, version.metadata, version.location, io, SimulatedCatalog(self.server))


def _truth_of(store: SimulatedStore, scenario: Scenario) -> Truth:
    if scenario.content.changing is None:
        return Truth(store, DeadLetters(store), scenario.branch)
    return KeyedTruth(store, DeadLetters(store), scenario.branch, content=scenario.content)


def _engine_of(server: SimulatedServer, truth: Truth) -> Engine:
    return KeyedEngine(server, truth, deeds=truth.deeds) if isinstance(truth, KeyedTruth) else Engine(server, truth)


def _set_traps(stream: Stream, reader: Reader) -> None:
    """Who commits dead letters, or a schema, may be killed on the spot; the reader sees each state of the table."""
    truth = stream.truth

    def letters(version: Version) -> None:
        known = len(truth.letters.path())
        truth.letters.note(version)
        if len(truth.letters.path()) > known:
            stream.spring("letters")

    def events(version: Version) -> None:
        known = truth.evolutions
        truth.note(version)
        if truth.evolutions > known:
            stream.spring("schema")
        reader.look()

    stream.server.applied, stream.letters.applied = events, letters
    truth.beside.log.applied = lambda version: stream.spring("changelog") if version.metadata.snapshots else None
