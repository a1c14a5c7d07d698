"""Which files of a table are rewritten together: small ones, ones with many deleted rows, ones of older specs. Pure.

For a stream, only files of similar size become one, as in the size-tiered compaction of LSM trees: each row is then
rewritten a logarithmic number of times. A run without a budget puts all small files of a partition together.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from lakesink.keys.live_rows import applicable
from lakesink.parquet.partitions import Partition
from lakesink.upkeep.health import SMALL, is_small
from lakesink_catalog.manifests.live import PARQUET, LiveFile, LiveFiles

DELETED_SHARE = 0.3
"""From this share of deleted rows on, a file is rewritten even alone."""
LARGEST = 1.15
"""Of the target size: a file that is planned larger becomes several."""
MOST_BYTES, MOST_ROWS, MOST_FILES = 2 * 2**30, 50_000_000, 2_000
"""That one group reads: what a failure costs, and what a snapshot changes."""
OF_VERSION_1 = 0
"""Sequence number of files from before a table was upgraded: their manifests are not written again."""
MOST_RESTS = 64
"""Runs; a maintenance that cannot succeed then costs little."""
TWICE, FORMAT, VERSION_1, EQUALITY, LARGE = (
    "twice: the table lists it more than once",
    "format: it is not Parquet",
    "version-1: it is from before the table was upgraded to format version 2",
    "equality-deletes: an equality delete applies to it",
    "large: it is larger than one group may be",
)
Place = tuple[int, Partition]
_age = attrgetter("sequence_number")
_FILE_COSTS = 4 * 2**20
"""Bytes that could be read in the time that each file costs."""
_FIRST_PACE = 16 * 2**20
_TIER_BITS = 3


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
class Choice:
    """Groups, the worst first, and the reasons of files that are due and must stay, by path."""

    groups: tuple[Group, ...]
    left: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Chooser:
    """What is due.

    Attributes:
        spec_id: The present spec: files of others are always due.
        may: False for files that the policy leaves out.
        most_bytes: Of one group; None for a run without a budget.
        left: Reasons of files that are known to be unsuitable, by path.
    """

    spec_id: int
    target_bytes: int
    min_input_files: int
    may: Callable[[LiveFile], bool] = lambda _: True
    most_bytes: int | None = None
    left: Mapping[str, str] = field(default_factory=dict)

    def choose(self, live: LiveFiles) -> Choice:
        """The groups of a head."""
        deleted, paths = deleted_rows(live), Counter(file.path for file in live.data)
        pools: dict[tuple[Place, int], list[LiveFile]] = defaultdict(list)
        left = {}
        for file in live.data:
            if not self._is_due(file, deleted) or not self.may(file):
                continue
            why = self.left.get(file.path) or (TWICE if paths[file.path] > 1 else why_left(file, live.equality))
            if why:
                left[file.path] = why
            else:
                tier = 0 if self.most_bytes is None else _tier(file, deleted)
                pools[place_of(file), tier].append(file)
        groups = [group for pool in pools.values() for group in self._groups(pool, deleted)]
        groups.sort(key=lambda group: group.gain(self.target_bytes), reverse=True)
        return Choice(tuple(groups), left)

    def _is_due(self, file: LiveFile, deleted: Mapping[str, float]) -> bool:
        return file.spec_id != self.spec_id or is_small(file, self.target_bytes) or _is_dead(file, deleted)

    def _groups(self, pool: Sequence[LiveFile], deleted: Mapping[str, float]) -> Iterator[Group]:
        for files in _within_limits(pool, min(MOST_BYTES, self.most_bytes or MOST_BYTES)):
            group = Group(tuple(files), sum(min(deleted.get(one.path, 0), one.record_count) for one in files))
            is_enough = len(files) >= max(2, self.min_input_files)
            fills = len(files) > 1 and group.live_bytes >= self.target_bytes
            # Files of one snapshot may be the parts of a group whose rows differ in size: they would become the same.
            pays = len(files) > len(sizes(group.live_bytes, self.target_bytes)) or len({*map(_age, files)}) > 1
            if (pays and (is_enough or fills)) or any(
                one.spec_id != self.spec_id or _is_dead(one, deleted) for one in files
            ):
                yield group


def sizes(live_bytes: float, target_bytes: int) -> list[float]:
    """Sizes of the files that so many bytes become: equal ones near the target, or full ones and a rest."""
    count = max(1, -int(-live_bytes // (LARGEST * target_bytes)))
    if count == 1 or live_bytes / count >= (SMALL + 0.1) * target_bytes:
        return [live_bytes / count] * count
    full = int(live_bytes // target_bytes)
    return [*[float(target_bytes)] * full, live_bytes - full * target_bytes]


def why_left(file: LiveFile, equality: Collection[LiveFile]) -> str:
    """Why no rewrite can replace a file; empty if one can."""
    if file.file_format != PARQUET:
        return FORMAT
    if file.sequence_number == OF_VERSION_1:
        return VERSION_1
    if file.file_size_bytes > MOST_BYTES or file.record_count > MOST_ROWS:
        return LARGE
    return EQUALITY if any(_may_delete(one, file) for one in equality) else ""


def deleted_rows(live: LiveFiles) -> dict[str, float]:
    """About how many rows of each data file are deleted: a delete file that names none has equal parts of all."""
    deleted: dict[str, float] = defaultdict(float)
    for one in live.deletes:
        if one.referenced_data_file:
            deleted[one.referenced_data_file] += one.record_count
    for each in applicable(live.data, [one for one in live.deletes if not one.referenced_data_file]):
        for path in each.data_files:
            deleted[path] += each.rows / len(each.data_files)
    return deleted


def place_of(file: LiveFile) -> Place:
    """Its spec and partition."""
    return file.spec_id, file.partition


def _is_dead(file: LiveFile, deleted: Mapping[str, float]) -> bool:
    return deleted.get(file.path, 0) >= max(1, DELETED_SHARE * file.record_count)


def _may_delete(equality: LiveFile, file: LiveFile) -> bool:
    """Equality deletes apply to older files of their partition; those without a partition to all older files."""
    same = (equality.spec_id, equality.partition) == (file.spec_id, file.partition)
    return equality.sequence_number > file.sequence_number and (same or not any(equality.partition))


def _tier(file: LiveFile, deleted: Mapping[str, float]) -> int:
    """Sizes of one tier differ by less than a factor of eight; files with many deleted rows are apart."""
    return -1 if _is_dead(file, deleted) else max(file.file_size_bytes - 1, 0).bit_length() // _TIER_BITS


def _within_limits(pool: Sequence[LiveFile], most_bytes: int) -> Iterator[list[LiveFile]]:
    chosen, size, rows = list[LiveFile](), 0, 0
    for file in sorted(pool, key=_age):
        more, of_rows = size + file.file_size_bytes, rows + file.record_count
        if chosen and (more > most_bytes or of_rows > MOST_ROWS or len(chosen) == MOST_FILES):
            yield chosen
            chosen, more, of_rows = [], file.file_size_bytes, file.record_count
        chosen.append(file)
        size, rows = more, of_rows
    if chosen:
        yield chosen


@dataclass(slots=True)
class Pace:
    """How many runs maintenance rests: none, or twice as many after each one that failed or lost a race.

    Attributes:
        bytes_per_second: Of the groups so far, each of which costs as much as 4 MiB beside its bytes.
    """

    bytes_per_second: float = _FIRST_PACE
    failures: int = field(default=0, init=False)
    rests: int = field(default=0, init=False)

    def seconds(self, group: Group) -> float:
        """How long a group will take, about."""
        return (group.bytes + _FILE_COSTS) / self.bytes_per_second

    def most_bytes(self, seconds: float) -> int:
        """Of a group that will take no longer, if there is one."""
        return max(_FILE_COSTS, int(seconds * self.bytes_per_second) - _FILE_COSTS)

    def hope(self) -> None:
        """No group fitted into a run: what was slow once is tried again some time."""
        self.bytes_per_second = max(self.bytes_per_second, min(1.2 * self.bytes_per_second, _FIRST_PACE))

    def see(self, group: Group, seconds: float) -> None:
        """How long a group took."""
        self.bytes_per_second = (self.bytes_per_second + (group.bytes + _FILE_COSTS) / max(seconds, 0.01)) / 2

    def is_due(self) -> bool:
        """True if this run may try."""
        if self.rests:
            self.rests -= 1
            return False
        return True

    def note(self, *, done: bool) -> None:
        """How the try ended."""
        self.failures = 0 if done else self.failures + 1
        self.rests = 0 if done else min(2**self.failures, MOST_RESTS)
