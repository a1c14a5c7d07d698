"""An operator who follows every advice that a refusal prints, over random histories of tables; the rows are judged.

Each seed draws what happens to a table and its checkpoint: rollbacks, expiry, a lost ledger entry, lost and older
checkpoints, forks, clones and retired sinks. Whenever a batch is refused, the operator draws one of the advices in the
message and does what it says, to the letter. At the end no row may be there twice, and none may be missing, unless a
message that was followed said so; and `audit` must not call such a table clean while its history is retained.
"""

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from pyiceberg.table.snapshots import Snapshot

from lakesink_protocol.coordinator import Write
from lakesink_protocol.errors import BatchRefused, SettingsError, WriteError
from lakesink_protocol.identity import Batch, stream_batch
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Votes
from lakesink_tools.audit.audit import audit
from lakesink_tools.operate.remove_sink import Forgetting, Restoring
from testkit.builders import Lake, Stream
from testkit.maintenance import (
    append_foreign,
    branch_off,
    edit_metadata,
    expire,
    expire_like_java,
    roll_back,
    set_property,
)

END = 8
MOST_REFUSALS = 12
_ACCEPT = re.compile(r'accept="([^"]+)" (.*?)(?=; accept=|\.$|$)')
_REWIND = re.compile(r"`lakesink rewind <checkpoint> --to-batch (-?\d+)`")
_STARTS = re.compile(r"(?:where the sink ended|starts where these batches end): \[(\d+)\]")
_OF_OTHERS = re.compile(r"This does not restore batches of other sink ids that the rollback removed")
_DOUBLES, _LOSES = re.compile(r"twice|unless|correct if"), re.compile(r"\bout\b|lost|without|correct if|no longer has")


Advice = tuple[str, str, Callable[[], dict[str, Any] | None]]
"""Its kind, its words, and what it is to do them: options of the next run, None where the checkpoint changed."""


@dataclass(slots=True)
class Checkpoint:
    """Spark's logs, as far as a batch depends on them.

    Attributes:
        query: Query id.
        start: Offset that batch 0 starts at.
        ends: End offset of each batch that was planned.
        done: How many batches Spark calls done.
    """

    query: str
    start: int = 0
    ends: list[int] = field(default_factory=list)
    done: int = 0

    def cut(self, to_batch: int) -> bool:
        """As `lakesink rewind` does; False if there is nothing to take back."""
        before = (len(self.ends), self.done)
        del self.ends[to_batch + 1 :]
        self.done = min(self.done, to_batch + 1)
        return before != (len(self.ends), self.done)

    def plan(self, random: Random, source_end: int) -> Batch | None:
        """The next batch; None at the end of the source."""
        if self.done == len(self.ends):
            last = self.ends[-1] if self.ends else self.start
            if last >= source_end:
                return None
            self.ends.append(min(source_end, last + random.randrange(1, 3)))
        start = self.ends[self.done - 1] if self.done else self.start
        return stream_batch(self.done, self.query, start=[start], end=[self.ends[self.done]])

    def copy(self) -> "Checkpoint":
        """A backup."""
        return Checkpoint(self.query, self.start, list(self.ends), self.done)


@dataclass(slots=True)
class Followed:
    """What one seed came to.

    Attributes:
        seed: Replays it.
        story: What happened, a line each.
        advices: How many advices were followed, by kind.
        doubled: Offsets whose rows are there more than once.
        missing: Offsets whose rows are not there.
        broken: What was doubled or lost without a word, or called clean.
    """

    seed: int
    story: list[str] = field(default_factory=list)
    advices: Counter[str] = field(default_factory=Counter)
    doubled: int = 0
    missing: int = 0
    broken: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Play:
    """One seed."""

    random: Random
    lake: Lake
    stream: Stream
    checkpoint: Checkpoint
    report: Followed
    kept: Checkpoint | None = None
    queries: int = 1
    may_double: bool = False
    may_lose: bool = False
    expired: bool = False
    stopped: bool = False
    of_others: int = 0
    end: int = END

    def run(self) -> None:
        """Happenings between batches, then the rest of the source; each refusal is answered by an advice."""
        for _ in range(self.random.randrange(2, 6)):
            self._batches(self.random.randrange(1, 4))
            self._happens()
        self.end += 1  # else nobody asks for a batch again
        self._batches(4 * END)
        if self.stopped:
            self.may_lose = True  # the source is not read to its end
        self.judge()

    def _batches(self, count: int) -> None:
        refusals = 0
        for _ in range(0 if self.stopped else count):
            batch = self.checkpoint.plan(self.random, self.end)
            if batch is None:
                return
            options: dict[str, Any] = {}
            while True:
                try:
                    self._run(batch, options)
                except (BatchRefused, WriteError) as refused:
                    refusals += 1
                    if refusals > MOST_REFUSALS:
                        self.stopped = True
                        return
                    follow = self._follow(refused)
                    if follow is None:
                        break  # begin again with what the checkpoint says now
                    options = follow
                else:
                    self.checkpoint.done = max(self.checkpoint.done, batch.batch_id + 1)
                    self._tell(f"batch {batch.batch_id} of {self.checkpoint.query} to {self.checkpoint.ends[-1]}")
                    break

    def _run(self, batch: Batch, options: dict[str, Any]) -> None:
        self.stream.run_with(self.stream.sink(**options), batch, job=self._job(batch))

    def offsets(self, batch: Batch) -> range:
        """What a batch reads."""
        start = self.checkpoint.ends[batch.batch_id - 1] if batch.batch_id else self.checkpoint.start
        return range(start, self.checkpoint.ends[batch.batch_id])

    def _job(self, batch: Batch) -> Write:
        offsets = self.offsets(batch)

        def write(writers: Mapping[str, TaskWriter]) -> Votes:
            rows = [part for offset in offsets for part in self.stream.rows(offset, range(1))]
            return Votes.in_order({name: [writer.write(0, iter(rows))] for name, writer in writers.items()})

        return write

    def _follow(self, refused: BatchRefused | WriteError) -> dict[str, Any] | None:
        """Do one thing that the message says; options of the next run, None where the checkpoint changed."""
        advices = [advice for advice in self.advices(refused) if advice[0] != "accept" or self.random.random() < 0.5]
        kind, text, do = self.random.choice(advices or self.advices(refused))
        reason = refused.reason.value if isinstance(refused, BatchRefused) else refused.code
        self.report.advices[f"{reason}: {kind}"] += 1
        self._tell(f"{reason}, follows: {text}")
        self.may_double |= _DOUBLES.search(text) is not None
        self.may_lose |= _LOSES.search(text) is not None
        return do()

    def advices(self, refused: BatchRefused | WriteError) -> list[Advice]:
        action = refused.action
        found: list[Advice] = []
        for word, does in _ACCEPT.findall(action):
            found.append(("accept", f"{word} {does}", partial(dict, accept=word)))
        if rewind := _REWIND.search(action):
            to_batch = int(rewind[1])
            if self.checkpoint.copy().cut(to_batch):
                told = _OF_OTHERS.search(action) is not None
                found.append(("rewind", rewind[0], partial(self._rewind, to_batch, others_told=told)))
        if "lakesink restore" in action:
            found.append(("restore", "lakesink restore", self._restore))
        if start := _STARTS.search(action):
            found.append(("start there", start[0], partial(self._start_anew, int(start[1]))))
        if "estore the" in action and "checkpoint" in action and self.kept is not None:
            found.append(("old checkpoint", "Restore the old checkpoint", self._put_back))
        if "new sink id and a new" in action or "use another sink id" in action:
            text = next(part for part in re.split(r"(?<=\.) ", action) if "sink id" in part)
            found.append(("another sink id", text, partial(self._another_sink, action)))
        if not found:
            found.append(("give up", "nothing is offered", self._give_up))
        return found

    def _rewind(self, to_batch: int, *, others_told: bool) -> None:
        self.checkpoint.cut(to_batch)
        if others_told:  # what this checkpoint has never read is what other sink ids wrote
            self.of_others = max(self.of_others, self.checkpoint.start)

    def _restore(self) -> dict[str, Any]:
        with suppress(SettingsError):  # it was retired
            Restoring(self.lake.table, self.stream.key, effects=self.stream.chance.effects()).run()
        return {}

    def _start_anew(self, start: int) -> None:
        self.queries += 1
        self.checkpoint = Checkpoint(f"query-{self.queries}", start)

    def _put_back(self) -> None:
        assert self.kept is not None
        self.checkpoint, self.kept = self.kept, None

    def _another_sink(self, action: str) -> dict[str, Any] | None:
        self.stream.sink_id += "x"
        start = _STARTS.search(action)
        if "new sink id and a new checkpoint" not in action:
            return {}
        self._start_anew(int(start[1]) if start else 0)
        return None

    def _give_up(self) -> None:
        """Nothing can be accepted, and the checkpoint that would be right is lost: the stream stays stopped."""
        self.stopped = True

    # What happens to a table and its checkpoint.

    def happenings(self) -> list[Callable[[], None]]:
        """What may happen to the table and its checkpoint."""
        return [
            self._roll_back,
            self._expire,
            self._lose_the_ledger,
            self._lose_the_checkpoint,
            self._older_checkpoint,
            self._fork,
            self._retire,
            self._clone,
            self._crash,
            self._others,
        ]

    def _happens(self) -> None:
        what = self.random.choice(self.happenings())
        begun = self.stream.key.ledger_property in self.lake.table().properties
        if begun or what in (self._expire, self._crash):  # of a new sink id nothing is known that could be lost
            self._tell(what.__name__.strip("_").replace("_", " "))
            what()

    def _others(self) -> None:
        append_foreign(self.lake, self.stream.branch)

    def _crash(self) -> None:
        """Before Spark's commit log had the newest batch."""
        self.checkpoint.done = max(0, len(self.checkpoint.ends) - 1)

    def _roll_back(self) -> None:
        snapshot: Snapshot | None = self.lake.table().snapshot_by_name(self.stream.branch)
        for _ in range(self.random.randrange(1, 4)):
            parent = snapshot.parent_snapshot_id if snapshot is not None else None
            there = self.lake.table().snapshot_by_id(parent) if parent is not None else None
            snapshot = there or snapshot
        assert snapshot is not None
        roll_back(self.lake, snapshot.snapshot_id, self.stream.branch)

    def _expire(self) -> None:
        for _ in range(self.random.randrange(3) if self.lake.table().snapshot_by_name(self.stream.branch) else 0):
            self._others()
        self.random.choice([expire, expire_like_java])(self.lake)
        self.expired = True

    def _lose_the_ledger(self) -> None:
        if self.stream.key.ledger_property in self.lake.table().properties:
            set_property(self.lake, self.stream.key.ledger_property, None)

    def _lose_the_checkpoint(self) -> None:
        self.kept = self.checkpoint if self.random.random() < 0.5 else None
        self._start_anew(0)

    def _older_checkpoint(self) -> None:
        """A backup comes back; what the source brings after it is cut anew."""
        self.kept = self.checkpoint.copy() if self.random.random() < 0.5 else None
        self.checkpoint.cut(self.random.randrange(-1, len(self.checkpoint.ends) + 1))

    def _fork(self) -> None:
        branch = f"fork-{self.random.randrange(10**6)}"
        branch_off(self.lake, branch, self.lake.head(self.stream.branch).snapshot_id)
        self.stream.branch = branch

    def _retire(self) -> None:
        with suppress(SettingsError):
            Forgetting(self.lake.table, self.stream.key, effects=self.stream.chance.effects()).run()
        self.stream.sink_id += "y"

    def _clone(self) -> None:
        """A copy with all snapshots and properties takes the place of the table."""
        uuid = f"{self.random.getrandbits(128):032x}"
        text = "-".join((uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:]))
        edit_metadata(self.lake, lambda metadata: metadata.update({"table-uuid": text}))

    # Judging.

    def judge(self) -> None:
        if self.lake.table().snapshot_by_name(self.stream.branch) is None:
            return
        scan = self.lake.table().scan(snapshot_id=self.lake.head(self.stream.branch).snapshot_id).select("batch")
        there = Counter(value for value in scan.to_arrow()["batch"].to_pylist() if value >= 0)
        finished = (
            not self.stopped
            and self.checkpoint.done == len(self.checkpoint.ends)
            and self.checkpoint.ends[-1:] == [self.end]
        )
        doubled = sorted(offset for offset, count in there.items() if count > 1)
        missing = sorted(set(range(self.end)) - there.keys()) if finished else []
        report = self.report
        report.doubled, report.missing = len(doubled), len(missing)
        if doubled and not self.may_double:
            report.broken.append(f"offsets {doubled} are there twice, and no message that was followed said so")
        if any(offset >= self.of_others for offset in missing) and not self.may_lose:
            report.broken.append(f"offsets {missing} are missing, and no message that was followed said so")
        if (doubled or missing) and not self.expired and not audit(self.lake.table(), footers=False).findings:
            report.broken.append(f"audit calls it clean: twice {doubled}, missing {missing}")

    def _tell(self, what: str) -> None:
        self.report.story.append(what)


def follow(seed: int) -> Followed:
    """Play one seed."""
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake.make(Path(folder), properties={"commit.retry.num-retries": "1"})
        report = Followed(seed)
        stream = Stream(lake)
        play = Play(Random(seed), lake, stream, Checkpoint("query-1"), report)
        try:
            play.run()
        finally:
            lake.catalog.engine.dispose()
    return report


@dataclass(slots=True)
class Advised:
    """What a range of seeds came to.

    Attributes:
        seeds: How many.
        advices: How many advices were followed, by refusal and kind.
        doubled: Offsets whose rows were there more than once, as a message had said.
        missing: Offsets whose rows were not there, as a message had said.
        broken: What no message had said.
    """

    seeds: int = 0
    advices: Counter[str] = field(default_factory=Counter)
    doubled: int = 0
    missing: int = 0
    broken: list[str] = field(default_factory=list)

    @property
    def followed(self) -> int:
        """All advices."""
        return self.advices.total()

    def to_json(self) -> dict[str, Any]:
        """For the figures."""
        return asdict(self)


def run(first: int, seeds: int, progress: Callable[[str], None], play: Callable[[int], Followed] = follow) -> Advised:
    """Play many seeds.

    Args:
        first: First seed.
        seeds: How many.
        progress: Told how far it is.
        play: Plays one.
    """
    result = Advised()
    for seed in range(first, first + seeds):
        progress(f"advice: {result.seeds:,} of {seeds:,} seeds")
        report = play(seed)
        result.seeds += 1
        result.advices += report.advices
        result.doubled += report.doubled
        result.missing += report.missing
        result.broken += [f"advice, seed {seed}: {what}" for what in report.broken]
    return result
