"""W14: what a read of a table costs after a hundred batches of upserts: by Spark, Trino and DuckDB.

The same query reads three snapshots of one table, in turn: as loaded, after the batches, and compacted.
"""

import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import SparkSession

import lakesink
from benchmarks.large_table import COLUMNS, LargeFiles, RandomChanges
from benchmarks.oracle import WrongRows
from benchmarks.result import Cell, Goal, Ratio, Result
from benchmarks.session import CATALOG, catalog_properties, iceberg_conf, session
from lakesink_catalog.connect.catalog import connect
from servers import duckdb_engine
from servers.trino import Trino, trino

ROWS, FILES = 10_000_000, 20
CHANGES, BATCHES = 10_000, 100
WARM_UP, READS = 1, 5
TABLE = "bench.changed"
LOADED, CHANGED, COMPACTED = "loaded", "changed", "compacted"
GOALS = {"Spark": 2.0, "Trino": 2.0, "DuckDB": 4.0}
"""How many times as long a read may take as of the compacted table."""
_READ = "SELECT count(*), sum(quantity), sum(version) FROM {source}"
_NEWEST = "(SELECT * FROM read_parquet({files}) QUALIFY row_number() OVER (PARTITION BY id ORDER BY version DESC) = 1)"
_COMPACT = f"CALL {CATALOG}.system.rewrite_data_files(table => '{TABLE}', options => map('rewrite-all', 'true'))"
_DUCKDB = """
import json, sys, time, duckdb
asked = json.load(sys.stdin)
connection = duckdb.connect(config={"extension_directory": asked["extensions"], "threads": 2})
connection.execute("SET enable_progress_bar = false")  # it is drawn on standard output
connection.execute("LOAD iceberg")
for query in asked["queries"]:
    started = time.monotonic()
    row = connection.execute(query).fetchall()[0]
    print(json.dumps([time.monotonic() - started, [int(value) for value in row]]))
"""
Answer = tuple[int, ...]
Read = Callable[[Sequence[int]], Iterator[tuple[float, Answer]]]
"""Seconds and answer of the query for each of these snapshots, one after another."""
Times = Mapping[str, Mapping[str, Sequence[float]]]
"""Seconds by engine and state of the table."""


def measure(folder: Path, say: Callable[[str], None], scale: float = 1.0) -> Result:
    """Change the table, then read it by each engine."""
    folder.mkdir()
    rows = int(ROWS * scale)
    files = LargeFiles.made(rows, FILES, say)
    spark = session(iceberg_conf(folder))
    catalog = connect(CATALOG, catalog_properties(folder))
    catalog.create_namespace("bench")
    files.table(catalog, TABLE)
    changes = _change(spark, folder, rows)
    say(f"W14: {BATCHES} batches are in the table")
    spark.sql(_COMPACT)
    table = catalog.load_table(TABLE)
    states = {
        state: table.metadata.snapshots[place].snapshot_id
        for state, place in ((LOADED, 0), (CHANGED, -2), (COMPACTED, -1))
    }
    newest, loaded = _answer(_NEWEST, [*files.paths, *changes]), _answer("read_parquet({files})", files.paths)
    wanted = {LOADED: loaded, CHANGED: newest, COMPACTED: newest}
    found = {}
    with _readers(spark, folder, table.metadata_location) as readers:
        for engine, read in readers.items():
            found[engine] = _in_turn(read, states, wanted)
            say(f"W14, {engine}: {', '.join(f'{state} {_median(each)} s' for state, each in found[engine].items())}")
    spark.stop()
    return report(found, rows)


def _change(spark: SparkSession, folder: Path, rows: int) -> list[Path]:
    source = folder / "source"
    source.mkdir()
    changes = RandomChanges(folder, rows, CHANGES)
    paths = [changes.write(number) for number in range(BATCHES)]
    for path in paths:
        changes.arrive(path, source)
        time.sleep(0.01)  # Spark takes files in the order of their times
    arriving = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(source))
    catalog: dict[str, Any] = {"catalog": CATALOG, "catalog_properties": catalog_properties(folder)}
    checkpoint = str(folder / "checkpoint")
    stream = lakesink.stream(
        arriving, TABLE, sink_id="bench", checkpoint=checkpoint, mode="upsert", keys=["id"], **catalog
    )
    stream.trigger(availableNow=True).start().awaitTermination()
    return paths


def _answer(rows: str, files: Sequence[Path]) -> Answer:
    source = rows.format(files=[str(path) for path in files])
    with duckdb.connect() as database:
        row = database.execute(_READ.format(source=source)).fetchone()
        assert row is not None
        return tuple(map(int, row))


@contextmanager
def _readers(spark: SparkSession, folder: Path, metadata: str) -> Iterator[Mapping[str, Read]]:
    (folder / "trino").mkdir()
    with trino(folder / "trino", {CATALOG: _trino_properties(folder)}) as server:
        yield {"Spark": _by_spark(spark), "Trino": _by_trino(server), "DuckDB": _by_duckdb(metadata)}


def _trino_properties(folder: Path) -> str:
    properties = {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "jdbc",
        "iceberg.jdbc-catalog.driver-class": "org.sqlite.JDBC",
        "iceberg.jdbc-catalog.connection-url": f"jdbc:sqlite:{folder / 'catalog.db'}",
        "iceberg.jdbc-catalog.catalog-name": CATALOG,
        "iceberg.jdbc-catalog.default-warehouse-dir": f"file://{folder / 'warehouse'}",
        "iceberg.jdbc-catalog.schema-version": "V1",
        "fs.native-local.enabled": "true",
        "local.location": "/",
    }
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def _by_spark(spark: SparkSession) -> Read:
    def read(snapshots: Sequence[int]) -> Iterator[tuple[float, Answer]]:
        for snapshot_id in snapshots:
            started = time.monotonic()
            row = spark.sql(_READ.format(source=f"{CATALOG}.{TABLE} VERSION AS OF {snapshot_id}")).first()
            assert row is not None
            yield time.monotonic() - started, tuple(map(int, row))

    return read


def _by_trino(server: Trino) -> Read:
    def read(snapshots: Sequence[int]) -> Iterator[tuple[float, Answer]]:
        for snapshot_id in snapshots:
            started = time.monotonic()
            answer = server.sql(_READ.format(source=f"{CATALOG}.{TABLE} FOR VERSION AS OF {snapshot_id}"))
            yield time.monotonic() - started, tuple(map(int, answer.rows[0]))

    return read


def _by_duckdb(metadata: str) -> Read:
    def read(snapshots: Sequence[int]) -> Iterator[tuple[float, Answer]]:
        home = duckdb_engine.installed().home
        scans = (f"iceberg_scan('{metadata}', snapshot_from_id => {snapshot_id})" for snapshot_id in snapshots)
        asked = {"extensions": str(home / "extensions"), "queries": [_READ.format(source=scan) for scan in scans]}
        call = [str(home / "bin" / "python"), "-c", _DUCKDB]
        done = subprocess.run(call, input=json.dumps(asked), capture_output=True, text=True, check=True)
        for line in done.stdout.splitlines():
            seconds, row = json.loads(line)
            yield seconds, tuple(row)

    return read


def _in_turn(read: Read, states: Mapping[str, int], wanted: Mapping[str, Answer]) -> Mapping[str, Sequence[float]]:
    order = list(states) * (WARM_UP + READS)
    found: dict[str, list[float]] = {state: [] for state in states}
    for state, (seconds, answer) in zip(order, read([states[state] for state in order]), strict=True):
        if answer != wanted[state]:
            raise WrongRows(f"{state}: {answer}, expected {wanted[state]}")
        found[state].append(seconds)
    return {state: times[WARM_UP:] for state, times in found.items()}


def report(found: Times, rows: int) -> Result:
    """Medians, and how many times as long a read takes as of the compacted table."""
    lines: list[tuple[Cell, ...]] = []
    goals = []
    for engine, times in found.items():
        ratio = Ratio.of(times[CHANGED], times[COMPACTED])
        medians = (_median(times[state]) for state in (LOADED, CHANGED, COMPACTED))
        lines.append((engine, *medians, str(ratio)))
        goals.append(Goal(f"W14, {engine}, against compacted", GOALS[engine], ratio.median, at_least=False))
    heads = ("engine", "as loaded s", "after the batches s", "compacted s", "times as long")
    title = f"reads of {rows:,} rows after {BATCHES} batches of {CHANGES:,} random upserts"
    raw = {engine: {state: list(each) for state, each in times.items()} for engine, times in found.items()}
    return Result("W14", title, heads, tuple(lines), tuple(goals), raw=raw, rounds=READS)


def _median(seconds: Sequence[float]) -> float:
    return round(statistics.median(seconds), 2)
