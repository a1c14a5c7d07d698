"""W10: upserts of random rows of a large table, beside what Spark's users do: ``MERGE INTO`` in `foreachBatch`.

Two streams run in one session. Each table holds the same rows and gets the same changes, in turn, batch by batch; both
must be equal in the end.
"""

import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import lakesink
from benchmarks.oracle import WrongRows
from benchmarks.result import Cell, Goal, Ratio, Result
from benchmarks.session import CATALOG, catalog_properties, iceberg_conf, session

ROWS = 10_000_000
FILES = 20
WARM_UP = 2
LAKESINK, MERGE = "lakesink", "MERGE INTO"
NUMBER, _TEXT = "id", "concat('key-', md5(id::VARCHAR))"
_COLUMNS = """
    SELECT {key} AS id, concat('customer ', id % 100000) AS customer, (id * 7919 + {version}) % 1000003 AS quantity,
        (((id * 104729 + {version}) % 100000000) / 100)::DECIMAL(12, 2) AS price,
        TIMESTAMPTZ '2026-01-01 00:00:00+00' + to_seconds(id % 31536000) AS ordered_at,
        DATE '2026-01-01' + (id % 365)::INTEGER AS ordered_on, id % 7 = 0 AS urgent, {version}::BIGINT AS version
    FROM ({ids})
"""
_MERGE = """
    MERGE INTO {table} t USING changes s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
"""
_ON_READ = ", ".join(f"'write.{verb}.mode' = 'merge-on-read'" for verb in ("merge", "update", "delete"))
_DIGEST = "SELECT count(*), count(DISTINCT id), sum(CAST(xxhash64(*) AS DECIMAL(38, 0))) FROM {table}"


@dataclass(frozen=True, slots=True)
class Work:
    """Batches of changes of random rows, one in a hundred of a new key.

    Attributes:
        changes: Of one batch.
        expression: Of the key.
        goal: How many times as fast as ``MERGE INTO`` lakesink is to be.
    """

    key: str
    title: str
    changes: int
    batches: int
    expression: str
    goal: float


WORKS = (
    Work("10k", "10,000 changes, whole numbers as keys", 10_000, 9, NUMBER, 15),
    Work("100k", "100,000 changes, whole numbers as keys", 100_000, 6, NUMBER, 8),
    Work("text", "10,000 changes, texts of 36 characters as keys", 10_000, 7, _TEXT, 6),
)
Times = Mapping[str, Sequence[int]]
"""Milliseconds of `addBatch` by sink, without those that warm up."""
Say = Callable[[str], None]


def measure(folder: Path, say: Say, scale: float = 1.0) -> Result:
    """All works, into tables of `ROWS` times `scale` rows."""
    folder.mkdir()
    spark = session(iceberg_conf(folder))
    found = {work: _Contest(spark, folder, work, int(ROWS * scale)).run(say) for work in WORKS}
    spark.stop()
    return report(found, int(ROWS * scale))


@dataclass(frozen=True, slots=True)
class _Contest:
    """Two tables of the same rows, and the changes for both."""

    spark: SparkSession
    folder: Path
    work: Work
    rows: int

    @property
    def place(self) -> Path:
        return self.folder / self.work.key

    def table(self, sink: str) -> str:
        return f"bench.{'ours' if sink == LAKESINK else 'merged'}_{self.work.key}"

    def run(self, say: Say) -> Times:
        """Both streams in turn, batch by batch."""
        self._write_rows()
        queries = {sink: self._start(sink) for sink in (LAKESINK, MERGE)}
        found: dict[str, list[int]] = {sink: [] for sink in queries}
        for number in range(self.work.batches):
            changes = self._write_changes(number)
            for sink in queries if number % 2 else reversed(queries):
                found[sink].append(self._batch(queries[sink], changes, self.place / sink))
            say(f"W10/{self.work.key}, batch {number}: {found[LAKESINK][-1]} ms, {found[MERGE][-1]} ms by MERGE INTO")
        for query in queries.values():
            query.stop()
        self._check()
        return {sink: times[WARM_UP:] for sink, times in found.items()}

    def _write_rows(self) -> None:
        for sink in (LAKESINK, MERGE):
            (self.place / sink).mkdir(parents=True)
        each = self.rows // FILES
        for number in range(FILES):
            ids = f"SELECT range AS id FROM range({number * each}, {(number + 1) * each})"
            write_rows(self.place / f"rows-{number:02}.parquet", ids, 0, self.work.expression)
        for sink in (LAKESINK, MERGE):
            rows = self.spark.read.parquet(*(str(path) for path in sorted(self.place.glob("rows-*.parquet"))))
            rows.createOrReplaceTempView("base")
            columns = ", ".join(f"{name} {kind}{' NOT NULL' * (name == 'id')}" for name, kind in rows.dtypes)
            self.spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
            table = f"{CATALOG}.{self.table(sink)}"
            self.spark.sql(f"CREATE TABLE {table} ({columns}) USING iceberg TBLPROPERTIES ({_ON_READ})")
            self.spark.sql(f"ALTER TABLE {table} SET IDENTIFIER FIELDS id")
            self.spark.sql(f"INSERT INTO {table} SELECT * FROM base")

    def _write_changes(self, number: int) -> Path:
        path = self.place / f"changes-{number:02}.parquet"
        chosen = f"hash(range * {self.work.batches} + {number}) % {self.rows}"
        ids = (
            f"SELECT DISTINCT CASE WHEN range % 100 = 0 THEN {self.rows} + {number} * 1000000 + range ELSE {chosen} END"
        )
        changed = f"SELECT id::BIGINT AS id FROM ({ids} AS id FROM range({self.work.changes}))"
        write_rows(path, changed, number + 1, self.work.expression)
        return path

    def _start(self, sink: str) -> StreamingQuery:
        schema = self.spark.read.parquet(str(self.place / "rows-00.parquet")).schema
        changes = self.spark.readStream.schema(schema).parquet(str(self.place / sink))
        checkpoint, table = str(self.place / f"checkpoint of {sink}"), self.table(sink)
        if sink == MERGE:
            return changes.writeStream.option("checkpointLocation", checkpoint).foreachBatch(_merge_into(table)).start()
        catalog = {"catalog": CATALOG, "catalog_properties": catalog_properties(self.folder)}
        how = {"sink_id": "bench", "checkpoint": checkpoint, "mode": "upsert", "keys": ["id"], **catalog}
        return lakesink.stream(changes, table, **how).start()  # type: ignore[arg-type] # names of options

    def _batch(self, query: StreamingQuery, changes: Path, source: Path) -> int:
        """Milliseconds of `addBatch` for one file of changes, which the source sees whole."""
        hidden = source / f".{changes.name}"
        shutil.copyfile(changes, hidden)
        hidden.rename(source / changes.name)
        query.processAllAvailable()
        [times] = [one["durationMs"]["addBatch"] for one in query.recentProgress[-3:] if one["numInputRows"]][-1:]
        return int(times)

    def _check(self) -> None:
        digests = [
            self.spark.sql(_DIGEST.format(table=f"{CATALOG}.{self.table(sink)}")).first() for sink in (LAKESINK, MERGE)
        ]
        ours, theirs = digests
        assert ours is not None
        if ours != theirs or ours[0] != ours[1] or ours[0] <= self.rows:
            raise WrongRows(f"{self.work.key}: {ours} and {theirs} by MERGE INTO")


def write_rows(path: Path, ids: str, version: int, expression: str = NUMBER, options: str = "") -> None:
    """A Parquet file of rows, whose values follow from `id`, which a query gives, and the version."""
    query = _COLUMNS.format(key=expression, version=version, ids=ids)
    with duckdb.connect() as database:
        database.execute("SET enable_progress_bar = false")
        database.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet{options})")


def _merge_into(table: str) -> Callable[[DataFrame, int], None]:
    def merge(rows: DataFrame, _: int) -> None:
        rows.createOrReplaceTempView("changes")
        rows.sparkSession.sql(_MERGE.format(table=f"{CATALOG}.{table}"))

    return merge


def report(found: Mapping[Work, Times], rows: int) -> Result:
    """Medians of `addBatch`, and how many times as long ``MERGE INTO`` takes."""
    lines: list[tuple[Cell, ...]] = []
    goals = []
    for work, times in found.items():
        ratio = Ratio.of(times[MERGE], times[LAKESINK])
        medians = (int(statistics.median(times[sink])) for sink in (LAKESINK, MERGE))
        lines.append((work.title, *medians, str(ratio)))
        goals.append(Goal(f"W10/{work.key}, addBatch against MERGE INTO", work.goal, ratio.median, at_least=True))
    heads = ("changes of one batch", "lakesink ms", "MERGE INTO ms", "times as fast")
    raw = {work.key: {sink: list(each) for sink, each in times.items()} for work, times in found.items()}
    return Result("W10", f"upserts into {rows:,} rows of 8 columns", heads, tuple(lines), tuple(goals), raw=raw)
