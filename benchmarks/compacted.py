"""W19: one table compacted by lakesink and by Spark's `rewrite_data_files`, in turn and in one session.

Every round has new tables of the same files: what is replaced stays, so each compaction reads what the others read.
Target size, codec and level are the table's. A compaction of another table comes first, by both. The rows of the new
files are compared by DuckDB with the rows of the old ones.
"""

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyroaring import BitMap64
from pyspark.sql import SparkSession

import lakesink
from benchmarks import data
from benchmarks.oracle import Fingerprint, fingerprint
from benchmarks.result import Cell, Goal, Ratio, Result
from benchmarks.session import CATALOG, CODEC, TABLE_PROPERTIES, catalog_properties, iceberg_conf, session
from benchmarks.usage import Usage, measured
from lakesink.parquet.deletes import DeletedRows, write_deletes
from lakesink.sinks.iceberg.upkeep.policy import Policy
from lakesink_catalog.commit.change_commit import ChangeCommit
from lakesink_catalog.commit.table_change import Change
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table
from lakesink_protocol.identity import MAIN_BRANCH
from lakesink_tools.operate.maintain import maintenance_of

TARGET_BYTES = 64 * 2**20
ROUNDS = 3
LAKESINK, EXECUTORS, SPARK = "lakesink, one process", "lakesink, executors", "Spark"
_COMPACT = f"CALL {CATALOG}.system.rewrite_data_files(table => '{{table}}')"
_DELETED = "hash(l_orderkey, 'deleted') % 10 = 0"
_IDS = ", ".join(f"{name}: {number}" for number, name in enumerate(re.findall(r"\bas (l_\w+)", data.LINEITEM), 1))
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Before:
    """The table that is compacted.

    Attributes:
        rows: Of a file.
        is_changed: True if a tenth of the rows is deleted by position.
    """

    key: str
    title: str
    files: int
    rows: int
    is_changed: bool


TABLES = (
    Before("small", "files of about 0.5 MiB", 1_000, 16_000, is_changed=False),
    Before("changed", "files of about 4 MiB, a tenth of their rows deleted", 200, 128_000, is_changed=True),
)


@dataclass(frozen=True, slots=True)
class After:
    """What one compaction left, and what it cost."""

    usage: Usage
    files: int
    bytes: int
    delete_files: int


Compact = Callable[[str], object]
Found = Mapping[str, Sequence[After]]
"""By who compacted."""


def ways(spark: SparkSession, folder: Path) -> Mapping[str, Compact]:
    """Who compacts a table by its name."""
    catalog = {"catalog": CATALOG, "catalog_properties": catalog_properties(folder)}
    opened = connect(CATALOG, catalog_properties(folder))
    return {
        LAKESINK: lambda table: maintenance_of(opened, table, MAIN_BRANCH, Policy()).run(),
        EXECUTORS: lambda table: lakesink.maintain_table(table, **catalog, spark=spark),  # type: ignore[arg-type] # names
        SPARK: lambda table: spark.sql(_COMPACT.format(table=table)).collect(),
    }


def measure(folder: Path, say: Say, scale: float = 1.0, rounds: int = ROUNDS) -> Result:
    """Compact each table by each; a scale below 1 leaves files out, and makes none smaller."""
    (folder / "warehouse").mkdir(parents=True)
    spark = session(iceberg_conf(folder))
    contest = _Contest(folder, connect(CATALOG, catalog_properties(folder)), ways(spark, folder), say)
    contest.run(Before("warm", "", 8, 16_000, is_changed=True), 1)
    sizes = [Before(one.key, one.title, math.ceil(one.files * scale), one.rows, one.is_changed) for one in TABLES]
    found = {before: contest.run(before, rounds) for before in sizes}
    spark.stop()
    return report(found, rounds)


@dataclass(frozen=True, slots=True)
class _Contest:
    folder: Path
    catalog: Catalog
    ways: Mapping[str, Compact]
    say: Say

    def run(self, before: Before, rounds: int) -> Found:
        """So many compactions by each, in turn and in turned order."""
        files = self._write(before)
        wanted = fingerprint(_live(files, is_changed=before.is_changed))
        found: dict[str, list[After]] = {name: [] for name in self.ways}
        for number in range(rounds):
            for place, name in enumerate(list(self.ways)[:: 1 if number % 2 else -1]):
                table = f"bench.{before.key}_{number}_{place}"
                found[name].append(self._compact(table, name, files, before, wanted))
                used = found[name][-1].usage
                self.say(f"W19/{before.key}, {name}: {used.seconds:.1f} s, {used.cpu_seconds:.1f} s of processor")
        return found

    def _write(self, before: Before) -> list[Path]:
        place, found = self.folder / before.key, []
        place.mkdir()
        for number in range(before.files):
            found.append(place / f"{number:04}.parquet")
            rows = data.LINEITEM.format(first=number * before.rows, last=(number + 1) * before.rows)
            data.write(found[-1], rows, f", FIELD_IDS {{{_IDS}}}, COMPRESSION zstd")
        return found

    def _table(self, name: str, files: Sequence[Path]) -> Table:
        properties = {**TABLE_PROPERTIES, "write.target-file-size-bytes": str(TARGET_BYTES)}
        table = create_table(self.catalog, name, pq.read_schema(files[0]), properties=properties)
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            for path in files:
                append.append_data_file(_data_file(path))
        return self.catalog.load_table(name)

    def _compact(self, name: str, way: str, files: Sequence[Path], before: Before, wanted: Fingerprint) -> After:
        table = self._table(name, files)
        if before.is_changed:
            delete(table)
        with measured() as usage:
            self.ways[way](name)
        tasks = list(self.catalog.load_table(name).scan().plan_files())
        paths = [_local(task.file.file_path) for task in tasks]
        wanted.check(way, fingerprint(_live(paths)))
        footers = [pq.read_metadata(path).row_group(0) for path in paths]
        codecs = {footer.column(place).compression for footer in footers for place in range(footer.num_columns)}
        assert codecs == {CODEC.upper()}, f"{way} wrote {codecs}"
        size = sum(task.file.file_size_in_bytes for task in tasks)
        deletes = self.catalog.load_table(name).inspect.delete_files().num_rows
        return After(usage, len(paths), size, deletes)


def _data_file(path: Path) -> DataFile:
    file = DataFile.from_args(
        file_path=path.as_uri(),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=pq.read_metadata(path).num_rows,
        file_size_in_bytes=path.stat().st_size,
    )
    file.spec_id = 0
    return file


def _local(path: str) -> str:
    """A path without the scheme, which Spark and PyIceberg spell in two ways."""
    return "/" + path.removeprefix("file:").lstrip("/")


def _live(paths: Sequence[object], *, is_changed: bool = False) -> str:
    """The rows of files, without those that are deleted."""
    where = f" WHERE NOT ({_DELETED})" if is_changed else ""
    return f"(SELECT * FROM read_parquet({[str(path) for path in paths]}, hive_partitioning = false){where})"


def delete(table: Table) -> None:
    """Delete a tenth of the rows of each file, as a batch of upserts does."""
    deleted = []
    with duckdb.connect() as database:
        for task in table.scan().plan_files():
            path = task.file.file_path
            places = (
                f"SELECT file_row_number FROM read_parquet('{_local(path)}', file_row_number = true) WHERE {_DELETED}"
            )
            positions = BitMap64(place for (place,) in database.execute(places).fetchall())
            deleted.append(DeletedRows(path, 0, (), positions))
    files = write_deletes(deleted, f"{table.location()}/data", "bench", lambda one: table.io.new_output(one).create())

    def make(head: Table, snapshot_id: int) -> Change:
        parent_id = head.metadata.current_snapshot_id
        return Change("main", parent_id, snapshot_id, says={}, deletes=tuple(files))

    ChangeCommit(table.refresh, "bench").run(table, make)


def report(found: Mapping[Before, Found], rounds: int) -> Result:
    """Medians, and how many times as long Spark takes."""
    lines: list[tuple[Cell, ...]] = []
    goals = []
    for before, by_way in found.items():
        theirs = by_way[SPARK]
        for name, each in by_way.items():
            wall, cpu = (
                Ratio.of([getattr(one.usage, what) for one in theirs], [getattr(one.usage, what) for one in each])
                for what in ("seconds", "cpu_seconds")
            )
            lines.append((f"{before.files:,} {before.title}", name, *_medians(each), str(wall), str(cpu)))
        ours = by_way[LAKESINK]
        ratio = Ratio.of([one.usage.seconds for one in theirs], [one.usage.seconds for one in ours])
        goals.append(Goal(f"W19/{before.key}, one process against Spark", 1.0, ratio.median, at_least=True))
        if EXECUTORS in by_way:
            ratio = Ratio.of([one.usage.seconds for one in theirs], [one.usage.seconds for one in by_way[EXECUTORS]])
            goals.append(Goal(f"W19/{before.key}, executors against Spark", 1 / 1.2, ratio.median, at_least=True))
    heads = (
        *("table", "compacted by", "files", "MiB", "delete files", "seconds", "processor s", "MiB, all", "MiB, Python"),
        *("as fast as it", "ratio"),
    )
    raw = {before.key: {name: [_raw(one) for one in each] for name, each in by.items()} for before, by in found.items()}
    return Result("W19", "one table, compacted", heads, tuple(lines), tuple(goals), raw=raw, rounds=rounds)


def _medians(found: Sequence[After]) -> tuple[Cell, ...]:
    last, used = found[-1], [one.usage for one in found]
    wall = round(statistics.median(one.seconds for one in used), 2)
    cpu = round(statistics.median(one.cpu_seconds for one in used), 2)
    memory = max(one.peak_bytes for one in used), max(one.own_peak_bytes for one in used)
    return last.files, round(last.bytes / 2**20), last.delete_files, wall, cpu, *(round(one / 2**20) for one in memory)


def _raw(one: After) -> dict[str, float]:
    return {"seconds": one.usage.seconds, "cpu_seconds": one.usage.cpu_seconds, "peak_bytes": one.usage.peak_bytes}
