"""Which files of a table are compacted: many small ones, and those of which most rows are deleted. Pure."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from lakesink.parquet.partitions import Partition
from lakesink_catalog.manifests.live import PARQUET, LiveFile, LiveFiles

SMALL_BYTES = 4 * 2**20
"""Larger files have enough rows for what each file costs: they stay as they are while most of their rows are live."""
ENOUGH_FILES = 10
"""Of one partition and tier. More than the base of the tiers, so that together they are of a higher one."""
MOST_BYTES = ENOUGH_FILES * SMALL_BYTES
MOST_ROWS = 2_000_000
"""That one compaction reads: it is a pause of the stream, of about a second at most."""
MOST_FILES = 200
"""The same, or twice as many as the batch has added: else a batch of many partitions adds more than are compacted."""
OF_VERSION_1 = 0
"""Sequence number of files from before a table was upgraded: their manifests are not written again."""
MOST_RESTS = 64
"""Batches; a compaction that cannot succeed then costs little."""
_TIER_BITS = 3


@dataclass(frozen=True, slots=True)
class Group:
    """Files of one partition, the oldest first, of which so many are enough."""

    files: tuple[LiveFile, ...]
    enough: int


def choose(
    live: LiveFiles, spec_id: int, target_bytes: int, unsuitable: Collection[str] = (), most_files: int = MOST_FILES
) -> list[Group]:
    """Groups of files of this spec, each of one partition, as far as one compaction may read.

    First small files of about one size, within a factor of eight; the largest groups come first. So many files as are
    enough fit into a file of the target size: a group never becomes as many files again. Then larger files of which
    half of the rows are deleted: for each deleted row, at most one live row is written again. `unsuitable` has paths of
    files to leave out while they have live rows.
    """
    small_bytes, small_rows = min(SMALL_BYTES, target_bytes // ENOUGH_FILES), MOST_ROWS // ENOUGH_FILES
    tiers: dict[tuple[Partition, int], list[LiveFile]] = defaultdict(list)
    dead: dict[Partition, list[LiveFile]] = defaultdict(list)
    deleted = Counter[str]()  # as far as the delete files name a data file each: those of lakesink do
    for file in live.deletes:
        deleted[file.referenced_data_file] += file.record_count
    for file in live.data:
        if file.file_format != PARQUET or file.spec_id != spec_id or file.sequence_number == OF_VERSION_1:
            continue
        if file.path in unsuitable and deleted[file.path] < file.record_count:
            continue
        if file.file_size_bytes <= small_bytes and file.record_count <= small_rows:
            tiers[file.partition, tier(file.file_size_bytes)].append(file)
        elif 2 * deleted[file.path] >= file.record_count:
            dead[file.partition].append(file)
    full = [files for files in tiers.values() if len(files) >= ENOUGH_FILES]
    groups = [(files, ENOUGH_FILES) for files in sorted(full, key=len, reverse=True)]
    groups += [(files, 1) for files in dead.values()]
    return list(_within_limits(groups, most_files))


def tier(size_bytes: int) -> int:
    """Sizes of one tier differ by less than a factor of eight."""
    return max(size_bytes - 1, 0).bit_length() // _TIER_BITS


def _within_limits(groups: Iterable[tuple[list[LiveFile], int]], most_files: int) -> Iterator[Group]:
    """The groups without the files that would be too much: the oldest, which are the likeliest to be unsuitable."""
    age = attrgetter("sequence_number")
    left_bytes, left_rows, left_files = MOST_BYTES, MOST_ROWS, most_files
    for files, enough in groups:
        chosen = []
        for file in sorted(files, key=age, reverse=True):
            if file.file_size_bytes <= left_bytes and file.record_count <= left_rows and left_files:
                chosen.append(file)
                left_bytes -= file.file_size_bytes
                left_rows -= file.record_count
                left_files -= 1
        if len(chosen) >= enough:
            yield Group(tuple(sorted(chosen, key=age)), enough)


@dataclass(slots=True)
class Pace:
    """How many batches compactions rest: none, or twice as many after each one that failed or lost a race."""

    failures: int = field(default=0, init=False)
    rests: int = field(default=0, init=False)

    def is_due(self) -> bool:
        """True if a compaction may be tried after this batch."""
        if self.rests:
            self.rests -= 1
            return False
        return True

    def note(self, *, done: bool) -> None:
        """How the try ended."""
        self.failures = 0 if done else self.failures + 1
        self.rests = 0 if done else min(2**self.failures, MOST_RESTS)
