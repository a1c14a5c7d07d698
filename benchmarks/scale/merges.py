"""Commits to a table as its files become many: the median, the slowest, and the longest merge of manifests.

The table's history is made at once, by the code that commits; merges are timed while it is made. Then real commits
follow. Seconds are those of the processor: other work on the machine would show first in the slowest commits.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from benchmarks.commit_latency import commit_once, fenced
from benchmarks.long_table import TABLE, Merge, listed_files, make_large_table
from benchmarks.result import Goal, Result, quantile
from benchmarks.scale.panel import Panel
from lakesink_catalog.connect.catalog import connect
from lakesink_protocol.change import ContentFile
from lakesink_protocol.identity import Batch

KEY = "files"
FILES_A_BATCH, SHORT_FILES_A_BATCH = (1, 10, 100, 1_000), (1, 50)
BATCHES, SHORT_BATCHES = 1_000, 150
COMMITS = 220
"""So many that a merge of a hundred small manifests happens twice, and p99 is one of them."""
COLUMNS = 13
LONGEST_MERGE_SECONDS, MOST_TIMES_MEDIAN = 0.5, 5
COMMIT, MANIFESTS = "commit, ms of processor", "manifests in the list"


@dataclass(frozen=True, slots=True)
class Grown:
    """A table with so many batches of so many files, and commits on top of it.

    Attributes:
        batches: Of its history.
        files_a_batch: Of each.
        manifests: In the list of its newest snapshot, before the commits.
        longest: The longest merge.
        small: Milliseconds of commits of one file.
        alike: Milliseconds of commits of as many files as the batches before.
    """

    batches: int
    files_a_batch: int
    manifests: int
    longest: Merge
    small: Sequence[float]
    alike: Sequence[float]

    @property
    def files(self) -> int:
        """In the table, before the commits."""
        return self.batches * self.files_a_batch


def measure(folder: Path, say: Callable[[str], None], *, short: bool = False) -> Result:
    """One table after the other."""
    found = []
    for files in SHORT_FILES_A_BATCH if short else FILES_A_BATCH:
        batches = SHORT_BATCHES if short else BATCHES
        say(f"{KEY}: {batches:,} batches of {files:,} files")
        place = folder / str(files)
        place.mkdir(parents=True)
        properties = {"type": "sql", "uri": f"sqlite:///{place / 'catalog.db'}", "warehouse": f"file://{place}"}
        found.append(_grown(connect("bench", properties), batches, files))
    return report(found)


def _grown(catalog: Catalog, batches: int, files: int) -> Grown:
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(COLUMNS)])
    merges = make_large_table(catalog, schema, batches, files)
    longest = max(merges, key=lambda merge: merge.cpu_seconds, default=Merge(0, 0, 0))
    table = catalog.load_table(TABLE)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = len(snapshot.manifests(table.io))
    small = _commits(catalog, batches, 1)
    return Grown(batches, files, manifests, longest, small, _commits(catalog, batches + COMMITS, files))


def _commits(catalog: Catalog, first: int, files: int) -> list[float]:
    fence, listed = fenced(catalog, TABLE), partial(_listed, files=files)
    return [commit_once(fence, number, listed, time.process_time) for number in range(first, first + COMMITS)]


def _listed(table: Table, batch: Batch, files: int) -> list[ContentFile]:
    return listed_files(table, batch.batch_id, files)


def report(found: Sequence[Grown]) -> Result:
    """A row for each table, and the goals judged at the largest."""
    heads = (
        "files in the table", "files a batch", "manifests", "longest merge s", "of entries",
        "commit of one file, ms p50/p99/worst", "commit of a batch's files, ms p50/p99/worst",
    )  # fmt: skip
    largest = found[-1]
    where = f"{largest.files_a_batch:,} files a batch"
    goals = [
        Goal(f"longest merge, {where}", LONGEST_MERGE_SECONDS, largest.longest.cpu_seconds, at_least=False, unit=" s")
    ]
    for files, times in ((1, largest.small), (largest.files_a_batch, largest.alike)):
        name = f"p99 of a commit of {files:,} file{'s'[: files > 1]} to its median at {largest.files:,} files"
        goals.append(Goal(name, MOST_TIMES_MEDIAN, quantile(times, 99) / statistics.median(times), at_least=False))
    lines = {
        "p50, one file": [(one.files, statistics.median(one.small)) for one in found],
        "p99, one file": [(one.files, quantile(one.small, 99)) for one in found],
        "p99, a batch's files": [(one.files, quantile(one.alike, 99)) for one in found],
        "longest merge": [(one.files, one.longest.cpu_seconds * 1000) for one in found if one.longest.entries],
    }
    panels = [
        Panel("files in the table", COMMIT, lines),
        Panel("files in the table", MANIFESTS, {"lakesink": [(one.files, one.manifests) for one in found]}),
    ]
    title = "commits and merges by the files in the table"
    return Result(KEY, title, heads, tuple(map(_row, found)), tuple(goals), panels)


def _row(one: Grown) -> tuple[str | float | int, ...]:
    commits = [
        "/".join(f"{value:.0f}" for value in (statistics.median(times), quantile(times, 99), max(times)))
        for times in (one.small, one.alike)
    ]
    longest = round(one.longest.cpu_seconds, 2), f"{one.longest.entries:,}"
    return f"{one.files:,}", f"{one.files_a_batch:,}", one.manifests, *longest, *commits
