"""A database that changes while a stream follows it, a driver that is killed, and the proof that the table is equal.

The database gets a column and a wider one, and one of its events comes out wrong: a repair brings it into the table.

Run it in any folder, and again: four more files of changes arrive each time.
"""

import os
import random
import subprocess
import sys
import time
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from database import Database

import lakesink
from lakesink_catalog.connect import connect
from lakesink_catalog.tables import create_table

STREAM = Path(__file__).with_name("stream.py")
TOPIC_FOLDER = Path("topic")
REPAIR = Path(__file__).with_name("repair.sql")
TABLE, SINK = "shop.orders", "orders"
FILES, ORDERS, CHANGES = 4, 1_000, 500
KILLED_AT = 2  # of the four files
NEWS = {1: Database.add_column, 2: Database.widen, 3: Database.send_badly}
"""What happens to the database at the end of a file."""
COLUMNS = pa.schema(
    [
        ("order_id", pa.int64()),
        ("region", pa.string()),
        ("state", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("points", pa.int32()),
        ("updated_at", pa.timestamp("us", "UTC")),
    ]
)
"""Of the table, as it is created."""
SAME_AS_THE_STREAM = ("decode=debezium-json", "mode=changes", "keys=order_id", "sequence_by=updated_at")
SHOWN = ("inserted", "updated", "deleted", "superseded")


def arrive() -> Database:
    """What other programs would do: the database changes, and Debezium sends each change."""
    TOPIC_FOLDER.mkdir(exist_ok=True)
    database = Database(random.Random(1))  # noqa: S311 - the same orders in each run
    there = len(list(TOPIC_FOLDER.glob("*.json")))
    for number in range(there + FILES):
        database.load(ORDERS) if number == 0 else database.work(CHANGES)
        if number in NEWS:
            NEWS[number](database)
        if number < there:
            database.records.clear()  # sent by an earlier run
            continue
        database.publish(TOPIC_FOLDER / f"{number:04}.json")
        time.sleep(0.05)  # Spark takes the oldest file first
    return database


def driver(failpoints: str = "") -> int:
    """A driver in a process of its own; its exit code. What it has to say goes into a file."""
    environment = os.environ | {"LAKESINK_FAILPOINTS": failpoints}
    with Path("driver.log").open("a") as log:
        return subprocess.run([sys.executable, STREAM], env=environment, stderr=log, check=False).returncode  # noqa: S603


def show() -> None:
    """What each batch did, and the rows that readers see."""
    for batch in lakesink.history(TABLE, sink=SINK):
        counts = ", ".join(f"{getattr(batch.changes, name)} {name}" for name in SHOWN)
        print(f"   batch {batch.batch_id}: {batch.rows} rows written; {counts}")
    print(f"   In the table: {len(found())} orders.")


def found() -> pa.Table:
    """The table as any reader sees it."""
    return connect().load_table(TABLE).scan().to_arrow().sort_by("order_id")


def is_equal(database: Database) -> bool:
    """Whether the table has the rows of the database."""
    rows, schema = found().to_pylist(), connect().load_table(TABLE).schema()
    expected = [
        row | {"amount": Decimal(row["amount"]), "updated_at": datetime.fromisoformat(row["updated_at"])}
        for _, row in sorted(database.orders.items())
    ]
    others = [row["order_id"] for row in expected if row not in rows]
    print(f"   The database has {len(expected)} orders, and the table {len(rows)}. Not equal: {others or 'none'}.")
    print(f"   points is {schema.find_type('points')}, channel is {schema.find_type('channel')}.")
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
    killed = len(lakesink.history(TABLE, sink=SINK)) + KILLED_AT
    database = arrive()
    print(f"1. {FILES} files of events have arrived. A driver starts; it is killed when batch {killed} is prepared.")
    print(f"   It ended with {driver(f'after-prepared@{killed}=kill')}. What readers see:")
    show()
    print("2. A driver starts again. The program is the same, and so is the checkpoint.")
    assert driver() == 0, "the second driver failed; driver.log says why"
    show()
    print("3. The table, compared with the database:")
    is_equal(database)
    print("4. An event that came out wrong is a dead letter. It is repaired:")
    lakesink_says("dead-letters", TABLE)
    options = [part for option in SAME_AS_THE_STREAM for part in ("--option", option)]
    lakesink_says("dead-letters", TABLE, "--replay", str(REPAIR), *options)
    print("5. The table, compared again:")
    equal = is_equal(database)
    print("6. What lakesink says:")
    lakesink_says("log", TABLE)
    return lakesink_says("audit", TABLE, "--keys", "--checkpoint", "checkpoints/orders") or int(not equal)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # beside the lines of other processes
    sys.exit(main())
