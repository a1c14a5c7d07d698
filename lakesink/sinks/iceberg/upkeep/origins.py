"""Where each row of new files came from, so that rows that are deleted meanwhile are deleted there too. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from lakesink.parquet.partitions import Partition
from lakesink.parquet.positions import in_order, positions_of
from lakesink_protocol.change import ContentFile


@dataclass(slots=True)
class Origins:
    """The rows of each partition in the order in which they were written.

    A row is its number among the live rows of all files that were read, in their order.
    """

    parts: dict[Partition, list[range | pa.Array]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, files: Sequence[ContentFile], numbers: pa.ChunkedArray) -> "Origins":
        """The inverse of `numbers_in`."""
        found, start = cls(), 0
        for partition, count in _rows(files).items():
            part = numbers[start : start + count].combine_chunks()
            found.add(partition, part if len(part) else range(start, start + count))
            start += count
        return found

    def numbers_in(self, files: Sequence[ContentFile]) -> pa.ChunkedArray:
        """The numbers of all rows, partition by partition as in the files; none if all rows are in their order."""
        parts = [part for partition in _rows(files) for part in self.parts[partition]]
        is_plain = len(self.parts) < 2 and all(isinstance(part, range) for part in parts)
        arrays = [in_order(BitMap64(part)) if isinstance(part, range) else part for part in parts]
        return pa.chunked_array([] if is_plain else arrays, pa.int64())

    def add(self, partition: Partition, rows: range | pa.Array) -> None:
        """The next rows of a partition: neighbours, or numbers of 64 bits."""
        self.parts[partition].append(rows)

    def are_all(self, count: int) -> bool:
        """True if each of so many rows is there once."""
        every, rows = BitMap64(), 0
        for part in (part for parts in self.parts.values() for part in parts):
            every |= BitMap64(part) if isinstance(part, range) else positions_of(part)
            rows += len(part)
        return rows == count and len(every) == count and (not count or every.max() == count - 1)

    def find(self, files: Sequence[ContentFile], rows: BitMap64) -> Iterator[tuple[ContentFile, BitMap64]]:
        """The new files with any of these rows, and their positions there; files of a partition are in their order."""
        by_partition: dict[Partition, list[ContentFile]] = defaultdict(list)
        for file in files:
            by_partition[file.partition].append(file)
        for partition, members in by_partition.items():
            there = _places(self.parts[partition], rows)
            starts = accumulate((file.record_count for file in members), initial=0)
            for file, start in zip(members, starts, strict=False):
                inside = there & BitMap64(range(start, start + file.record_count))
                if inside:
                    yield file, BitMap64(place - start for place in inside)


def _rows(files: Sequence[ContentFile]) -> Counter[Partition]:
    """The number of rows of each partition, in the order of the files."""
    found = Counter[Partition]()
    for file in files:
        found[file.partition] += file.record_count
    return found


def _places(parts: Sequence[range | pa.Array], rows: BitMap64) -> BitMap64:
    found, before = BitMap64(), 0
    for part in parts:
        if isinstance(part, range):
            found |= BitMap64(row - part.start + before for row in rows & BitMap64(part))
        else:
            at = pc.indices_nonzero(pc.is_in(part, pa.array(rows, pa.int64()))).cast(pa.int64())
            found |= positions_of(pc.add(at, pa.scalar(before, pa.int64())))
        before += len(part)
    return found


def live_numbers(files: Iterable[tuple[int, BitMap64, BitMap64]]) -> BitMap64 | None:
    """The numbers of rows that are deleted now, and were not before; of each file its rows, and both sets.

    None if a row that was deleted before is not any more.
    """
    found, start = BitMap64(), 0
    for rows, old, now in files:
        if not old.issubset(now):
            return None
        found |= BitMap64(start + place - old.rank(place) for place in now - old)
        start += rows - len(old)
    return found
