"""How many tasks write a batch: as many as its size justifies, and never more than Spark has planned.

Sources plan their tasks by their own partitions: 32 partitions of a Kafka topic are 32 tasks, also for ten rows. Each
task has a cost, and each writes a file. So partitions are joined before their rows reach Python, without a shuffle, as
Spark's adaptive execution joins the partitions of a shuffle. The size of a batch is an estimate: what is known before
the batch is read, times what earlier batches of the run came to. If it is wrong, a batch takes longer or has more
files. This module decides from numbers only.
"""

from collections import defaultdict, deque
from dataclasses import dataclass, field
from enum import Enum
from statistics import median_low

from lakesink.rows.libraries import version_numbers

LEAST_TASK_BYTES = 16 * 1024 * 1024
"""A task that has less is worth less than what it costs, even while other cores are idle."""

FULL_TASK_BYTES = 64 * 1024 * 1024
"""Once every core has a task, another one is planned for each so many bytes: Spark's advisory size of a partition."""

TASK_SECONDS = 1.0
"""A task that took so long is worth its cost, however few bytes it had: the query may compute much for each row."""

MOST_PARTITIONS = 64
"""Joined in one task before a batch was measured, because each may take long to open, or if readers stay open.

Spark itself caches 64 consumers of Kafka.
"""

READERS_CLOSE_SINCE = "4.1.2"
"""The first Spark in which the reader of a partition is closed before the next one of the same task opens."""

REMEMBERED_BATCHES = 8


class Unit(Enum):
    """What is known of a batch before it is read, and the Arrow bytes of one unit until a batch was measured."""

    ROWS = 1024
    INPUT_BYTES = 4
    BATCH = None


@dataclass(frozen=True, slots=True)
class InputSize:
    """Rows, bytes of input files, or just one batch."""

    unit: Unit
    count: int


def input_size(rows: int | None, file_bytes: int | None) -> InputSize:
    """The best known size of a batch; None: the source does not say."""
    if rows is not None:
        return InputSize(Unit.ROWS, rows)
    return InputSize(Unit.BATCH, 1) if file_bytes is None else InputSize(Unit.INPUT_BYTES, file_bytes)


def closes_readers(spark_version: str) -> bool:
    """True if a task has one reader open at a time, however many partitions it joins."""
    return version_numbers(spark_version) >= version_numbers(READERS_CLOSE_SINCE)


@dataclass(slots=True)
class TaskCount:
    """Learns from the batches of one run how many tasks the next one is worth.

    Attributes:
        cores: Tasks that run at once.
        runs_functions: True if the query runs functions of the user, whose time is unknown until it was measured.
        closes_readers: See the function of this name.
    """

    cores: int
    runs_functions: bool = False
    closes_readers: bool = True
    _measured: dict[Unit, deque[tuple[float, float]]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=REMEMBERED_BATCHES))
    )

    def record(self, size: InputSize, arrow_bytes: int, seconds: float) -> None:
        """Record the Arrow bytes of a written batch, and the seconds of its tasks added up."""
        if size.count:
            self._measured[size.unit].append((arrow_bytes / size.count, seconds / size.count))

    def tasks(self, size: InputSize, partitions: int) -> int:
        """Tasks for a batch of so many partitions."""
        measured = self._measured[size.unit]
        if not measured and (self.runs_functions or size.unit.value is None):
            return partitions
        arrow_bytes = size.count * max((one for one, _ in measured), default=size.unit.value or 0)
        # The middle one: a worker's first task also imports what it needs, and a batch may be filtered to nothing.
        seconds = size.count * (median_low(one for _, one in measured) if measured else 0)
        least = 1 if measured and self.closes_readers else -(-partitions // MOST_PARTITIONS)
        by_bytes = max(int(arrow_bytes / FULL_TASK_BYTES), min(self.cores, int(arrow_bytes / LEAST_TASK_BYTES)))
        return min(partitions, max(by_bytes, int(seconds / TASK_SECONDS), least, 1))


@dataclass(frozen=True, slots=True)
class BatchTasks:
    """The number of tasks of one batch."""

    count: TaskCount
    size: InputSize

    def of(self, partitions: int) -> int:
        """Tasks for so many partitions."""
        return self.count.tasks(self.size, partitions)

    def record(self, arrow_bytes: int, seconds: float) -> None:
        """See `TaskCount.record`."""
        self.count.record(self.size, arrow_bytes, seconds)
