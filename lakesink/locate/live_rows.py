"""What older delete files mean for the data files of found rows, and which rows are still there. Pure."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.locate.scan import FILE, POSITION
from lakesink.writer.partitions import Partition


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
    with_deletes = [(number, array) for number, arrays in positions.items() for array in arrays if len(array)]
    if not with_deletes or not rows.num_rows:
        return rows
    numbers = [pa.repeat(pa.scalar(number, pa.int32()), len(array)) for number, array in with_deletes]
    deleted = pa.table(
        [pa.chunked_array(numbers), pa.chunked_array([array for _, array in with_deletes])], [FILE, POSITION]
    )
    return rows.join(deleted, [FILE, POSITION], join_type="left anti")


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
    """Distinct positions of all arrays, in ascending order."""
    every = pc.unique(pa.chunked_array(arrays, pa.int64()))
    return every.take(pc.sort_indices(every))


def _applies(delete: OldFile, file: OldFile) -> bool:
    path = file.path.encode()
    same_partition = (delete.spec_id, delete.partition) == (file.spec_id, file.partition)
    within = (not delete.lower or delete.lower <= path) and (not delete.upper or path <= delete.upper)
    return same_partition and within and delete.sequence_number >= file.sequence_number
