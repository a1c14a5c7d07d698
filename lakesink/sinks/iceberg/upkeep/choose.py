"""Which files of a table are rewritten together: small ones, ones with many deleted rows, ones of older specs. Pure.

For a stream, only files of similar size become one, as in the size-tiered compaction of LSM trees: each row is then
rewritten a logarithmic number of times. A run without a budget puts all small files of a partition together.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from lakesink.keys.live_rows import applicable
from lakesink.parquet.partitions import Partition
from lakesink.sinks.iceberg.upkeep.health import SMALL, is_small
from lakesink_catalog.manifests.live import PARQUET, LiveFile, LiveFiles

DELETED_SHARE = 0.3
"""From this share of deleted rows on, a file is rewritten even alone."""
DUE_ALONE = 1_000
"""Between two batches, a small file with fewer deleted rows than this waits until there are several."""
LARGEST, LARGE = 1.1, 1.25
"""Of the target size: a file that is planned larger becomes several, and one that is larger is due."""
MOST_BYTES, MOST_ROWS, MOST_FILES = 2 * 2**30, 50_000_000, 2_000
"""That one group reads: what a failure costs, and what a snapshot changes."""
OF_VERSION_1 = 0
"""Sequence number of files from before a table was upgraded: their manifests are not written again."""
MOST_RESTS = 64
"""Runs; a maintenance that cannot succeed then costs little."""
Place = tuple[int, Partition]
_age = attrgetter("sequence_number")
_FILE_COSTS = 4 * 2**20
"""Bytes that could be read in the time that each file costs."""
_FIRST_PACE = 16 * 2**20
_TIER_BITS, _ROWS_OF_A_FILE = 3, 8


@dataclass(frozen=True, slots=True)
class Group:
    """Files of one partition, the oldest first; `deleted` is about the number of their deleted rows."""

    files: tuple[LiveFile, ...]
    deleted: float = 0

    @property
    def bytes(self) -> int:
        """What is read."""
        return sum(file.file_size_bytes for file in self.files)

    @property
    def rows(self) -> int:
        """Of the files, deleted ones included."""
        return sum(file.record_count for file in self.files)

    @property
    def live_bytes(self) -> float:
        """About what is written again."""
        return self.bytes * (1 - min(1.0, self.deleted / max(1, self.rows)))

    def gain(self, target_bytes: int) -> float:
        """How much less later readers read, for each byte that is read now."""
        saved = _FILE_COSTS * (len(self.files) - len(sizes(self.live_bytes, target_bytes)))
        return (saved + self.bytes - self.live_bytes) / (self.bytes + _FILE_COSTS * len(self.files))


@dataclass(frozen=True, slots=True)
class Limits:
    """Of groups.

    Attributes:
        target_bytes: The target size of data files.
        min_files: So many small files are due, or fewer that fill a file.
        most_bytes: Of one group; None for a run without a budget.
        is_spread: True if groups are rewritten at the same time: then each is about one new file.
    """

    target_bytes: int
    min_files: int
    most_bytes: int | None = None
    is_spread: bool = False

    def of_pool(self, files: Sequence[LiveFile]) -> int:
        """Bytes of one group of these files; a few files must fit into it."""
        most = min(MOST_BYTES, self.most_bytes or MOST_BYTES)
        largest = max(file.file_size_bytes for file in files)
        return min(most, max(int(LARGEST * self.target_bytes), 4 * largest)) if self.is_spread else most


def choose(
    live: LiveFiles, spec_id: int, limits: Limits, left: Mapping[str, str]
) -> tuple[list[Group], dict[str, str]]:
    """The groups of a head, the worst first, and the reasons of files that are due and must stay, by path.

    Args:
        live: Its files.
        spec_id: The present spec: files of others are always due.
        limits: Of groups.
        left: Reasons of files that are known to be unsuitable, by path.
    """
    deleted, paths, alone = deleted_rows(live), Counter(file.path for file in live.data), set[str]()
    pools: dict[tuple[Place, int], list[LiveFile]] = defaultdict(list)
    target_bytes, is_limited = limits.target_bytes, limits.most_bytes is not None
    stays = {}
    for file in live.data:
        is_dead = deleted[file.path] >= max(1, DELETED_SHARE * file.record_count)
        small = is_small(file, target_bytes)
        is_large = not is_limited and file.file_size_bytes > LARGE * target_bytes
        is_large &= file.record_count * target_bytes > _ROWS_OF_A_FILE * file.file_size_bytes  # else it may stay large
        # A stream waits for several of the smallest: else it would write a small table again after each batch.
        waits = small and is_limited and deleted[file.path] < DUE_ALONE
        if file.spec_id != spec_id or is_large or (is_dead and not waits):
            alone.add(file.path)
        elif not small:
            continue
        why = left.get(file.path) or why_left(file, live.equality, paths[file.path])
        if why:
            stays[file.path] = why
            continue
        size = max(file.file_size_bytes - 1, 0).bit_length() // _TIER_BITS  # of one tier within a factor of eight
        tier = 0 if not is_limited else -1 if is_dead else size
        pools[place_of(file), tier].append(file)
    found = (files for pool in pools.values() for files in _divided(pool, limits))
    groups = (Group(files, sum(min(deleted[one.path], one.record_count) for one in files)) for files in found)
    due = [one for one in groups if _is_enough(one, limits) or any(file.path in alone for file in one.files)]
    return sorted(due, key=lambda group: group.gain(target_bytes), reverse=True), stays


def _is_enough(group: Group, limits: Limits) -> bool:
    files, count, target_bytes = group.files, len(group.files), limits.target_bytes
    # Files of one snapshot may be the parts of a group whose rows differ in size: they would become the same.
    pays = count > len(sizes(group.live_bytes, target_bytes)) or len({*map(_age, files)}) > 1
    return count > 1 and pays and (count >= limits.min_files or group.live_bytes >= target_bytes)


def sizes(live_bytes: float, target_bytes: int) -> list[float]:
    """Sizes of the files that so many bytes become: equal ones near the target, or full ones and a rest."""
    count = max(1, -int(-live_bytes // (LARGEST * target_bytes)))
    if count == 1 or live_bytes / count >= (SMALL + 0.1) * target_bytes:
        return [live_bytes / count] * count
    full = int(live_bytes // target_bytes)
    return [*[float(target_bytes)] * full, live_bytes - full * target_bytes]


def why_left(file: LiveFile, equality: Collection[LiveFile], times: int) -> str:
    """Why no rewrite can replace a file that the table lists so many times; empty if one can."""
    if times > 1:
        return "twice: the table lists it more than once"
    if file.file_format != PARQUET:
        return "format: it is not Parquet"
    if file.sequence_number == OF_VERSION_1:
        return "version-1: it is from before the table was upgraded to format version 2"
    if file.file_size_bytes > MOST_BYTES or file.record_count > MOST_ROWS:
        return "large: it is larger than one group may be"
    return (
        "equality-deletes: an equality delete applies to it" if any(_may_delete(one, file) for one in equality) else ""
    )


def deleted_rows(live: LiveFiles) -> dict[str, float]:
    """About how many rows of each data file are deleted: a delete file that names none has equal parts of all."""
    deleted: dict[str, float] = defaultdict(float)
    for each in applicable(live.data, live.deletes):
        for path in each.data_files:
            deleted[path] += each.rows / len(each.data_files)
    return deleted


def place_of(file: LiveFile) -> Place:
    """Its spec and partition."""
    return file.spec_id, file.partition


def _may_delete(equality: LiveFile, file: LiveFile) -> bool:
    """Equality deletes apply to older files of their partition; those without a partition to all older files."""
    same = (equality.spec_id, equality.partition) == (file.spec_id, file.partition)
    return equality.sequence_number > file.sequence_number and (same or not any(equality.partition))


def _divided(pool: Sequence[LiveFile], limits: Limits) -> list[tuple[LiveFile, ...]]:
    groups = list(_within_limits(pool, limits.of_pool(pool)))
    if limits.is_spread and len(groups) > 1 and not _is_enough(Group(groups[-1]), limits):  # the rest would stay small
        groups[-2:] = [groups[-2] + groups[-1]]
    return groups


def _within_limits(pool: Sequence[LiveFile], most_bytes: int) -> Iterator[tuple[LiveFile, ...]]:
    chosen, size, rows = list[LiveFile](), 0, 0
    for file in sorted(pool, key=_age):
        more, of_rows = size + file.file_size_bytes, rows + file.record_count
        if chosen and (more > most_bytes or of_rows > MOST_ROWS or len(chosen) == MOST_FILES):
            yield tuple(chosen)
            chosen, more, of_rows = [], file.file_size_bytes, file.record_count
        chosen.append(file)
        size, rows = more, of_rows
    if chosen:
        yield tuple(chosen)


@dataclass(slots=True)
class Pace:
    """How many runs maintenance rests: none, or twice as many after each one that failed or lost a race.

    Attributes:
        bytes_per_second: Of the groups so far, each of which costs as much as 4 MiB beside its bytes; at first a guess.
    """

    bytes_per_second: float = _FIRST_PACE
    is_guess: bool = field(default=True, init=False)
    failures: int = field(default=0, init=False)
    rests: int = field(default=0, init=False)

    def seconds(self, group: Group) -> float:
        """How long a group will take, about; 0 for the first one, which is tried in any case."""
        return 0.0 if self.is_guess else (group.bytes + _FILE_COSTS) / self.bytes_per_second

    def bytes_in(self, seconds: float) -> int:
        """How large a group may be that takes so long."""
        return max(_FILE_COSTS, int(seconds * self.bytes_per_second) - _FILE_COSTS)

    def hope(self) -> None:
        """No group fitted into a run: what was slow once is tried again some time."""
        self.bytes_per_second = max(self.bytes_per_second, min(1.2 * self.bytes_per_second, _FIRST_PACE))

    def see(self, group: Group, seconds: float) -> None:
        """How long a group took."""
        self.is_guess = False
        self.bytes_per_second = (self.bytes_per_second + (group.bytes + _FILE_COSTS) / max(seconds, 0.01)) / 2

    def is_due(self) -> bool:
        """True if a run with a budget may try."""
        if self.rests:
            self.rests -= 1
            return False
        return True

    def note(self, *, done: bool, failed: bool, min_files: int) -> None:
        """How the try ended. Where nothing was due, almost nothing is before so many more files."""
        self.failures = self.failures + 1 if failed and not done else 0
        self.rests = 0 if done else min(2**self.failures if failed else min_files - 1, MOST_RESTS)
