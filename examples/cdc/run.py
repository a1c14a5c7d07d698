"""Orders that change in a database, a driver that is killed on the way, and the proof that the table is the database's.

Run it in any folder, and again: four more files of changes arrive each time.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pyarrow as pa
from database import Database

import lakesink
from lakesink_catalog.connect import connect
from lakesink_catalog.tables import create_table

STREAM = Path(__file__).with_name("stream.py")
TOPIC_FOLDER = Path("topic")
TABLE = "shop.orders"
FILES, ORDERS, CHANGES = 4, 1_000, 500
KILLED_AT = 2  # of the four files
COLUMNS = pa.schema(
    [
        ("order_id", pa.int64()),
        ("region", pa.string()),
        ("state", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("updated_at", pa.timestamp("us", "UTC")),
    ]
)
SHOWN = ("inserted", "updated", "deleted", "superseded")

ANSWER = """
    WITH records AS (FROM read_json('topic/*.json', columns = {
            key: 'VARCHAR', value: 'VARCHAR', partition: 'INT', "offset": 'BIGINT'})),
        newest AS (SELECT arg_max(value, "offset") AS value FROM records WHERE value IS NOT NULL GROUP BY key),
        rows AS (SELECT value -> 'after' AS row FROM newest WHERE value ->> 'op' <> 'd')
    SELECT (row ->> 'order_id')::BIGINT AS order_id, row ->> 'region' AS region, row ->> 'state' AS state,
        (row ->> 'amount')::DECIMAL(12, 2) AS amount, (row ->> 'updated_at')::TIMESTAMPTZ AS updated_at
    FROM rows ORDER BY order_id
"""
"""The newest event of each key, without deletes: the orders as the raw events say they are."""


def arrive() -> None:
    """What other programs would do: the database changes, and Debezium sends each change."""
    TOPIC_FOLDER.mkdir(exist_ok=True)
    database = Database(random.Random(1))  # noqa: S311 - the same orders in each run
    there = len(list(TOPIC_FOLDER.glob("*.json")))
    for number in range(there + FILES):
        database.load(ORDERS) if number == 0 else database.work(CHANGES)
        if number < there:
            database.records.clear()  # sent by an earlier run
            continue
        database.publish(TOPIC_FOLDER / f"{number:04}.json")
        time.sleep(0.05)  # Spark takes the oldest file first


def driver(failpoints: str = "") -> int:
    """A driver in a process of its own; its exit code. What it has to say goes into a file."""
    environment = os.environ | {"LAKESINK_FAILPOINTS": failpoints}
    with Path("driver.log").open("a") as log:
        return subprocess.run([sys.executable, STREAM], env=environment, stderr=log, check=False).returncode  # noqa: S603


def show() -> None:
    """What each batch did, and the rows that readers see."""
    for batch in lakesink.history(TABLE):
        counts = ", ".join(f"{getattr(batch.changes, name)} {name}" for name in SHOWN)
        print(f"   batch {batch.batch_id}: {batch.rows} rows written; {counts}")
    print(f"   In the table: {len(found())} orders.")


def found() -> pa.Table:
    """The table as any reader sees it."""
    return connect().load_table(TABLE).scan().to_arrow().sort_by("order_id")


def proved() -> bool:
    """Whether the table is what DuckDB makes of the raw events."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        expected = connection.sql(ANSWER).to_arrow_table().cast(COLUMNS).to_pylist()
    rows = found().to_pylist()
    records = sum(len(file.read_text().splitlines()) for file in TOPIC_FOLDER.glob("*.json"))
    missing = sum(row not in rows for row in expected) if rows != expected else 0
    print(f"   {records} records arrived. DuckDB makes {len(expected)} orders of them.")
    print(f"   The table has {len(rows)} orders; {missing} of DuckDB's are missing. Equal: {rows == expected}.")
    return rows == expected


def lakesink_says(*arguments: str) -> int:
    """What a command prints; its exit code."""
    command = [Path(sys.executable).with_name("lakesink"), *arguments]
    return subprocess.run(command, check=False).returncode  # noqa: S603


def main() -> int:
    """The story."""
    catalog = connect()
    if not catalog.table_exists(TABLE):
        create_table(catalog, TABLE, COLUMNS, partition_by="region", keys=["order_id"])
    killed = len(lakesink.history(TABLE)) + KILLED_AT
    arrive()
    print(f"1. {FILES} files of events have arrived. A driver starts; it is killed when batch {killed} is prepared.")
    print(f"   It ended with {driver(f'after-prepared@{killed}=kill')}. What readers see:")
    show()
    print("2. A driver starts again. The program is the same, and so is the checkpoint.")
    assert driver() == 0, "the second driver failed; driver.log says why"
    show()
    print("3. The table, compared with DuckDB's answer over the raw events:")
    equal = proved()
    print("4. What lakesink says:")
    lakesink_says("log", TABLE)
    return lakesink_says("audit", TABLE, "--keys", "--checkpoint", "checkpoints/orders") or int(not equal)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # beside the lines of other processes
    sys.exit(main())
