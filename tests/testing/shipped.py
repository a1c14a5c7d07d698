"""What the tests of the sinks that lakesink ships share; light, for each process of the suite imports it."""

import functools

import pyarrow.parquet as pq

MOST_STEPS = 5
"""So many of several hundred steps; each of them is the whole commit of two drivers."""

FAILPOINTS = ("while-writing", "before-call", "after-call")


@functools.cache
def rows_of(path: str) -> list[tuple[int, int]]:
    """A data file never changes."""
    read = pq.read_table(path).to_pydict()
    return list(zip(read["batch"], read["position"], strict=True))
