"""One seed: a world is drawn, runs into its faults, calms down, and is judged."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from pyiceberg.table import Table

from proof.oracle import Broken, Promise, facts_of, files_whole, rows_once, untouched
from proof.simulator.catalog import LOCATION, SimulatedCatalog, SimulatedServer
from proof.simulator.drivers import SCHEMA, Stream
from proof.simulator.engines import TABLE_PROPERTIES, Engine
from proof.simulator.operator import Operator
from proof.simulator.pace import remember
from proof.simulator.scenario import Scenario, draw
from proof.simulator.spark import SimulatedCheckpoint, Source, keys
from proof.simulator.store import SimulatedIO, SimulatedStore
from proof.simulator.truth import Truth
from proof.simulator.world import World

MENDINGS = 8
remember()
"""How often an operator follows what a refusal says before the run counts as one that does not end."""


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
        batches: Own batches under the head at the end.
        rows: Own rows that had to be there.
        lost: Rows of them that were not.
        doubled: Rows that were there too often.
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
    batches: int
    rows: int
    lost: int
    doubled: int
    unknown: int
    unknown_landed: int
    orphans: int
    steps: int

    def without_story(self) -> "Report":
        """The figures alone."""
        return replace(self, story=())


def simulate(seed: int, drawn: Callable[[Random], Scenario] = draw) -> Report:
    """Run one seed. The same seed gives the same story, as long as neither lakesink nor the simulator changes.

    Args:
        seed: All chance comes from it.
        drawn: Draws the scenario.
    """
    world = World(seed)
    scenario = drawn(world.random)
    try:
        return Play.of(world, scenario).report()
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

    @classmethod
    def of(cls, world: World, scenario: Scenario) -> "Play":
        """Set the stage."""
        store = SimulatedStore(world)
        truth = Truth(store, scenario.branch)
        server = SimulatedServer(store, applied=truth.note)
        server.create(SCHEMA, TABLE_PROPERTIES, LOCATION)
        store.referenced = truth.refers_to
        source = Source(scenario.end, scenario.most)
        checkpoint = SimulatedCheckpoint.new(world, (0,) * len(scenario.end))
        stream = Stream(server, truth, checkpoint, source, evolves=scenario.evolves)
        engine = Engine(server, truth)
        engine.fork()
        world.chances = scenario.chances
        return cls(world, truth, server, stream, engine, Operator(stream, engine, scenario.actions))

    def report(self) -> Report:
        """Run and judge."""
        self.stream.start()
        self.world.start("others", self.operator.act)
        ends = self.world.run()
        self.world.calm = True
        self.world.tell("all is calm from here")
        ends = ends and self._settle()
        broken = [*self.truth.broken]
        if not ends:
            broken.append(Broken(Promise.THE_RUN_ENDS, f"still at it, or still refused: {self.stream.refused}"))
        table, found = self._table(), self.truth.rows(self.truth.newest.version.metadata, self.truth.branch)
        expected = keys((0,) * len(self.stream.source.end), self.stream.source.end)
        foreign = sum((landed.foreign for landed in self.truth.newest.path), Counter[tuple[int, int]]())
        if ends:
            broken += rows_once(found, expected + foreign)
        facts = facts_of(table, self.stream.sink_id, self.truth.branch)
        broken += files_whole(facts, self._stored)
        broken += untouched(self.server.store.touched, lambda _: True)
        reachable = self.truth.reachable(self.truth.newest.version.metadata)
        return Report(
            seed=self.world.seed,
            broken=tuple(dict.fromkeys(broken)),
            story=tuple(self.world.story),
            faults=self.world.faults,
            done=self.operator.done + self.engine.done,
            outcomes=self.stream.outcomes,
            batches=len(self.truth.newest.batches),
            rows=sum(expected.values()),
            lost=sum((expected - found).values()) if ends else 0,
            doubled=sum((found - expected - foreign).values()),
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
            if self.stream.refused is None:
                return False
            options = self.operator.mend(self.stream.refused)
        return False

    def _stored(self, path: str) -> tuple[int, int] | None:
        stored = self.server.store.files.get(path)
        return None if stored is None else (len(stored.read()), sum((stored.rows or Counter()).values()))

    def _table(self) -> Table:
        version = self.truth.newest.version
        io = SimulatedIO(self.server.store, quiet=True)
        return Table(("demo", "events"), version.metadata, version.location, io, SimulatedCatalog(self.server))
