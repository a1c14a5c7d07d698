"""Sorts rows that memory does not hold: sorted runs on local disk, read again range by range.

A sample of the rows, weighed by their bytes, says where each range ends, as in TeraSort. Rows with equal keys are
divided by their numbers, so that no range is much larger than another.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from lakesink.parquet.order import SortKey, comparable, indices, ways
from lakesink.parquet.positions import in_order

_NUMBER, _ASCENDING = "number", ("ascending", "at_end")
_SAMPLES = 100
"""Rows of each run that tell where each range ends."""


def sorted_ranges(chunks: Iterable[pa.RecordBatch], order: Sequence[SortKey]) -> Iterator[tuple[pa.Table, pa.Array]]:
    """All rows in an order, equal ones as they come, and their numbers from 0: ranges about as large as a chunk."""
    with TemporaryDirectory(prefix="lakesink-") as folder:
        runs, start = list[pa.Table](), 0
        for chunk in chunks:
            numbers = in_order(BitMap64(range(start, start + len(chunk))))
            run = _sorted(pa.Table.from_batches([chunk]).append_column(_NUMBER, numbers), order)
            runs.append(_on_disk(run, Path(folder, str(len(runs)))) if runs else run)
            start += len(chunk)
        if not runs:
            return
        ends = [[0] * len(runs), *_cuts(runs, order), [len(run) for run in runs]]
        for begins, stops in pairwise(ends):
            parts = [run[begin:stop] for run, begin, stop in zip(runs, begins, stops, strict=True)]
            found = _sorted(pa.concat_tables(parts), order)
            if len(found):
                yield found.select(range(found.num_columns - 1)), found.columns[-1].combine_chunks()


def _sorted(rows: pa.Table, order: Sequence[SortKey]) -> pa.Table:
    found = indices(rows, order)
    return rows if found is None else rows.combine_chunks().take(found)


def _on_disk(run: pa.Table, path: Path) -> pa.Table:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, run.schema) as writer:
        writer.write_table(run)
    found = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    path.unlink()  # the mapping keeps it, and nothing stays if the process is killed
    return found


def _cuts(runs: Sequence[pa.Table], order: Sequence[SortKey]) -> list[list[int]]:
    """How many rows of each run come before each end of a range but the last one."""
    if len(runs) < 2:
        return []
    by = [*ways(order), (_NUMBER, *_ASCENDING)]
    keys, weights = list[pa.Table](), list[int]()
    for run in runs:
        every = max(1, len(run) // _SAMPLES)
        middles = range(every // 2, len(run), every)
        keys.append(_keys(run.take(pa.array(middles, pa.int64())), order))
        weights += (run[middle : middle + every].nbytes for middle in middles)  # rows of one key may be the large ones
    sample = pa.concat_tables(keys)
    sample_order = pc.sort_indices(sample, sort_keys=by)
    before = list(accumulate((weights[place] for place in sample_order.to_pylist()), initial=0))
    parts = (before[-1] * number // len(runs) for number in range(1, len(runs)))
    at = [bisect_left(before, part, hi=len(sample) - 1) for part in parts]
    cuts = sample.take(sample_order.take(pa.array(at, pa.int64())))
    found = []
    for run in runs:
        merged = pc.sort_indices(pa.concat_tables([_keys(run, order), cuts]), sort_keys=by)
        places = pc.indices_nonzero(pc.greater_equal(merged, len(run))).to_pylist()
        found.append([place - number for number, place in enumerate(places)])
    return [list(ends) for ends in zip(*found, strict=True)]


def _keys(rows: pa.Table, order: Sequence[SortKey]) -> pa.Table:
    return comparable(rows, order).append_column(_NUMBER, rows.columns[-1])
