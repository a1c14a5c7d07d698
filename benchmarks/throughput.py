"""W1, W2 and W3: rows a second of whole streams, each sink in turn in one Spark session, again and again."""

import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from benchmarks import data
from benchmarks.oracle import Fingerprint, files_fingerprint, fingerprint, size_of
from benchmarks.result import Goal, Ratio, Result
from benchmarks.session import CATALOG, TABLE_PROPERTIES, catalog_properties, iceberg_conf, session
from benchmarks.sinks import ADD_FILES, APPEND, ICEBERG, LAKESINK, PARQUET, Sink, Target, parsed_by_spark
from benchmarks.usage import Usage, measured
from lakesink.spark.rows.frame_schema import arrow_schema
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table

MIB = 1024 * 1024
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Workload:
    """Rows, and the sinks that write them.

    Attributes:
        key: Short.
        title: In words.
        rows: How many.
        query: Of DuckDB, see `data`.
        sinks: That are compared; lakesink first.
        goal: How many times as fast as Iceberg's own sink lakesink is to be.
        documents: True if the rows travel as JSON.
        partition_by: Of the table.
    """

    key: str
    title: str
    rows: int
    query: str
    sinks: tuple[Sink, ...]
    goal: float
    documents: bool = False
    partition_by: str | None = None

    @property
    def table_properties(self) -> dict[str, str]:
        """The same for every sink that has a table."""
        mode = "hash" if self.partition_by else "none"
        return {**TABLE_PROPERTIES, "write.distribution-mode": mode}


def workloads(scale: float) -> tuple[Workload, ...]:
    """All of them, with so many times their rows."""
    lines, wide, documents = (int(rows * scale) // 4 * 4 for rows in (4_000_000, 600_000, 2_000_000))
    every = (LAKESINK, ICEBERG, PARQUET, ADD_FILES, APPEND)
    partitioned = [
        Workload(
            f"W3/{days}",
            f"{lines:,} rows over {days} partitions, one in ten late, hash distribution",
            lines,
            data.by_day(days, lines),
            (LAKESINK, ICEBERG),
            1.2,
            partition_by="l_shipdate",
        )
        for days in (24, 240)
    ]
    return (
        Workload("W1/13", f"{lines:,} typed rows of 13 columns", lines, data.LINEITEM, every, 1.25),
        Workload("W1/100", f"{wide:,} typed rows of 100 columns", wide, data.hits(), every, 1.25),
        Workload(
            "W2/all",
            f"{documents:,} JSON documents",
            documents,
            data.EVENTS,
            (LAKESINK, ICEBERG, PARQUET),
            2.5,
            documents=True,
        ),
        Workload(
            "W2/optional",
            f"{documents:,} JSON documents, a fifth of the optional keys missing",
            documents,
            data.sparse_events(),
            (LAKESINK, ICEBERG),
            2.0,
            documents=True,
        ),
        *partitioned,
    )


@dataclass(slots=True)
class Run:
    """One stream from its first row to its last."""

    usage: Usage
    files: int
    size: int


@dataclass(slots=True)
class Bench:
    """Where all runs happen.

    Attributes:
        spark: The session.
        folder: Everything is in it.
    """

    spark: SparkSession
    folder: Path
    _runs: int = field(default=0)

    def measure(self, work: Workload, rounds: int) -> Iterator[tuple[Sink, Run]]:
        """Run every sink once to warm up, then all of them so many times, in turn and in turned order."""
        place = self.folder / work.key.replace("/", "-")
        stream, expected = self._prepare(work, place)
        for sink in work.sinks:
            self._run(work, sink, stream, expected)
        for number in range(rounds):
            for sink in work.sinks if number % 2 else work.sinks[::-1]:
                yield sink, self._run(work, sink, stream, expected)
        shutil.rmtree(place)

    def _prepare(self, work: Workload, place: Path) -> tuple["Stream", Fingerprint]:
        query = data.documents(work.query) if work.documents else work.query
        source = data.Source.make(place, query, work.rows)
        schema = self.spark.read.parquet(str(source.folder)).schema
        return Stream(self.spark, source, schema), fingerprint(f"({work.query.format(first=0, last=source.rows)})")

    def _run(self, work: Workload, sink: Sink, stream: "Stream", expected: Fingerprint) -> Run:
        self._runs += 1
        options = {"decode": "json"} if work.documents and sink.decodes else {}
        place = self.folder / f"run-{self._runs}"
        properties = catalog_properties(self.folder)
        target = Target(place, f"bench.run_{self._runs}", properties, options)
        typed = stream.events() if work.documents else stream.rows()
        catalog = connect(CATALOG, properties)
        create_table(
            catalog, target.table, arrow_schema(typed.schema), work.partition_by, properties=work.table_properties
        )
        with measured() as used:
            writer = sink.writer(stream.rows() if options else typed, target).trigger(availableNow=True)
            sink.start(writer, target).awaitTermination()
        files = target.data_files()
        expected.check(sink.name, files_fingerprint(files))
        run = Run(used, len(files), size_of(files))
        table = catalog.load_table(target.table)
        catalog.drop_table(target.table)
        shutil.rmtree(table.location().removeprefix("file://"), ignore_errors=True)
        shutil.rmtree(place, ignore_errors=True)
        return run


@dataclass(frozen=True, slots=True)
class Stream:
    """The same files as a new stream each time, two a batch."""

    spark: SparkSession
    source: data.Source
    schema: StructType

    def rows(self) -> DataFrame:
        """As they are in the files."""
        reader = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", data.FILES // 2)
        return reader.parquet(str(self.source.folder))

    def events(self) -> DataFrame:
        """Documents made into rows by Spark."""
        return parsed_by_spark(self.rows(), data.EVENTS_SCHEMA)


def measure(key: str, folder: Path, say: Callable[[str], None], *, rounds: int = ROUNDS, scale: float = 1.0) -> Result:
    """One of the workloads."""
    [work] = (one for one in workloads(scale) if one.key == key)
    return replace(compare(work, runs_of(work, folder, say, rounds)), rounds=rounds)


def runs_of(work: Workload, folder: Path, say: Callable[[str], None], rounds: int) -> dict[str, list[Run]]:
    """All runs of every sink by its name, in a session of their own."""
    (folder / "warehouse").mkdir(parents=True)
    spark = session(iceberg_conf(folder))
    runs: dict[str, list[Run]] = {sink.name: [] for sink in work.sinks}
    for sink, run in Bench(spark, folder).measure(work, rounds):
        runs[sink.name].append(run)
        say(f"{work.key}: {sink.name} {run.usage.seconds:.2f} s, {run.usage.cpu_seconds:.1f} s of processor")
    spark.stop()
    return runs


def compare(work: Workload, runs: Mapping[str, Sequence[Run]]) -> Result:
    """The runs of every sink by its name as a table, and the goal judged."""
    ours = runs[LAKESINK.name]
    against_iceberg = _ratio(runs[ICEBERG.name], ours)
    goals = [Goal(f"{work.key}, throughput against Iceberg's sink", work.goal, against_iceberg.median, at_least=True)]
    if work.partition_by:
        more = statistics.median(run.files for run in ours) / statistics.median(run.files for run in runs[ICEBERG.name])
        goals.append(Goal(f"{work.key}, files against Iceberg's sink", 1.0, more, at_least=False))
    if work.key.startswith("W1"):
        above = max(run.usage.worker_peak_bytes for run in ours) - interpreter_bytes()
        goals.append(
            Goal(f"{work.key}, a worker's memory above the interpreter", 300, above / MIB, at_least=False, unit=" MiB")
        )
    rows = tuple(_row(name, found, ours, work.rows) for name, found in runs.items())
    heads = ("sink", "seconds", "as fast as it", "processor s", "ratio", "MiB, all", "files", "bytes a row")
    return Result(work.key, work.title, heads, rows, tuple(goals), _raw(runs))


def interpreter_bytes() -> int:
    """Memory of a Python that has what every worker of Spark has, and PyArrow's Parquet."""
    told = "import pyspark.worker, pyarrow.parquet, psutil; print(psutil.Process().memory_info().rss)"
    return int(subprocess.run([sys.executable, "-c", told], check=True, capture_output=True).stdout)


def _row(name: str, found: Sequence[Run], ours: Sequence[Run], rows: int) -> tuple[Any, ...]:
    seconds = [run.usage.seconds for run in found]
    cpu = [run.usage.cpu_seconds for run in found]
    return (
        name,
        round(statistics.median(seconds), 2),
        str(Ratio.of(seconds, [run.usage.seconds for run in ours])),
        round(statistics.median(cpu), 1),
        str(Ratio.of(cpu, [run.usage.cpu_seconds for run in ours])),
        max(run.usage.peak_bytes for run in found) // MIB,
        int(statistics.median(run.files for run in found)),
        round(found[0].size / rows, 1),
    )


def _ratio(theirs: Sequence[Run], ours: Sequence[Run]) -> Ratio:
    return Ratio.of([run.usage.seconds for run in theirs], [run.usage.seconds for run in ours])


def _raw(runs: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    return {name: [asdict(run) for run in found] for name, found in runs.items()}
