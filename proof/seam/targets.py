"""Targets in memory that can delete rows, the job that routes rows to them, and a driver that dies at any call."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakesink_protocol.change import ContentFile
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.identity import Batch, stream_batch
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.receipt import Receipt, decode, encode
from lakesink_protocol.two_phase import Durability, Payload, TwoPhaseCommitSink
from lakesink_protocol.votes import Vote, Votes

MAIN = "main"
TASKS = 2
Row = tuple[int, int]
"""A key, and the batch that wrote it last."""

Position = tuple[str, int]
"""A row of a data file: the file's path, and the number of the row in it."""
DELETES = "deletes-"
"""Begins the paths of delete files."""


class Died(BaseException):
    """The driver's process ended here."""


def batch(batch_id: int) -> Batch:
    """Batch n reads offsets n to n+1."""
    return stream_batch(batch_id, "query", start=[batch_id], end=[batch_id + 1])


def keys(batch_id: int) -> range:
    """Each batch writes six keys; half of them are those of the batch before."""
    return range(3 * batch_id, 3 * batch_id + 6)


def target_of(key: int) -> str:
    """Every third key belongs to the main target; the others to targets that only their rows name."""
    return MAIN if key % 3 == 0 else f"of-{key % 3}"


def expected(batches: int) -> dict[str, Counter[Row]]:
    """What readers must see after so many batches, by target: the newest row of each key."""
    newest = {key: batch_id for batch_id in range(batches) for key in keys(batch_id)}
    found: dict[str, Counter[Row]] = {}
    for key, batch_id in newest.items():
        found.setdefault(target_of(key), Counter())[key, batch_id] += 1
    return found


@dataclass
class Store:
    """Closed files: rows of data files, positions of delete files. Nothing is ever removed."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    deletes: dict[str, list[Position]] = field(default_factory=dict)
    names: "itertools.count[int]" = field(default_factory=itertools.count)

    def add(self, rows: list[Row]) -> ContentFile:
        path = f"data-{next(self.names)}"
        self.rows[path] = rows
        return self._file(path, len(rows))

    def add_deletes(self, positions: list[Position]) -> ContentFile:
        path = f"{DELETES}{next(self.names)}"
        self.deletes[path] = positions
        return self._file(path, len(positions))

    def _file(self, path: str, count: int) -> ContentFile:
        return ContentFile(path, 0, (), count, count, {}, {}, {}, {}, {}, {}, ())


@dataclass(frozen=True)
class Writer:
    """Stands for a target in the job; the rows are routed by `World.write`."""

    def write(self, task: int, batches: Iterator[Any]) -> bytes:  # noqa: ARG002 - the seam's
        raise AssertionError("the job routes rows")


@dataclass(frozen=True)
class Open:
    """A target that lacks the batch."""

    prepared_log: "Driver"
    writer: Writer = field(default_factory=Writer)


@dataclass(frozen=True)
class Ready:
    """What a target would commit: files."""

    payload: Payload
    recovered: bool = False


@dataclass
class Target:
    """What a target shows: files in the order of their commits, and the batches that it has."""

    files: list[str] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)

    def live(self, store: Store) -> dict[Position, Row]:
        """Rows by position, less those that a delete file names."""
        gone = {position for path in self.files for position in store.deletes.get(path, ())}
        held = {(path, at): row for path in self.files for at, row in enumerate(store.rows.get(path, ()))}
        return {position: row for position, row in held.items() if position not in gone}


@dataclass
class World:
    """All that outlives a driver."""

    store: Store = field(default_factory=Store)
    targets: dict[str, Target] = field(default_factory=dict)
    records: dict[int, Mapping[str, Payload]] = field(default_factory=dict)
    jobs: int = 0

    def seen(self) -> dict[str, Counter[Row]]:
        """What readers see now, by target."""
        return {
            name: Counter(target.live(self.store).values()) for name, target in self.targets.items() if target.files
        }


@dataclass(eq=False)
class Driver:
    """One process: its sinks and its prepared log.

    Attributes:
        calls: How many calls it lives for.
        meets: At which call it stands still, and what happens meanwhile.
    """

    world: World
    calls: int = 10**6
    meets: tuple[int, Callable[[], None]] | None = None
    made: int = 0
    batch_id: int = -1

    def run(self, batch_id: int) -> dict[str, Outcome]:
        self.batch_id = batch_id
        return run_batch(batch(batch_id), [Sink(MAIN, self)], self.write, lambda name: Sink(name, self))

    def step(self) -> None:
        """Dies if it has lived for its calls; stands before and after everything that a driver does."""
        self.made += 1
        if self.made > self.calls:
            raise Died
        if self.meets is not None and self.meets[0] == self.made:
            self.meets[1]()

    def write(self, _: Mapping[str, Any]) -> Votes:
        """Every task writes rows to whatever target they belong to, and deletes the older rows of the same keys."""
        self.step()
        self.world.jobs += 1
        votes = [Vote(task, self._task(self.batch_id, task)) for task in range(TASKS)]
        self.step()
        return Votes(TASKS, votes[::-1])

    def _task(self, batch_id: int, task: int) -> dict[str, bytes]:
        mine = [key for key in keys(batch_id) if key // 3 % TASKS == task]
        files: dict[str, list[ContentFile]] = {MAIN: []}
        for name in sorted({target_of(key) for key in mine}):
            of_target = [key for key in mine if target_of(key) == name]
            live = self.world.targets.get(name, Target()).live(self.world.store)
            old = [position for position, (key, _) in live.items() if key in of_target]
            files[name] = [self.world.store.add([(key, batch_id) for key in of_target])]
            files[name] += [self.world.store.add_deletes(old)] if old else []
        return {name: encode(Receipt(task, _rows(found), tuple(found))) for name, found in files.items()}

    def find(self, batch: Batch) -> Mapping[str, Payload] | None:
        self.step()
        return self.world.records.get(batch.batch_id)

    def put(self, batch: Batch, payloads: Mapping[str, Payload]) -> None:
        self.step()
        self.world.records[batch.batch_id] = payloads
        self.step()

    def landed(self, batch: Batch) -> None:
        self.step()
        self.world.records.pop(batch.batch_id - 1, None)


@dataclass(eq=False)
class Sink(TwoPhaseCommitSink[Open, Ready]):
    """Adds files and deletes rows in one step, and knows its batches."""

    name: str
    driver: Driver
    durability: Durability = Durability.PREPARED_SURVIVES

    @property
    def target(self) -> Target:
        return self.driver.world.targets.setdefault(self.name, Target())

    def begin(self, batch: Batch) -> Open | AlreadyCommitted:
        self.driver.step()
        return AlreadyCommitted(None) if batch.batch_id in self.target.batches else Open(self.driver)

    def recover(self, transaction: Open, payload: Payload) -> Ready | None:  # noqa: ARG002 - the seam's
        self.driver.step()
        return Ready(payload, recovered=True)

    def pre_commit(self, transaction: Open, receipts: Sequence[bytes]) -> Ready:  # noqa: ARG002 - the seam's
        self.driver.step()
        files = [file for receipt in receipts for file in decode(receipt).files]
        return Ready({"batch": self.driver.batch_id, "files": [file.path for file in files]})

    def commit(self, transaction: Open, prepared: Ready) -> Outcome:  # noqa: ARG002 - the seam's
        self.driver.step()
        batch_id = prepared.payload["batch"]
        if batch_id in self.target.batches:
            return AlreadyCommitted(None)
        self.target.files += prepared.payload["files"]
        self.target.batches.append(batch_id)
        self.driver.step()
        return Committed(batch_id, 0, recovered=prepared.recovered)

    def abort(self, transaction: Open) -> None:
        """Nothing is deleted."""


def _rows(files: list[ContentFile]) -> int:
    return sum(file.record_count for file in files if not file.path.startswith(DELETES))
