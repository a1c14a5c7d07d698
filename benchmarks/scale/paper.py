"""What measured slopes come to at sizes that were not measured: "on paper". Pure.

Each figure lies on the straight line through the measured points, and its row has the formula.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.scale import driver, history, wide
from benchmarks.scale.panel import Line, points_of
from lakesink.settings.table_settings import PROPERTIES
from lakesink_catalog.manifests.merging import MergePolicy

Results = Mapping[str, Mapping[str, Any]]
"""Results as JSON, by their keys."""
Row = tuple[str, ...]
Advice = tuple[str, str]

DAY = 24 * 60
"""Batches, at one a minute."""
TEN_YEARS = (10 * 365 + 2) * DAY
"""Two leap years are in any ten, at least."""
KEPT_DAYS = 5
"""What Spark's `expire_snapshots` keeps if it is not told otherwise."""
KEPT = KEPT_DAYS * DAY
BEARABLE_COMMIT_MS = 50
FEW_VERSIONS = 10
PARTITIONS, TASKS, COLUMNS = 100_000, 2, 13
MAX_RESULT_BYTES = 1024**3
"""Spark's `spark.driver.maxResultSize`."""


@dataclass(frozen=True, slots=True)
class Paper:
    """One question, worked out.

    Attributes:
        title: The question.
        note: How far the figures go beyond what was measured.
        heads: Of the columns.
        rows: Figures, and the formula of each.
        advice: A setting, and the reason with its figures.
    """

    title: str
    note: str
    heads: Row
    rows: Sequence[Row]
    advice: Sequence[Advice]


def papers(results: Results) -> Iterator[Paper]:
    """All questions whose slopes were measured."""
    if history.KEY in results:
        yield ten_years(results)
    if {driver.KEY, wide.KEY} <= results.keys():
        yield many_partitions(results)


def ten_years(results: Results) -> Paper:
    """A batch a minute for ten years, with snapshots that expire and without."""
    line = partial(_line, results, history.KEY)
    metadata, commit = line(history.METADATA, "lakesink"), line(history.COMMIT, "p50")
    longest = max(x for x, _ in points_of(results, history.KEY, history.METADATA, "lakesink"))
    sizes = (KEPT, TEN_YEARS)
    each = partial(_row, sizes=sizes, thing="snapshot")
    rows = [
        each("metadata file", metadata, "MiB"),
        ("metadata written in a day", *(_in_words(metadata.at(size) * DAY, "MiB") for size in sizes), f"{DAY:,} times"),
        each("one commit, median", commit, "ms"),
        each("memory of a process that commits", line(history.MEMORY, history.COMMITTING), "MiB"),
    ]
    for command in (*history.LOOKS, history.AUDIT):
        rows.append(each(f"`{command}`", line(history.SECONDS, command), "s"))
        rows.append(each(f"`{command}`, memory", line(history.MEMORY, command), "MiB"))
    rows.append(("manifests, a file a batch", *[f"at most {_most_manifests(TEN_YEARS):,}"] * 2, _manifests_in_words()))
    return Paper(
        f"Ten years at a batch a minute: {TEN_YEARS:,} batches",
        f"The last figures are for {TEN_YEARS / longest:,.0f} times the longest history that was measured.",
        ("", f"expiry after {KEPT_DAYS} days: {KEPT:,} snapshots", f"no expiry: {TEN_YEARS:,} snapshots", "formula"),
        rows,
        list(_history_advice(metadata, commit)),
    )


def _history_advice(metadata: Line, commit: Line) -> Iterator[Advice]:
    most = (BEARABLE_COMMIT_MS - commit.intercept) / commit.slope
    yield (
        "Spark's `expire_snapshots`, or Trino's, every day",
        (
            f"A commit takes {BEARABLE_COMMIT_MS} ms at {most:,.0f} snapshots, which are {most / DAY:,.1f} days:"
            f" ({BEARABLE_COMMIT_MS} - {commit.intercept:.3g}) / {commit.slope:.3g}. Keep fewer."
        ),
    )
    yield (
        "`write.metadata.delete-after-commit.enabled` = `true`, from the first day",
        (
            f"The default, `false`, leaves {_in_words(metadata.at(KEPT) * DAY, 'MiB')} of metadata files behind"
            f" each day, at {KEPT:,} snapshots."
        ),
    )
    default = _default("write.metadata.previous-versions-max")
    many, few = (_in_words((versions + 1) * metadata.at(KEPT), "MiB") for versions in (default, FEW_VERSIONS))
    yield (
        f"`write.metadata.previous-versions-max` = `{FEW_VERSIONS}`",
        (
            f"At {KEPT:,} snapshots the default of {default} keeps {many}, and {FEW_VERSIONS} keep {few}:"
            " (versions + 1) x metadata file."
        ),
    )
    yield (
        "`commit.manifest-merge.enabled`, `commit.manifest.min-count-to-merge`: the defaults",
        "The number of manifests follows the files, not the snapshots; compaction of small files reduces both.",
    )


def _most_manifests(files: int) -> int:
    """More than half full ones are never merged; of the smaller ones, fewer than a merge takes are in each tier."""
    policy, tiers = MergePolicy(), 1
    while policy.min_count**tiers <= policy.most_entries // 2:
        tiers += 1
    return files * 2 // policy.most_entries + tiers * policy.min_count


def _manifests_in_words() -> str:
    policy = MergePolicy()
    return (
        f"2 x files / {policy.most_entries:,}, and fewer than {policy.min_count} in each tier below,"
        f" for entries of at most {policy.target_size_bytes // policy.most_entries} bytes"
    )


def many_partitions(results: Results) -> Paper:
    """A batch of 100,000 partitions, with a shuffle by partition and without."""
    files = {"hash": PARTITIONS, "none": PARTITIONS * TASKS}
    rows: list[Row] = [
        ("files", *(f"{count:,}" for count in files.values()), f"partitions; without a shuffle x {TASKS}")
    ]
    for name, y, unit in (("the query", wide.SECONDS, "s"), ("memory of one worker", wide.MEMORY, "MiB")):
        lines = [_line(results, wide.KEY, y, wide.line_of(mode)) for mode in files]
        formulas = "; ".join(_formula(line, unit, "partition") for line in lines)
        rows.append((name, *(_in_words(line.at(PARTITIONS), unit) for line in lines), formulas))
    of_driver = partial(_line, results, driver.KEY, label=driver.line_of(COLUMNS))
    receipts = of_driver(driver.RECEIPTS)
    each = partial(_row, sizes=files.values(), thing="file")
    rows.append(each(f"driver: votes and manifest, {COLUMNS} columns", of_driver(driver.SECONDS), "s"))
    rows.append(each(f"receipts, {COLUMNS} columns", receipts, "MB"))
    measured = {
        mode: max(x for x, _ in points_of(results, wide.KEY, wide.SECONDS, wide.line_of(mode))) for mode in files
    }
    return Paper(
        f"{PARTITIONS:,} partitions in one batch",
        f"On {TASKS} cores. The largest batches that were measured have {measured['hash']:,} partitions with"
        f" a shuffle, {measured['none']:,} without.",
        ("", "`hash`", "`none`", "formula"),
        rows,
        list(_wide_advice(receipts)),
    )


def _wide_advice(receipts: Line) -> Iterator[Advice]:
    yield (
        '`write.distribution-mode` = `hash`, or `distribution_mode="hash"`',
        (
            f"One file for each partition, not one for each partition and task: {PARTITIONS:,} files, not"
            f" {PARTITIONS * TASKS:,} with {TASKS} tasks. Not for `bucket` fields, not with `decode`, not in"
            ' `format("lakesink")`.'
        ),
    )
    fits = (MAX_RESULT_BYTES / 1e6 - receipts.intercept) / receipts.slope
    yield (
        "`spark.driver.maxResultSize`: the default of 1 GiB",
        f"Receipts reach it at {fits:,.0f} files in a batch, with {COLUMNS} columns.",
    )
    policy = MergePolicy()
    yield (
        "a coarser partition transform, before anything else",
        (
            f"A manifest with more than {policy.most_entries // 2:,} entries takes no part in merges: batches of so"
            " many files add a manifest each. No setting changes that."
        ),
    )


def _line(results: Results, key: str, y: str, label: str) -> Line:
    return Line.through(points_of(results, key, y, label))


def _row(name: str, line: Line, unit: str, *, sizes: Collection[int], thing: str) -> Row:
    return (name, *(_in_words(line.at(size), unit) for size in sizes), _formula(line, unit, thing))


def _formula(line: Line, unit: str, thing: str) -> str:
    return f"{line.intercept:.3g} {unit} + {line.slope * 1000:.3g} {unit} a thousand {thing}s"


def _in_words(value: float, unit: str) -> str:
    """A value with the unit that suits its size."""
    larger: Mapping[str, tuple[float, str]] = {"MiB": (1024, "GiB"), "GiB": (1024, "TiB"), "ms": (1000, "s")}
    while unit in larger and value >= larger[unit][0]:
        value, unit = value / larger[unit][0], larger[unit][1]
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.2g} {unit}"


def _default(name: str) -> Any:
    [found] = (known.default for known in PROPERTIES if known.name == name)
    return found
