"""W12: upserts into a table on storage that is far away: an S3 server behind a link that holds each answer back.

The first batch copies the key columns of all data files; what the later ones need is on the local disk by then.
"""

import os
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
from pyspark.sql import SparkSession

import lakesink
from benchmarks.oracle import WrongRows
from benchmarks.result import Result
from benchmarks.session import CATALOG, session
from benchmarks.upserts import write_rows
from lakesink.spark.rows.frame_schema import arrow_schema
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table, load_table
from servers.s3 import S3, s3
from servers.slow_link import slow_link

ROWS, FILES = 2_000_000, 20
CHANGES, BATCHES = 10_000, 8
MILLISECONDS = (0, 20)
BUCKET = "lake"
_DIGEST = "SELECT count(*), count(DISTINCT id), sum(hash(id, customer, quantity, price, version)) FROM {rows}"
_NEWEST = "(SELECT * FROM read_parquet({files}) QUALIFY row_number() OVER (PARTITION BY id ORDER BY version DESC) = 1)"

Times = Mapping[int, Sequence[int]]
"""Milliseconds of `addBatch`, batch by batch, by the milliseconds of the link."""


def measure(folder: Path, say: Callable[[str], None], scale: float = 1.0) -> Result:
    """The same stream at each distance."""
    folder.mkdir()
    found: dict[int, list[int]] = {}
    rows = int(ROWS * scale)
    with s3(folder / "s3", BUCKET) as server, patch.dict(os.environ, _keys(server)):
        spark = session()
        for milliseconds in MILLISECONDS:
            with slow_link(server.port, milliseconds) as port:
                run = _Run(spark, folder / f"at-{milliseconds}", rows, _properties(folder, port, milliseconds))
                found[milliseconds] = run.batches()
            say(f"W12 at {milliseconds} ms: {found[milliseconds]}")
        spark.stop()
    return report(found, rows)


def _keys(server: S3) -> dict[str, str]:
    """Executors find them in the environment of their session; the link is in the catalog's properties."""
    return {name: value for name, value in server.environment.items() if name != "AWS_ENDPOINT_URL"}


def _properties(folder: Path, port: int, milliseconds: int) -> dict[str, str]:
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog-{milliseconds}.db",
        "warehouse": f"s3://{BUCKET}/at-{milliseconds}",
        "s3.endpoint": f"http://127.0.0.1:{port}",
        "s3.region": "us-east-1",
    }


@dataclass(frozen=True, slots=True)
class _Run:
    """One table and its stream of changes."""

    spark: SparkSession
    place: Path
    rows: int
    properties: Mapping[str, str]

    def batches(self) -> list[int]:
        """Milliseconds of `addBatch` of each batch of changes."""
        source = self.place / "source"
        source.mkdir(parents=True)
        self._write_base()
        changes = self.spark.readStream.schema(self._rows_schema()).parquet(str(source))
        query = lakesink.stream(changes, "bench.t", **self._options("changes"), mode="upsert", keys=["id"]).start()
        found = []
        for number in range(BATCHES):
            self._put_changes(number, source)
            query.processAllAvailable()
            found.append(next(p["durationMs"]["addBatch"] for p in reversed(query.recentProgress) if p["numInputRows"]))
        query.stop()
        self._check()
        return found

    def _write_base(self) -> None:
        each = self.rows // FILES
        for number in range(FILES):
            ids = f"SELECT range AS id FROM range({number * each}, {(number + 1) * each})"
            write_rows(self.place / f"base-{number:02}.parquet", ids, 0)
        base = self.spark.readStream.schema(self._rows_schema()).options(
            pathGlobFilter="base-*.parquet", maxFilesPerTrigger=1
        )
        rows = base.parquet(str(self.place))
        catalog = connect(CATALOG, dict(self.properties))
        catalog.create_namespace("bench")
        create_table(catalog, "bench.t", arrow_schema(rows.schema))
        with load_table(catalog, "bench.t").update_schema(allow_incompatible_changes=True) as change:
            change.update_column("id", required=True)
            change.set_identifier_fields("id")
        writer = lakesink.stream(rows, "bench.t", **self._options("base"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def _rows_schema(self) -> Any:
        return self.spark.read.parquet(str(self.place / "base-00.parquet")).schema

    def _options(self, sink: str) -> dict[str, Any]:
        checkpoint = str(self.place / f"checkpoint-{sink}")
        catalog = {"catalog": CATALOG, "catalog_properties": dict(self.properties)}
        return {"sink_id": sink, "checkpoint": checkpoint, **catalog}

    def _put_changes(self, number: int, source: Path) -> None:
        path = self.place / f"changes-{number:02}.parquet"
        ids = f"SELECT DISTINCT (hash(range * {BATCHES} + {number}) % {self.rows + CHANGES})::BIGINT AS id"
        write_rows(path, f"{ids} FROM range({CHANGES})", number + 1)
        hidden = source / f".{path.name}"
        shutil.copyfile(path, hidden)
        hidden.rename(source / path.name)

    def _check(self) -> None:
        rows = load_table(connect(CATALOG, dict(self.properties)), "bench.t").scan().to_arrow()
        files = [str(path) for path in self.place.glob("*.parquet")]
        with duckdb.connect() as database:
            database.register("found", rows)
            expected = database.execute(_DIGEST.format(rows=_NEWEST.format(files=files))).fetchone()
            found = database.execute(_DIGEST.format(rows="found")).fetchone()
        if found != expected:
            raise WrongRows(f"{found}, expected {expected}")


def report(found: Times, rows: int) -> Result:
    """The first batch, and the median of the others."""
    lines = tuple((milliseconds, times[0], int(statistics.median(times[1:]))) for milliseconds, times in found.items())
    title = f"upserts of {CHANGES:,} random rows into {rows:,} rows in {FILES} files on S3"
    heads = ("ms of the link", "first batch ms", "later batches ms")
    return Result("W12", title, heads, lines, raw={str(key): list(times) for key, times in found.items()})
