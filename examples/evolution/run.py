"""Documents whose producers change, a driver that is killed on the way, and the proof that the table holds them all.

Run it in any folder, and again: four more files arrive each time.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakesink
from lakesink_catalog.connect import connect
from lakesink_catalog.tables import create_table

STREAM = Path(__file__).with_name("stream.py")
INBOX = Path("inbox")
TABLE = "shop.orders"
KILLED_AT = 2  # of the four files: the one with the wider number

# What the producers send, one file each. Every document gets an id too.
RELEASES: list[list[dict[str, Any]]] = [
    [{"pieces": 3}, {"pieces": 5}],
    [{"pieces": 1, "paid": True, "customer": {"name": "Ada"}}, {"pieces": 2, "weight": 1.5}],
    [{"pieces": 3_000_000_000, "customer": {"name": "Bo", "address": {"city": "Bonn"}}}, {"pieces": 4}],
    [{"pieces": 1, "code": 7}, {"pieces": 2, "code": "B7"}, {"pieces": 2**70, "paid": False}],
]


def arrive() -> None:
    """What another program would do: four files arrive, each whole."""
    INBOX.mkdir(exist_ok=True)
    for release in RELEASES:
        number = len(list(INBOX.glob("*.json")))
        documents = [{"id": 10 * number + row, **document} for row, document in enumerate(release)]
        staged = INBOX / f".{number:04}.json"  # Spark ignores it until it has its name
        staged.write_text("".join(f"{json.dumps(document)}\n" for document in documents))
        staged.rename(INBOX / f"{number:04}.json")
        time.sleep(0.05)  # Spark takes the oldest file first


def driver(failpoints: str = "") -> int:
    """A driver in a process of its own; its exit code. What it has to say goes into a file."""
    environment = os.environ | {"LAKESINK_FAILPOINTS": failpoints}
    with Path("driver.log").open("a") as log:
        return subprocess.run([sys.executable, STREAM], env=environment, stderr=log, check=False).returncode  # noqa: S603


def document_of(row: dict[str, Any]) -> dict[str, Any]:
    """The document of a row: its columns, and what the rescue column keeps."""
    rescued = json.loads(row.pop("_rescued", None) or "{}")
    unfit = {key: misfit["value"] for key, misfit in rescued.get("unfit", {}).items()}
    return without_nulls(row) | rescued.get("unknown", {}) | unfit


def without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    """NULL stands for a key that the document does not have."""
    some = {key: value for key, value in row.items() if value is not None}
    return {key: without_nulls(value) if isinstance(value, dict) else value for key, value in some.items()}


def show() -> None:
    """The table as of each batch, as its readers see it: an old snapshot has its old columns."""
    table = connect().load_table(TABLE)
    for batch in lakesink.history(TABLE):
        scan = table.scan(snapshot_id=batch.snapshot_id)
        columns = ", ".join(f"{column.name} {column.field_type}" for column in scan.projection().columns)
        columns = re.sub(r"\d+: (\w+): optional", r"\1", columns)
        print(f"   batch {batch.batch_id}: {scan.to_arrow().num_rows} rows; {columns}")


def proved() -> bool:
    """Whether the rows, turned back into documents, are the documents that arrived."""
    lines = [line for file in sorted(INBOX.glob("*.json")) for line in file.read_text().splitlines()]
    rows = connect().load_table(TABLE).scan().to_arrow().sort_by("id").to_pylist()
    exact = sum(document_of(row) == json.loads(line) for row, line in zip(rows, lines, strict=False))
    print(f"   {len(lines)} documents arrived, {len(rows)} rows are in the table, {exact} rows equal their documents.")
    return len(lines) == len(rows) == exact


def main() -> int:
    """The story."""
    catalog = connect()
    if not catalog.table_exists(TABLE):
        create_table(catalog, TABLE, pa.schema([("id", pa.int64()), ("pieces", pa.int32())]))
    before = len(lakesink.history(TABLE))
    arrive()
    killed = before + KILLED_AT
    print(f"1. Four files have arrived. A driver starts; it is killed when batch {killed} is prepared.")
    print(f"   It ended with {driver(f'after-prepared@{killed}=kill')}. What readers see:")
    show()
    print("2. A driver starts again. The program is the same, and so is the checkpoint.")
    assert driver() == 0, "the second driver failed; driver.log says why"
    show()
    print("3. Every document once, and whole:")
    whole = proved()
    audit = [Path(sys.executable).with_name("lakesink"), "audit", TABLE, "--checkpoint", "checkpoints/orders"]
    return subprocess.run(audit, check=False).returncode or int(not whole)  # noqa: S603


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # beside the lines of other processes
    sys.exit(main())
