"""Orders of which some are bad, a driver that is killed between two tables, a repair, and the proof.

Run it in any folder, and again: three more files arrive each time.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa

import lakesink
from lakesink_catalog.connect import connect
from lakesink_catalog.tables import create_table

HERE = Path(__file__).parent
INBOX = Path("inbox")
LAKESINK = Path(sys.executable).with_name("lakesink")
TABLE, LETTERS = "shop.orders", "shop.orders__dead_letters"
ORDERS = 100  # of a file


def arrive() -> None:
    """What another program would do: three files arrive, each whole. Four orders of each are bad."""
    INBOX.mkdir(exist_ok=True)
    for _ in range(3):
        number = len(list(INBOX.glob("*.json")))
        orders = [json.dumps({"id": number * ORDERS + row, "cents": row * 5}) for row in range(ORDERS)]
        orders[10] = orders[10].replace("50}", '"n/a"}')
        orders[20] = orders[20].replace("100}", '"n/a"}')
        orders[30] = orders[30].removesuffix("}")
        orders[40] = orders[40].replace("200}", "-200}")
        staged = INBOX / f".{number:04}.json"  # Spark ignores it until it has its name
        staged.write_text("\n".join(orders) + "\n")
        staged.rename(INBOX / f"{number:04}.json")


def run(program: str, failpoints: str = "") -> int:
    """A program in a process of its own; its exit code. What Spark has to say goes into a file."""
    environment = os.environ | {"LAKESINK_FAILPOINTS": failpoints}
    with Path("driver.log").open("a") as log:
        return subprocess.run([sys.executable, HERE / program], env=environment, stderr=log, check=False).returncode  # noqa: S603


def rows(name: str) -> list[dict[str, object]]:
    """What any reader of a table sees."""
    found: list[dict[str, object]] = connect().load_table(name).scan().to_arrow().to_pylist()
    return found


def show() -> None:
    """How many rows there are in each table."""
    print(f"   In the table: {len(rows(TABLE))} rows. In the table of dead letters: {len(rows(LETTERS))}.")


def proved() -> bool:
    """Whether every order that arrived is in the table, once."""
    arrived = Counter(range(len(list(INBOX.glob("*.json"))) * ORDERS))
    found = Counter(row["id"] for row in rows(TABLE))
    lost, doubled = (arrived - found).total(), (found - arrived).total()
    print(f"   {arrived.total()} documents arrived. Lost: {lost}. Doubled: {doubled}.")
    return arrived == found


def main() -> int:
    """The story."""
    catalog = connect()
    if not catalog.table_exists(TABLE):
        create_table(catalog, TABLE, pa.schema([pa.field("id", pa.int64(), nullable=False), ("cents", pa.int64())]))
    killed = sum(record.sink == "orders" for record in lakesink.history(TABLE)) + 1
    arrive()
    print("1. Three files have arrived. A driver starts;")
    print(f"   it is killed when the dead letters of batch {killed} are committed, and its rows are not.")
    print(f"   It ended with {run('stream.py', f'after-call@{killed}=kill')}.")
    show()
    print("2. A driver starts again, and completes the batch.")
    assert run("stream.py") == 0, "the second driver failed; driver.log says why"
    show()
    subprocess.run([LAKESINK, "dead-letters", TABLE, "--limit", "4"], check=False)  # noqa: S603
    print("3. The repair is fix.sql. It runs twice.")
    for _ in range(2):
        assert run("replay.py") == 0, "the replay failed; driver.log says why"
    print("4. Every order once:")
    whole = proved()
    audit = [LAKESINK, "audit", TABLE, "--checkpoint", "checkpoints/orders"]
    return subprocess.run(audit, check=False).returncode or int(not whole)  # noqa: S603


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # beside the lines of other processes
    sys.exit(main())
