"""What people, schedulers and machines do to a stream and its table; and what a refusal tells its operator to do."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, SetSnapshotRefUpdate

from lakesink_protocol.errors import BatchRefused, Reason
from lakesink_protocol.identity import SinkKey
from proof.simulator.dead_letters import Letters
from proof.simulator.dead_letters import name_of as name_of_letters
from proof.simulator.drivers import LEFT_BEHIND, Stream
from proof.simulator.engines import Engine
from proof.simulator.keyed_engine import KeyedEngine
from proof.simulator.keyed_truth import KeyedTruth
from proof.simulator.replays import Replay
from proof.simulator.spark import Asked, SimulatedCheckpoint
from proof.simulator.truth import name_of
from proof.simulator.upkeep import maintain
from proof.simulator.world import World
from testkit.builders import offered

BETWEEN = 0.1
"""How likely others act between locating and the commit."""
DIES_AS_DRIVERS = 0.5
"""How likely a maintenance is killed and frozen with the drivers."""
HOUR_MS = 3_600_000
LONGEST_FREEZE_MS = 100 * HOUR_MS
AGE_LIMITS_MS = (24 * HOUR_MS, 72 * HOUR_MS)
"""The shortest that orphan cleaners allow, and the usual one."""


@dataclass(eq=False)
class Operator:
    """Does what the scenario says, at times of its own.

    Attributes:
        stream: The stream.
        engine: Other engines at the table.
        actions: What to do, in order.
        done: What was done, by kind.
    """

    stream: Stream
    engine: Engine
    actions: tuple[str, ...]
    done: Counter[str] = field(default_factory=Counter)
    _goal: int = 0
    _kept: SimulatedCheckpoint | None = None
    _ledger: dict[str, str] | None = None

    def __post_init__(self) -> None:
        self._between = Random(f"between {self.world.seed}")  # so that no other draw of a seed depends on it

    @property
    def world(self) -> World:
        """Clock, chance and scheduler."""
        return self.stream.world

    def act(self) -> None:
        """One action after another."""
        deeds: dict[str, Callable[[], object]] = {
            "kill": self._kill,
            "freeze": self._freeze,
            "twin": self._twin,
            "hours pass": self._hours_pass,
            "foreign append": self.engine.append,
            "compact": self.engine.compact,
            "add again": self.engine.add_again,
            "change the schema": self.engine.evolve,
            "expire": self.engine.expire,
            "clean orphans": self._clean,
            "roll back": self._roll_back,
            "move the head": self._move_the_head,
            "forget a commit": self._forget_a_commit,
            "restore the checkpoint": self._restore_the_checkpoint,
            "lose the checkpoint": self._lose_the_checkpoint,
            "replace the table": self._replace_the_table,
            "lose the ledger": self._lose_the_ledger,
            "drop the letters": self._drop_the_letters,
            "put other rows aside": self._put_other_rows_aside,
            "kill between the commits": lambda: self._set_trap("letters"),
            "kill after the evolution": lambda: self._set_trap("schema"),
            "kill after the changelog": lambda: self._set_trap("changelog"),
            "replay": self.replay,
        }
        if isinstance(self.engine, KeyedEngine):
            deeds |= {
                "merge": self.engine.merge,
                "delete": self.engine.delete,
                "change the partitioning": self.engine.change_partitioning,
                "maintain": self._maintain,
            }
        for action in self.actions:
            self.world.sleep(self.world.random.randrange(self.world.random.choice([300, 1500])))
            deeds[action]()

    def act_between(self) -> None:
        """A driver has located rows: sometimes others change the head before it commits."""
        if self.world.calm or self._between.random() >= BETWEEN:
            return
        assert isinstance(self.engine, KeyedEngine)
        last = self.engine.delete if self.stream.content.has_features else self._roll_back
        deeds = (self.engine.compact, self.engine.merge, self.engine.append, last)
        self.world.start("others", self._between.choice(deeds))
        self.world.pause()

    def mend(self, refused: BatchRefused) -> dict[str, Any]:
        """Do what the refusal says; returns options for the next start."""
        self.world.tell(f"the operator mends {refused.reason.value}")
        if self.stream.is_of_letters(refused):
            rolled_back = refused.reason is Reason.ROLLED_BACK
            return {"accept": offered(refused)["commit"]} if rolled_back else {}
        match refused.reason:
            case Reason.ROLLED_BACK:
                self._take_replays_back(str(refused))
                return self._rewind(refused)
            case Reason.GAP:
                self.stream.checkpoint.cut(self._entry().batch.batch_id)
            case Reason.REWOUND | Reason.BATCH_CHANGED | Reason.NEW_CHECKPOINT:
                self._put_back()
            case Reason.UNKNOWN_HISTORY if self.stream.truth.ledger_lost and self._ledger is not None:
                self._set_ledger_back(self._ledger)
            case Reason.LEDGER_LOST if self._ledger is not None:
                self._set_ledger_back(self._ledger)
            case Reason.TABLE_REPLACED | Reason.UNKNOWN_HISTORY:
                self.stream.sink_id = f"{self.stream.sink_id}-anew"
                self._begin_anew()
            case _:
                pass
        return {}

    def mend_letters(self, asked: Asked) -> None:
        """Do what is said where letters differ: roll their table back, or take another one."""
        letters, told = self.stream.truth.letters, re.search(r"Roll \S+ back to snapshot (\d+)", self.stream.advice)
        path = letters.path()
        self._take_replays_back(self.stream.advice)
        if LEFT_BEHIND in self.stream.advice or told is not None:
            kept = [number for number, one in enumerate(path) if told is not None and one.snapshot_id == int(told[1])]
            self._keep_letters(path, kept[0] if kept else len(path))
            return
        sink = str(self.stream.truth.newest.version.metadata.table_uuid), self.stream.sink_id
        application, batch_id = name_of_letters(sink, self.stream.truth.branch, name_of(asked))
        at = [number for number, one in enumerate(path) if one.name[0] == application and one.name[1] >= batch_id]
        self.world.tell(f"the operator takes letters back to before batch {batch_id}")
        if at:
            self._keep_letters(path, at[-1] + 1)

    def _take_replays_back(self, advice: str) -> None:
        """Replays that the table has lost go out of their table, where this is said."""
        replays = self.stream.truth.beside.replays
        for told in re.finditer(r"Roll \S+__replays back to snapshot (\d+)|Drop \S+__replays:", advice):
            self._did("take replays back", "takes replays back that the table has lost")
            if told[1]:
                replays.apply((), (head_at("main", int(told[1])),))
            else:
                replays.drop()

    def _keep_letters(self, path: Sequence[Letters], kept: int) -> None:
        """Roll the table of dead letters back to this snapshot of its path; drop it if that is behind the last one."""
        self.stream.truth.letters.removed({one.name for one in path[:kept]}, dropped=False)
        if kept < len(path):
            self.stream.letters.apply((), (head_at("main", path[kept].snapshot_id),))
        else:
            self._drop_the_letters()

    def _entry(self) -> Asked:
        entry = self.stream.truth.newest.entry
        assert entry is not None
        assert entry.asked is not None
        return entry.asked

    def _rewind(self, refused: BatchRefused) -> dict[str, Any]:
        """Cut the checkpoint behind the newest batch in the table, or begin one there; where that is done, say so."""
        batches = self.stream.truth.newest.batches
        checkpoint = self.stream.checkpoint
        goal = batches[-1].batch.batch_id if batches else -1
        begins_there = bool(batches) and checkpoint.begins_behind(batches[-1])
        if batches and not begins_there and not checkpoint.agrees_with(batches[-1]):
            self.stream.checkpoint = SimulatedCheckpoint.new(self.world, batches[-1].end)
            self._take_letters_along()
        elif not begins_there and (checkpoint.newest("commits") > goal or checkpoint.newest("offsets") > goal + 1):
            checkpoint.cut(goal)
        else:
            word = offered(refused)["commit"]
            if begins_there and _batch_of(word) > 0:  # its own first batches were rolled back too
                checkpoint.cut(-1)
                return {}
            if begins_there or _batch_of(word) > goal:
                return {"accept": word}
            # Expiry hides its snapshot, and the checkpoint is behind the table: its rows are there.
            self.stream.outcomes["began anew behind the table"] += 1
            self.stream.checkpoint = SimulatedCheckpoint.new(self.world, batches[-1].end)
            self._take_letters_along()
        return {}

    def _take_letters_along(self) -> None:
        """Dead letters go back with their table, as the manual says: a new query does not know those of another one."""
        state, path = self.stream.truth.newest, self.stream.truth.letters.path()
        there = [one for one in state.path if one.asked is not None]
        names = {name_of_letters(one.sink, self.stream.truth.branch, name_of(one.asked)) for one in there if one.asked}
        kept = next((number for number, one in enumerate(path) if one.name in names), len(path))
        if kept:
            self._keep_letters(path, kept)

    def _put_back(self) -> None:
        """The checkpoint that belongs to the table, if it is kept; else a new one that begins where the table ends."""
        entry, kept = self._entry(), self._kept
        belongs = kept is not None and kept.agrees_with(entry)
        self.stream.checkpoint = kept if kept and belongs else SimulatedCheckpoint.new(self.world, entry.end)

    # Processes.

    def _alive(self) -> Any:
        alive = [actor for actor in self.stream.running if actor.alive]
        return self.world.random.choice(alive) if alive else None

    def _kill(self) -> None:
        actor = self._alive()
        if actor is not None:
            self._did("kill", f"SIGKILL to {actor.name}")
            self.stream.kill(actor)
            self.stream.start(self.world.random.randrange(1000))

    def _freeze(self) -> None:
        """SIGSTOP, mostly another driver in its place, and SIGCONT after seconds, or after days."""
        actor = self._alive()
        if actor is not None and not actor.calling:
            longest = self.world.random.choice([2000, LONGEST_FREEZE_MS])
            actor.wakes_at_ms = self.world.now_ms + self.world.random.randrange(longest)
            self._did("freeze", f"SIGSTOP to {actor.name} for {(actor.wakes_at_ms - self.world.now_ms) / 1000} s")
            if self.world.random.random() < 0.7:
                self.stream.start(self.world.random.randrange(1000))

    def _twin(self) -> None:
        self._did("twin", "starts a second driver on the same checkpoint")
        self.stream.start()

    def replay(self, accept: str = "") -> Replay:
        """Start a replay of the dead letters."""
        assert isinstance(self.stream.truth, KeyedTruth)
        self._did("replay", "starts a replay of the dead letters")
        found = Replay(self.stream, self.stream.truth, accept)
        self.stream.run_as("replay", found.run)
        return found

    def _maintain(self) -> None:
        """Start another process that maintains the table; it may be killed as drivers are, or outlive them."""
        self._did("maintain", "starts a maintenance of the table")
        start = self.stream.run_as if self._between.random() < DIES_AS_DRIVERS else self.world.start
        start("maintenance", partial(maintain, self.stream))

    def _hours_pass(self) -> None:
        hours = self.world.random.randrange(1, 30)
        self._did("hours pass", f"{hours} hours pass for everybody")
        self.world.now_ms += hours * HOUR_MS

    def _clean(self) -> None:
        """At once, or after a night; a driver may be held up all that time."""
        if self.world.random.random() < 0.6:
            self.world.sleep(self.world.random.randrange(LONGEST_FREEZE_MS))
        self.engine.clean(self.world.random.choice(AGE_LIMITS_MS))

    # The table.

    def _roll_back(self) -> None:
        """To a snapshot under the head; with the stream stopped and its checkpoint rewound, or without."""
        state = self.stream.truth.newest
        kept = {snapshot.snapshot_id for snapshot in state.version.metadata.snapshots}
        goals = [landed.snapshot_id for landed in state.path[:-1] if landed.snapshot_id in kept]
        if not goals:
            return
        orderly = self.world.random.random() < 0.7
        if orderly:
            self.stream.kill_all()
        again = self._goal in goals and self.world.random.random() < 0.5
        self._goal = self._goal if again else self.world.random.choice(goals)
        self._set_head(self._goal, "roll back")
        if orderly:
            newest = [asked.batch.batch_id for asked in self.stream.truth.newest.batches]
            self.stream.checkpoint.cut(newest[-1] if newest else -1)
            self.stream.start()

    def _move_the_head(self) -> None:
        """To any snapshot that is retained: back, forward, or over to what was rolled back."""
        retained = self.stream.truth.newest.version.metadata.snapshots
        if retained:
            self._set_head(self.world.random.choice(retained).snapshot_id, "move the head")

    def _set_head(self, snapshot_id: int, what: str) -> None:
        self._did(what, f"sets the head to snapshot {snapshot_id}")
        self.stream.truth.operator_at_work = True
        self.stream.server.apply((), (head_at(self.stream.truth.branch, snapshot_id),))
        self.stream.truth.operator_at_work = False

    def _replace_the_table(self) -> None:
        self._did("replace the table", "drops the table and makes another of its name")
        self.stream.create_table()
        self.engine.fork()

    def _lose_the_ledger(self) -> None:
        """Somebody removes the table property that holds the stream's entry."""
        name = SinkKey(self.stream.sink_id, self.stream.truth.branch).ledger_property
        value = self.stream.truth.newest.version.metadata.properties.get(name)
        if value is not None:
            self._did("lose the ledger", "removes the ledger's entry")
            self._ledger = {name: value}
            self.stream.truth.ledger_lost = True
            self.stream.server.apply((), (RemovePropertiesUpdate(removals=[name]),))

    def _set_ledger_back(self, entry: dict[str, str]) -> None:
        self.stream.truth.ledger_lost = False
        self.stream.server.apply((), (SetPropertiesUpdate(updates=entry),))

    def _drop_the_letters(self) -> None:
        if self.stream.letters.current is not None:
            self._did("drop the letters", "drops the table of dead letters")
            self.stream.truth.letters.removed(set(), dropped=True)
            self.stream.letters.drop()

    def _put_other_rows_aside(self) -> None:
        """The query is started again with another idea of which rows do not fit: now, or once it has died."""
        content = self.stream.content
        other = replace(content, aside_every=5 - content.aside_every)
        if self.world.random.random() < 0.5:
            self.stream.content_after_trap = other
            self._set_trap("letters")
            return
        self._did("put other rows aside", "starts the query with other rows put aside")
        self.stream.kill_all()
        self.stream.content = other
        self.stream.start()

    def _set_trap(self, trap: str) -> None:
        self._did(f"trap at the commit of {trap}", f"means to kill a driver at the commit of {trap}")
        self.stream.trap = trap

    # The checkpoint.

    def _forget_a_commit(self) -> None:
        """The newest entry of Spark's commit log is deleted, and the stream started: it replays that batch."""
        self.stream.kill_all()
        checkpoint = self.stream.checkpoint
        newest = checkpoint.newest("commits")
        self._did("forget a commit", f"deletes commits/{newest}")
        checkpoint.files.pop(f"commits/{newest}", None)
        self.stream.start()

    def _restore_the_checkpoint(self) -> None:
        """An older backup comes back; what the source brings after it may be cut into other batches."""
        self.stream.kill_all()
        self._keep_checkpoint()
        newest = self.stream.checkpoint.newest("offsets")
        backup = SimulatedCheckpoint(self.world, dict(self.stream.checkpoint.files))
        backup.cut(self.world.random.randrange(-1, newest + 1))
        self._did("restore the checkpoint", f"restores a checkpoint that ends at batch {backup.newest('offsets')}")
        self.stream.checkpoint = backup
        self.stream.start()

    def _lose_the_checkpoint(self) -> None:
        self.stream.kill_all()
        self._keep_checkpoint()
        self._did("lose the checkpoint", "starts with a new checkpoint")
        self._begin_anew()
        self.stream.start()

    def _keep_checkpoint(self) -> None:
        self._kept = self._kept or self.stream.checkpoint

    def _begin_anew(self) -> None:
        self.stream.checkpoint = SimulatedCheckpoint.new(self.world, (0,) * len(self.stream.source.end))

    def _did(self, what: str, story: str) -> None:
        self.done[what] += 1
        self.world.tell(story)


def head_at(branch: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    """Sets the head of a branch."""
    return SetSnapshotRefUpdate(
        ref_name=branch,
        type=SnapshotRefType.BRANCH,
        snapshot_id=snapshot_id,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )


def _batch_of(word: str) -> int:
    """The batch that an accepting word is for: ``RolledBack:<batch>@...``."""
    return int(word.split(":")[1].partition("@")[0])
