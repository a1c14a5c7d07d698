"""Which small files of a table are compacted together. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from lakesink.writer.partitions import Partition
from lakesink_catalog.manifests.live import PARQUET, LiveFile

SMALL_BYTES = 4 * 2**20
"""Larger files stay as they are: they have enough rows for what each file costs."""
ENOUGH_FILES = 10
"""Of one partition and tier. More than the base of the tiers, so that together they are of a higher one."""
MOST_BYTES = ENOUGH_FILES * SMALL_BYTES
"""That one compaction reads: it is a pause of the stream, of at most about half a second."""
MOST_FILES = 200
"""The same, or twice as many as the batch has added: else a batch of many partitions adds more than are compacted."""
MOST_RESTS = 64
"""Batches; a compaction that cannot succeed then costs little."""
_TIER_BITS = 3

Group = tuple[LiveFile, ...]


def are_enough(files: Sequence[object]) -> bool:
    """True if so many files of one partition and tier are compacted."""
    return len(files) >= ENOUGH_FILES


def choose(
    files: Sequence[LiveFile],
    spec_id: int,
    target_bytes: int,
    unsuitable: Collection[str] = (),
    most_files: int = MOST_FILES,
) -> list[Group]:
    """Groups of small files, each of one partition of this spec, and of about one size: within a factor of eight.

    The largest groups come first, as far as one compaction may read. So many files as are enough fit into a file of the
    target size: a group never becomes as many files again. `unsuitable` has paths of files to leave out.
    """
    most_bytes = min(SMALL_BYTES, target_bytes // ENOUGH_FILES)
    tiers: dict[tuple[Partition, int], list[LiveFile]] = defaultdict(list)
    for file in files:
        small = file.file_size_bytes <= most_bytes and file.file_format == PARQUET
        if small and file.spec_id == spec_id and file.path not in unsuitable:
            tiers[file.partition, tier(file.file_size_bytes)].append(file)
    full = filter(are_enough, tiers.values())
    return list(_within_limits(sorted(full, key=len, reverse=True), most_files))


def tier(size_bytes: int) -> int:
    """Sizes of one tier differ by less than a factor of eight."""
    return max(size_bytes - 1, 0).bit_length() // _TIER_BITS


def _within_limits(groups: Sequence[Sequence[LiveFile]], most_files: int) -> Iterator[Group]:
    left_bytes, left_files = MOST_BYTES, most_files
    for members in groups:
        group = []
        for file in sorted(members, key=lambda one: one.sequence_number):
            left_bytes, left_files = left_bytes - file.file_size_bytes, left_files - 1
            if left_bytes < 0 or left_files < 0:
                break
            group.append(file)
        if are_enough(group):
            yield tuple(group)
        if left_bytes < 0 or left_files < 0:
            return


@dataclass(slots=True)
class Pace:
    """How many batches compactions rest: none, or twice as many after each one that failed or lost a race."""

    failures: int = 0
    rests: int = 0

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
