"""What older delete files mean for the data files of found rows, and which rows are still there. Pure."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.locate.scan import FILE, POSITION
from lakesink.writer.partitions import Partition
from lakesink.writer.scalars import FALSE

_BLOCK_ROWS = 262_144


@dataclass(frozen=True, slots=True)
class OldFile:
    """A live data file or delete file, as its manifest states it.

    Attributes:
        names: The one data file that a delete file names, by its manifest; empty for several, and for a data file.
        lower: Lower bound of the paths in a delete file; empty if unknown.
        upper: Upper bound of the paths in a delete file; empty if unknown.
    """

    path: str
    rows: int
    spec_id: int
    partition: Partition
    sequence_number: int
    names: str = ""
    lower: bytes = b""
    upper: bytes = b""


@dataclass(frozen=True, slots=True)
class OldDeletes:
    """A delete file that applies to some data files of interest; `only` is True if its manifest says it names one."""

    path: str
    rows: int
    data_files: frozenset[str]
    only: bool


def applicable(data: Sequence[OldFile], deletes: Collection[OldFile]) -> list[OldDeletes]:
    """The delete files that may delete rows of these data files, each with these data files.

    Position deletes apply to data files of the same spec and partition whose sequence number is not higher.
    """
    by_path: dict[str, list[OldFile]] = {file.path: [file] for file in data}
    by_partition: dict[tuple[int, Partition], list[OldFile]] = defaultdict(list)
    for file in data:
        by_partition[file.spec_id, file.partition].append(file)
    found = []
    for delete in deletes:
        there = by_path.get(delete.names, []) if delete.names else by_partition[delete.spec_id, delete.partition]
        paths = frozenset(file.path for file in there if _applies(delete, file))
        if paths:
            found.append(OldDeletes(delete.path, delete.rows, paths, bool(delete.names)))
    return found


def not_deleted(rows: pa.Table, positions: Mapping[int, Sequence[pa.Array]]) -> pa.Table:
    """The rows without those at deleted positions, which are by the number of the data file."""
    if not positions or not rows.num_rows:
        return rows
    starts = range(0, rows.num_rows, _BLOCK_ROWS)
    return pa.concat_tables([_not_deleted(rows.slice(start, _BLOCK_ROWS), positions) for start in starts])


def _not_deleted(rows: pa.Table, positions: Mapping[int, Sequence[pa.Array]]) -> pa.Table:
    """Each data file is looked at alone: a join would need a hash table of all deleted positions."""
    column, order, start, deleted = rows[POSITION].combine_chunks(), pc.sort_indices(rows[FILE]), 0, []
    for count in pc.value_counts(rows[FILE].take(order)).to_pylist():
        places = order.slice(start, count["counts"])
        start += count["counts"]
        if arrays := positions.get(count["values"]):
            deleted.append(places.filter(_among(column.take(places), pa.concat_arrays(arrays))))
    found = pa.concat_arrays(deleted) if deleted else pa.nulls(0, order.type)
    if not len(found):
        return rows
    stays = pc.scatter(pa.repeat(FALSE, len(found)), found.cast(pa.int64()), max_index=rows.num_rows - 1)
    return rows.filter(pc.fill_null(stays, fill_value=True))


def positions_by_file(rows: pa.Table) -> dict[int, pa.Array]:
    """The positions of rows by the number of their data file."""
    ordered = rows.select([FILE, POSITION]).sort_by(FILE).combine_chunks()
    counts = pc.value_counts(ordered[FILE])
    found, start = {}, 0
    for count in counts.to_pylist():
        found[count["values"]] = ordered[POSITION].slice(start, count["counts"]).combine_chunks()
        start += count["counts"]
    return found


def merged(arrays: Sequence[pa.Array]) -> pa.Array:
    """Distinct positions of all arrays, in ascending order. To sort them is several times as fast as to hash them."""
    every = pa.chunked_array(arrays, pa.int64()).combine_chunks()
    if not len(every):
        return every
    ordered = every.take(pc.sort_indices(every))
    is_first = pa.concat_arrays([pa.array([True]), pc.not_equal(ordered[1:], ordered[:-1])])
    return ordered.filter(is_first)


def _among(few: pa.Array, many: pa.Array) -> pa.BooleanArray:
    """Which of a few positions are among many. The hash tables are of the few: a file can have many deleted rows."""
    return pc.is_in(few, value_set=many.filter(pc.is_in(many, value_set=few)))


def _applies(delete: OldFile, file: OldFile) -> bool:
    path = file.path.encode()
    same_partition = (delete.spec_id, delete.partition) == (file.spec_id, file.partition)
    within = (not delete.lower or delete.lower <= path) and (not delete.upper or path <= delete.upper)
    return same_partition and within and delete.sequence_number >= file.sequence_number
