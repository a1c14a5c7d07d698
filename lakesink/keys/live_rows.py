"""What older delete files mean for the data files of found rows, and which rows are still there. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from lakesink.keys.scan import FILE, POSITION
from lakesink.parquet.partitions import Partition
from lakesink.parquet.positions import in_order, mask_of, positions_of
from lakesink_catalog.manifests.live import FILE_PATH_COLUMN, LiveFile

LARGE_ROWS = 65_536
"""Positions from which on a delete file may stay beside a newer one."""
_LARGE_TIMES = 8
_BLOCK_ROWS = 262_144
_NONE = BitMap64()


@dataclass(frozen=True, slots=True)
class OldDeletes:
    """A delete file that applies to some data files of interest; `only` is True if its manifest says it names one."""

    path: str
    rows: int
    data_files: frozenset[str]
    only: bool


def applicable(data: Sequence[LiveFile], deletes: Collection[LiveFile]) -> list[OldDeletes]:
    """The delete files that may delete rows of these data files, each with these data files.

    Position deletes apply to data files of the same spec and partition whose sequence number is not higher.
    """
    by_path: dict[str, list[LiveFile]] = {file.path: [file] for file in data}
    by_partition: dict[tuple[int, Partition], list[LiveFile]] = defaultdict(list)
    for file in data:
        by_partition[file.spec_id, file.partition].append(file)
    found = []
    for delete in deletes:
        named = delete.referenced_data_file
        there = by_path.get(named, []) if named else by_partition[delete.spec_id, delete.partition]
        paths = frozenset(file.path for file in there if _applies(delete, file))
        if paths:
            found.append(OldDeletes(delete.path, delete.record_count, paths, bool(named)))
    return found


def not_deleted(rows: pa.Table, positions: Mapping[int, BitMap64]) -> pa.Table:
    """The rows without those at deleted positions, which are by the number of the data file."""
    if not positions or not rows.num_rows:
        return rows
    starts = range(0, rows.num_rows, _BLOCK_ROWS)
    return pa.concat_tables([_not_deleted(rows.slice(start, _BLOCK_ROWS), positions) for start in starts])


def _not_deleted(rows: pa.Table, positions: Mapping[int, BitMap64]) -> pa.Table:
    deleted = []
    for file, places, there in _by_file(rows):
        if gone := positions_of(there) & positions.get(file, _NONE):
            deleted.append(places.filter(pc.is_in(there, value_set=in_order(gone))))
    if not deleted:
        return rows
    return rows.filter(pc.invert(mask_of(pa.concat_arrays(deleted).cast(pa.int64()), rows.num_rows)))


def positions_by_file(rows: pa.Table) -> dict[int, BitMap64]:
    """The positions of rows by the number of their data file."""
    return {file: positions_of(there) for file, _, there in _by_file(rows)}


def _by_file(rows: pa.Table) -> Iterator[tuple[int, pa.Array, pa.Array]]:
    """The number of each data file, the places of its rows in the table, and their positions in the file."""
    column, order, start = rows[POSITION].combine_chunks(), pc.sort_indices(rows[FILE]), 0
    for count in pc.value_counts(rows[FILE].take(order)).to_pylist():
        places = order.slice(start, count["counts"])
        start += count["counts"]
        yield count["values"], places, column.take(places)


def merged(new: BitMap64, older: Mapping[str, BitMap64]) -> tuple[list[str], BitMap64]:
    """The older delete files of one data file, by path, whose place a new one takes, and the positions that it has.

    If it took the place of all, one file would be left, but each batch would write all deleted positions again. So a
    large one stays until the newer positions are an eighth of it: a position is written again a few times, as in a
    log-structured merge tree (O'Neil and others, 1996), and a data file has few delete files. One that shares positions
    with others stays too: a snapshot counts positions by file, and would state more live rows than before.
    """
    found, every = list[str](), new
    for path, positions in sorted(older.items(), key=lambda one: len(one[1])):
        if len(positions) >= max(LARGE_ROWS, _LARGE_TIMES * len(every)):
            break
        if every.isdisjoint(positions):
            every = every | positions
            found.append(path)
    return found, every


def _applies(delete: LiveFile, file: LiveFile) -> bool:
    path = file.path.encode()
    same_partition = (delete.spec_id, delete.partition) == (file.spec_id, file.partition)
    lower, upper = (bounds.get(FILE_PATH_COLUMN) for bounds in (delete.lower_bounds, delete.upper_bounds))
    within = (not lower or lower <= path) and (not upper or path <= upper)
    return same_partition and within and delete.sequence_number >= file.sequence_number
