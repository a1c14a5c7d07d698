"""Evidence outside Spark: the table's metadata, the files on disk, the record of a dead driver, and counts.

DuckDB, which shares no code with lakesink, counts: the same query over the source's text and the data files.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
from pyiceberg.table import Table

from lakesink_catalog.connect.catalog import EMBEDDED_NAME, connect
from lakesink_catalog.tables.locations import data_location, metadata_location
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.identity import SinkKey
from lakesink_tools.demo.flights import COLUMNS, NULL_TEXTS
from lakesink_tools.demo.place import SINK_ID, TABLE
from lakesink_tools.past.records import Record, history

_FILES = "read_parquet(?, hive_partitioning = false)"
"""Without Hive partitions: DuckDB would prefer folders like ``month=7`` to the columns of the files."""
_TYPES = ", ".join(
    f"'{name}': '{'TIMESTAMPTZ' if pa.types.is_timestamp(kind) else 'VARCHAR' if kind == pa.string() else 'INTEGER'}'"
    for name, kind in COLUMNS.items()
)
_MEASURES = ", ".join(["count(*)", "sum(distance)", *(f"count(*) - count({name})" for name in COLUMNS)])


@dataclass(frozen=True, slots=True)
class PreparedRecord:
    """The files that a driver had prepared when it died."""

    snapshot_id: int  # the planned snapshot of the batch
    files: frozenset[str]  # its data files, local paths


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The table and its folder at one moment. File names are local paths."""

    batches: tuple[Record, ...]  # the stream's snapshots, oldest first
    files: Mapping[int, frozenset[str]]  # live data files by the snapshot that added them
    on_disk: frozenset[str]  # data files in the table's folder, referenced or not; the sink itself never lists them

    @property
    def orphans(self) -> frozenset[str]:
        """Data files that no snapshot references."""
        return self.on_disk.difference(*self.files.values())

    def snapshots_of(self, batch_id: int) -> tuple[int, ...]:
        """The snapshots of this batch; more than one breaks the promise."""
        return tuple(record.snapshot_id for record in self.batches if record.batch_id == batch_id)


def read_facts() -> TableFacts:
    """Read the demo's table in the embedded catalog of ``LAKESINK_HOME``."""
    table = _load()
    on_disk = Path(_local(data_location(table))).rglob("*.parquet")
    return TableFacts(tuple(history(table, sink=SINK_ID)), _live_files(table), frozenset(map(str, on_disk)))


def files_as_of(snapshot_id: int | None = None) -> list[str]:
    """Data files of a snapshot, or of the newest one; they have no deletes."""
    tasks = list(_load().scan(snapshot_id=snapshot_id).plan_files())
    assert not any(task.delete_files for task in tasks)
    return sorted(_local(task.file.file_path) for task in tasks)


def read_record(batch_id: int) -> PreparedRecord:
    """The prepared record of a batch: one line with its digest, one line of JSON."""
    folder = Path(_local(metadata_location(_load()))) / SinkKey(SINK_ID).record_folder
    (path,) = folder.glob(f"{batch_id}-*.json")
    (payload,) = json.loads(path.read_text().splitlines()[1])["participants"].values()
    return PreparedRecord(payload["snapshot_id"], frozenset(_local(name) for name, _ in payload["files"]))


def _load() -> Table:
    return load_table(connect(EMBEDDED_NAME, create=False), TABLE)


def _live_files(table: Table) -> dict[int, frozenset[str]]:
    found: defaultdict[int, set[str]] = defaultdict(set)
    head = table.current_snapshot()
    for manifest in head.manifests(table.io) if head else ():
        for entry in manifest.fetch_manifest_entry(table.io):
            assert entry.snapshot_id is not None
            found[entry.snapshot_id].add(_local(entry.data_file.file_path))
    return {snapshot_id: frozenset(files) for snapshot_id, files in found.items()}


def _local(location: str) -> str:
    return location.removeprefix("file://")


@dataclass(frozen=True, slots=True)
class Counts:
    """Totals of a set of flights."""

    rows: int
    distance: int  # sum of the column distance, miles
    nulls: Mapping[str, int]  # NULLs by column, without the columns that have none


@dataclass(frozen=True, slots=True)
class Comparison:
    """Source and table, counted in the same way and compared row by row."""

    source: Counts  # the package's text file
    table: Counts  # the data files of the snapshot
    missing: int  # rows of the source that the table lacks, counted as a multiset
    surplus: int  # rows of the table that the source lacks, counted as a multiset


def compare(csv: Path, row_limit: int, data_files: Sequence[str]) -> Comparison:
    """Count the first flights of the source and the rows of the data files, and compare them in both directions.

    The flights are ordered by day and then as in the file. Data files are local paths or ``file:`` URIs.
    """
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")  # numbers the rows in the order of the file
        connection.execute(
            f"CREATE TABLE source AS SELECT * EXCLUDE line FROM (SELECT *, row_number() OVER () AS line "
            f"FROM read_csv(?, header = true, columns = {{{_TYPES}}}, nullstr = {list(NULL_TEXTS)}))"
            " ORDER BY month, day, line LIMIT ?",
            [str(csv), row_limit],
        )
        connection.execute("RESET threads")
        columns = ", ".join(COLUMNS)
        connection.execute(f"CREATE TABLE target AS SELECT {columns} FROM {_FILES}", [list(data_files)])
        return Comparison(
            source=_count(connection, "source"),
            table=_count(connection, "target"),
            missing=_difference(connection, "source", "target"),
            surplus=_difference(connection, "target", "source"),
        )


def count_rows(data_files: Sequence[str]) -> int:
    """Rows in Parquet files."""
    if not data_files:
        return 0
    with duckdb.connect() as connection:
        [(rows,)] = connection.execute(f"SELECT count(*) FROM {_FILES}", [list(data_files)]).fetchall()
        return int(rows)


def _count(connection: duckdb.DuckDBPyConnection, relation: str) -> Counts:
    [(rows, distance, *nulls)] = connection.execute(f"SELECT {_MEASURES} FROM {relation}").fetchall()
    return Counts(int(rows), int(distance or 0), {name: n for name, n in zip(COLUMNS, nulls, strict=True) if n})


def _difference(connection: duckdb.DuckDBPyConnection, left: str, right: str) -> int:
    both = f"SELECT * FROM {left} EXCEPT ALL SELECT * FROM {right}"
    [(rows,)] = connection.execute(f"SELECT count(*) FROM ({both})").fetchall()
    return int(rows)
