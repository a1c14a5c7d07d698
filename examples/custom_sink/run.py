"""The sink in a real stream: its driver is killed in the middle of a batch, started again, and the rows are counted.

Run it in any folder, and again: three more files arrive each time.
"""

import json
import logging
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import sqlite_sink
from pyspark.sql import SparkSession

import lakesink

HERE = Path.cwd()
COUNT = "SELECT count(*), count(DISTINCT id), (SELECT count(*) FROM ledger) FROM orders"


def stream() -> None:
    """A driver: every file that has arrived is a batch."""
    logging.basicConfig(format="   %(message)s", stream=sys.stdout)
    logging.getLogger("lakesink").setLevel(logging.INFO)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors need a Python that has lakesink
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.addPyFile(sqlite_sink.__file__)  # and the module of the sink, whose writer they run

    arrived = spark.readStream.schema("id LONG, amount DOUBLE").option("maxFilesPerTrigger", 1).json("inbox")
    sink = sqlite_sink.SqliteSink(HERE / "orders.db", "orders", sink_id="orders", staging=HERE / "staging")
    writer = lakesink.stream_to(arrived, sink, checkpoint=HERE / "checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()


def driver(failpoints: str = "") -> int:
    """A driver in a process of its own; its exit code. What Spark has to say goes into a file."""
    environment = os.environ | {"LAKESINK_FAILPOINTS": failpoints}
    command = [sys.executable, __file__, "stream"]
    with Path("driver.log").open("a") as log:
        return subprocess.run(command, env=environment, stderr=log, check=False).returncode  # noqa: S603 - this file


def arrive(files: int) -> None:
    """What another program would do: files arrive, each whole, with orders of their own."""
    Path("inbox").mkdir(exist_ok=True)
    for _ in range(files):
        number = time.time_ns()
        orders = [{"id": number + row, "amount": row * 0.5} for row in range(100)]
        Path(f"staged-{number}").write_text("\n".join(map(json.dumps, orders)))
        Path(f"staged-{number}").rename(f"inbox/{number}.json")


def counted() -> tuple[int, int, int]:
    """Rows, distinct orders, batches: what any reader of the database sees."""
    with closing(sqlite3.connect("orders.db")) as database:
        rows, orders, batches = database.execute(COUNT).fetchone()
    return rows, orders, batches


def main() -> None:
    """The story."""
    with closing(sqlite3.connect("orders.db")) as database:
        database.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER, amount REAL)")
        database.execute(sqlite_sink.LEDGER)
    _, _, before = counted()
    arrive(3)
    print(
        f"1. Three files have arrived. A driver starts; it is killed when batch {before + 1} is prepared.", flush=True
    )
    print(f"   It ended with {driver(f'after-prepared@{before + 1}=kill')}.")
    print("   In the table: {} rows, {} orders, {} batches.".format(*counted()))
    print("2. A driver starts again: it commits what was prepared, without writing it again, and goes on.", flush=True)
    assert driver() == 0, "the second driver failed; its message is above"
    rows, orders, batches = counted()
    print(f"   In the table: {rows} rows, {orders} orders, {batches} batches.")
    print(f"3. Every order once: {rows == orders == 100 * batches}.")
    print(f"Next: read {Path(sqlite_sink.__file__).name}, run its suite with `pytest {Path(__file__).parent}`, and put")
    print("another place of death into LAKESINK_FAILPOINTS: docs/reference/failpoints.md lists them.")


if __name__ == "__main__":
    stream() if sys.argv[1:] == ["stream"] else main()
