"""Rows a second of lakesink beside Spark's own Parquet file sink: same rows, codec and level, interleaved in one run.

Every run is a whole stream from Parquet files in two batches; its result is counted before its time is believed.
"""

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import duckdb
from pyspark.sql import DataFrame, SparkSession

import lakesink
from lakesink_catalog.connect import connect
from lakesink_catalog.tables import load_table

GOAL = 0.95
CODEC, LEVEL = "zstd", 1
LINEITEM = """
    select i as l_orderkey, i * 7 % 200000 as l_partkey, i * 13 % 10000 as l_suppkey, (i % 7)::int as l_linenumber,
        (i % 50)::double as l_quantity, (i * 97 % 9000000 / 100)::decimal(15, 2) as l_extendedprice,
        (i % 11 / 100)::decimal(15, 2) as l_discount, (i % 9 / 100)::decimal(15, 2) as l_tax,
        case i % 3 when 0 then 'R' when 1 then 'A' else 'N' end as l_returnflag,
        date '1992-01-01' + (i % 2500)::int as l_shipdate, timestamp '1992-01-01' + interval (i % 90000000) second
        as l_receiptdate, ['AIR', 'RAIL', 'SHIP', 'TRUCK', 'MAIL'][1 + i % 5] as l_shipmode,
        md5(i::varchar) || ' ' || md5((i * 31)::varchar)[1:i % 20] as l_comment
    from range({first}, {last}) t(i)
"""


def make_source(folder: Path, rows: int) -> None:
    folder.mkdir(parents=True)
    quarter = rows // 4
    for part in range(4):
        path = folder / f"{part}.parquet"
        query = LINEITEM.format(first=part * quarter, last=(part + 1) * quarter)
        duckdb.execute(f"copy ({query}) to '{path}' (format parquet)")
        os.utime(path, (1_700_000_000 + part, 1_700_000_000 + part))


def check(paths: list[str], rows: int) -> None:
    """A fast wrong sink scores nothing."""
    found = duckdb.execute("select count(*), sum(l_orderkey), count(distinct l_comment) from read_parquet(?)", [paths])
    count, total, _ = found.fetchone() or (0, 0, 0)
    assert (count, total) == (rows, rows * (rows - 1) // 2), (count, total)


class Bench:
    """One Spark session, one source, two sinks."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder = folder
        self.rows = rows // 4 * 4
        self.source = folder / "source"
        make_source(self.source, self.rows)
        self.spark = session()
        self.schema = self.spark.read.parquet(str(self.source)).schema
        self.runs = 0

    def stream(self) -> DataFrame:
        return self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 2).parquet(str(self.source))

    def spark_sink(self, place: Path) -> list[str]:
        out = place / "out"
        writer = self.stream().writeStream.format("parquet").option("compression", CODEC)
        writer = writer.option("checkpointLocation", str(place / "ck")).trigger(availableNow=True)
        writer.start(str(out)).awaitTermination()
        return [str(path) for path in out.glob("*.parquet")]

    def lakesink(self, place: Path) -> list[str]:
        properties = {"type": "sql", "uri": f"sqlite:///{place / 'catalog.db'}", "warehouse": f"file://{place / 'wh'}"}
        place.mkdir(parents=True)
        writer = lakesink.stream(
            self.stream(),
            "bench.lineitem",
            sink_id="bench",
            checkpoint=str(place / "ck"),
            create_table=True,
            catalog="bench",
            catalog_properties=properties,
            compression_codec=CODEC,
            compression_level=LEVEL,
        )
        writer.trigger(availableNow=True).start().awaitTermination()
        table = load_table(connect("bench", properties), "bench.lineitem")
        return [task.file.file_path for task in table.scan().plan_files()]

    def timed(self, sink: Callable[[Path], list[str]]) -> tuple[float, int]:
        """Seconds and bytes of one run."""
        self.runs += 1
        place = self.folder / f"run-{self.runs}"
        started = time.perf_counter()
        paths = sink(place)
        seconds = time.perf_counter() - started
        check(paths, self.rows)
        size = sum(Path(path.removeprefix("file://")).stat().st_size for path in paths)
        shutil.rmtree(place)
        return seconds, size


def session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("lakesink bench")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "2g",
        "spark.hadoop.parquet.compression.codec.zstd.level": str(LEVEL),
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@click.command()
@click.option("--rows", default=4_000_000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--output", type=click.Choice(["text", "json"]), default="text")
def main(rows: int, rounds: int, output: str) -> None:
    """Interleave both sinks and print the ratio of their throughputs."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), rows)
        sinks = {"spark": bench.spark_sink, "lakesink": bench.lakesink}
        for sink in sinks.values():
            bench.timed(sink)  # warm-up: JIT, Python workers
        results: dict[str, list[tuple[float, int]]] = {name: [] for name in sinks}
        for number in range(rounds):
            order = list(sinks.items()) if number % 2 else list(sinks.items())[::-1]
            for name, sink in order:
                results[name].append(bench.timed(sink))
                if output == "text":
                    print(f"round {number + 1} {name:<9} {results[name][-1][0]:6.2f} s", flush=True)
        bench.spark.stop()
    ratios = [spark[0] / ours[0] for spark, ours in zip(results["spark"], results["lakesink"], strict=True)]
    report(output, bench.rows, results, ratios)


def report(output: str, rows: int, results: dict[str, list[tuple[float, int]]], ratios: list[float]) -> None:
    summary = {
        "rows": rows,
        "ratio": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios), "goal": GOAL},
        "seconds": {name: [round(seconds, 2) for seconds, _ in runs] for name, runs in results.items()},
        "bytes_per_row": {name: round(runs[0][1] / rows, 1) for name, runs in results.items()},
    }
    if output == "json":
        print(json.dumps(summary))
        return
    print(f"{rows} rows x 13 columns, zstd level {LEVEL}; bytes a row: {summary['bytes_per_row']}")
    print(
        f"throughput of lakesink / Spark's Parquet sink: median {statistics.median(ratios):.2f},"
        f" min {min(ratios):.2f}, max {max(ratios):.2f} (goal >= {GOAL})"
    )
    print("Next: make bench-commit shows the cost of a commit as history grows.")


if __name__ == "__main__":
    main()
