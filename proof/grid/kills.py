"""SIGKILLs at random moments: drivers are killed again and again until one gets through, then the table is judged."""

import json
import math
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from lakesink_protocol.outcome import Committed
from lakesink_protocol.row_changes import Mode
from proof.changes import Changing
from proof.content import PLAIN, ROWS_OF_UPSERTED, Content
from proof.grid.cells import Company
from proof.grid.company import Others
from proof.grid.figures import RandomKills
from proof.grid.on_spark import UPSERTS, kept_by_upserts, rows_of_upserts
from proof.grid.trace_log import TraceLog
from proof.model.checker import check
from proof.oracle import batches_contiguous, facts_of, files_whole, rows_once
from proof.processes.evidence import Reader, judge, orphans, stored, unreferenced
from proof.processes.harness import Driver, Stream
from testkit import harness
from testkit.at_work import committed, kill_at_work
from testkit.builders import FaultyCatalog
from testkit.tracing import VARIABLE as TRACE

BATCHES = 12
LIVES = 40
"""Drivers of one round; the last one is left alone."""
MOST_STEPS, MEAN_SECONDS = 14, 0.1
"""A driver is killed after so many steps of its trace, which are two batches, and some time; a machine may be slow."""
WHILE_STARTING, LONGEST_START_SECONDS = 0.15, 0.4
"""How often a driver is killed without regard to its step, and how long after its start."""
POLL_SECONDS = 0.002
KILLS_OF_SPARK_ROUND = 5
LONGEST_SPARK_WORK_SECONDS = 5.0
SPARK_FILES_AHEAD = 60
"""More than a driver can take before it is killed."""
CHILDREN_TO_A_SPARK_DRIVER = 24
FOREIGN_CHANCE = 0.3
NOTHING_DONE = "nothing"
_DELETES = ("delete files", "-deletes.parquet")
WRITTEN_AFTER = {"begin": ("keys file", ".keys"), **dict.fromkeys(("recorded", "recovered", "look"), _DELETES)}
"""Files of changes that a driver writes between two steps of its trace: what they are, and the end of their names.

Rows are located once the record is durable, before the look of the attempt; and after it, if the head is another one.
"""


@dataclass(slots=True)
class _Tally:
    drivers: int = 0
    spark_drivers: int = 0
    by_step: Counter[str] = field(default_factory=Counter)
    batches: int = 0
    recovery_ms: list[float] = field(default_factory=list)
    spark_recovery_ms: list[float] = field(default_factory=list)
    orphans: int = 0
    log_lines: int = 0
    broken: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return self.drivers + self.spark_drivers

    def frozen(self) -> RandomKills:
        return RandomKills(
            drivers=self.drivers,
            spark_drivers=self.spark_drivers,
            by_step=dict(sorted(self.by_step.items())),
            batches=self.batches,
            recovery_ms=tuple(self.recovery_ms),
            spark_recovery_ms=tuple(self.spark_recovery_ms),
            orphans=self.orphans,
            log_lines=self.log_lines,
            broken=tuple(self.broken),
        )


def random_kills(  # all that a run depends on
    folder: Path,
    wanted: int,
    seed: int,
    progress: Callable[[str], None],
    is_over: Callable[[], bool] = lambda: False,
    *,
    by_key: bool = False,
) -> RandomKills:
    """Kill drivers until that is enough, or time is over; each round is finished and judged.

    Args:
        folder: Exists; nothing is left in it.
        wanted: SIGKILLs.
        seed: Of the moments.
        progress: Told after every round.
        is_over: True when no new round is to begin.
        by_key: True for streams that replace and delete rows by key, False for those that append.
    """
    chance, tally, rounds = random.Random(seed), _Tally(), 0
    while tally.kills < wanted and not is_over():
        place = folder / f"kills-{rounds}"
        rounds += 1
        try:
            if wanted - tally.kills > KILLS_OF_SPARK_ROUND and tally.drivers > _due(tally):
                _spark_round(place, chance, tally, by_key=by_key)
            else:
                content = _changes(chance) if by_key else PLAIN
                _round(_stream(place, content), chance, tally, wanted - tally.kills)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        progress(f"{tally.kills:,} of {wanted:,} random kills, {len(tally.broken)} broken")
    return tally.frozen()


def _due(tally: _Tally) -> int:
    return (tally.spark_drivers + KILLS_OF_SPARK_ROUND) * CHILDREN_TO_A_SPARK_DRIVER


def _changes(chance: random.Random) -> Content:
    """Other changes in each round: few keys, which all change again and again, or more."""
    mode = chance.choice([Mode.UPSERT, Mode.CHANGES, Mode.CHANGES])
    return Content(
        changing=Changing(mode, keys=chance.randrange(2, 13), salt=chance.randrange(2**16), has_places=False)
    )


def _stream(folder: Path, content: Content) -> Stream:
    stream = Stream(folder, batches=BATCHES, environment={TRACE: str(folder / "trace")}, content=content)
    return stream if content.changing is None else replace(stream, rows=ROWS_OF_UPSERTED, options={})


@dataclass(frozen=True, slots=True)
class _Moment:
    """When a driver is killed: after so many steps, and then so much later."""

    steps: int
    seconds: float

    @classmethod
    def drawn(cls, chance: random.Random) -> "_Moment":
        if chance.random() < WHILE_STARTING:
            return cls(0, chance.uniform(0, LONGEST_START_SECONDS))
        return cls(chance.randint(1, MOST_STEPS), chance.expovariate(1 / MEAN_SECONDS))


@dataclass(slots=True)
class _Life:
    """One driver's life, and what of it is left to measure."""

    stream: Stream
    trace: TraceLog
    lines: list[str] = field(default_factory=list)
    killed_ns: int = 0

    def live(self, moment: _Moment | None, tally: _Tally) -> bool:
        """True if it was killed before it got through; without a moment, it is left alone."""
        before = self._side_files()
        fresh: list[str] = []
        with self.stream.driver() as driver:
            if moment is None:
                driver.wait()
            else:
                fresh = self._steps(driver, moment.steps)
                time.sleep(moment.seconds)
            alive = driver.process.exitcode is None and moment is not None
            killed_ns = driver.kill()
            driver.wait()
        self._measure(driver, tally)
        died = alive and driver.process.exitcode == -9
        fresh += self.trace.lines()
        self.lines += fresh
        if died:
            tally.drivers += 1
            tally.by_step[last_step(fresh, self._side_files() - before)] += 1
            self.killed_ns = killed_ns
        elif driver.code is not None:
            tally.broken.append(f"a driver that was let alone ended with {driver.code!r}")
        return died

    def _steps(self, driver: Driver, count: int) -> list[str]:
        """Wait until it has taken so many steps, or has ended."""
        fresh: list[str] = []
        while len(fresh) < count and driver.process.exitcode is None:
            time.sleep(POLL_SECONDS)
            fresh += self.trace.lines()
        return fresh

    def _side_files(self) -> set[str]:
        if self.stream.content.changing is None:
            return set()
        return {file.name for file in (self.stream.root / "warehouse").rglob("*") if file.is_file()}

    def _measure(self, driver: Driver, tally: _Tally) -> None:
        landed = [report.at_ns for report in driver.reports if report.outcome == Committed.__name__]
        if landed and self.killed_ns:
            tally.recovery_ms.append((landed[0] - self.killed_ns) / 1e6)
            self.killed_ns = 0


def _round(stream: Stream, chance: random.Random, tally: _Tally, most: int) -> None:
    (stream.root / "warehouse").mkdir(parents=True)
    database = FaultyCatalog("lake", **{name: stream.properties[name] for name in ("uri", "warehouse")})
    others = Others(Company.FOREIGN, database, database, stream.table, over_rest=False, content=stream.content)
    others.make_table()
    life = _Life(stream, TraceLog(stream.root / "trace"))
    with Reader(stream).reading() as reader:
        before = tally.drivers
        while life.live(_Moment.drawn(chance) if tally.drivers - before < min(most, LIVES) else None, tally):
            if chance.random() < FOREIGN_CHANCE:
                others.act()
    life.trace.close()
    tally.broken += [str(broken) for broken in judge(stream, others.rows, reader)]
    tally.broken += [f"trace: {broken}" for broken in check(life.lines)]
    tally.broken += [f"a reader met {failure}" for failure in reader.failures]
    tally.batches += BATCHES
    tally.orphans += orphans(stream)
    tally.log_lines += len(life.lines)


def last_step(lines: list[str], files: set[str]) -> str:
    """Where a driver died: its last step, and the file of changes that it has begun since.

    Args:
        lines: Its trace.
        files: Names of the files that it has made.
    """
    if not lines:
        return NOTHING_DONE
    line = json.loads(lines[-1])
    what, end = WRITTEN_AFTER.get(line["event"], ("", ""))
    own = f"-{line['batch_id']}-"
    return (
        f"{line['event']}, {what}"
        if what and any(own in name and name.endswith(end) for name in files)
        else line["event"]
    )


def _spark_round(folder: Path, chance: random.Random, tally: _Tally, *, by_key: bool) -> None:
    folder.mkdir()
    trace = TraceLog(folder / "trace")
    options = UPSERTS if by_key else {"create_table": True}
    stream = harness.Stream(folder, options=options, environment={TRACE: str(folder / "trace")})
    files, killed, lines = 0, list[float](), list[str]()
    for _ in range(KILLS_OF_SPARK_ROUND):
        wanted = committed(stream) + SPARK_FILES_AHEAD
        stream.add_files(files, wanted)
        files = wanted
        killed.append(kill_at_work(stream, chance.uniform(0, LONGEST_SPARK_WORK_SECONDS)))
        lines += trace.lines()
        tally.by_step[last_step(lines, set())] += 1
    with stream.driver() as driver:
        code = driver.wait(harness.PATIENCE_SECONDS * 5)
    lines += trace.lines()
    trace.close()
    if code != 0:
        tally.broken.append(f"a Spark driver that was let alone ended with {code}")
    tally.spark_drivers += len(killed)
    tally.batches += files
    _judge_spark(stream, files, killed, tally)
    tally.broken += [f"trace: {broken}" for broken in check(lines)]
    tally.log_lines += len(lines)


def _judge_spark(stream: harness.Stream, files: int, killed: list[float], tally: _Tally) -> None:
    table = stream.load()
    facts = facts_of(table, stream.sink_id)
    if stream.options is UPSERTS:
        broken = rows_once(rows_of_upserts(table), kept_by_upserts(files - 1))
    else:
        broken = rows_once(stream.rows(), harness.expected(range(files)))
    broken += [*batches_contiguous(facts), *files_whole(facts, stored)]
    tally.broken += [str(one) for one in broken]
    tally.orphans += unreferenced(table, facts)
    landed = sorted(snapshot.timestamp_ms for snapshot in table.metadata.snapshots)
    for at, end in zip(killed, [*killed[1:], math.inf], strict=True):
        later = [moment - at for moment in landed if at < moment < end]
        tally.spark_recovery_ms += later[:1]
