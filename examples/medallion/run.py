"""Bronze, silver, gold: a broker, a driver that is killed between two tables, and where a row of gold came from.

``python examples/medallion/run.py``, in an empty folder; the broker is a real one that this starts and stops.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Producer
from pyiceberg.expressions import AlwaysTrue, GreaterThanOrEqual

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from lakesink_catalog.connect import connect  # noqa: E402 - after the path
from servers.jars import KAFKA_SPARK, fetched  # noqa: E402 - of this repository, which is not installed
from servers.kafka import KafkaBroker, kafka_broker  # noqa: E402 - as above

PARTITIONS = 2
BREAKFAST, LUNCH, DINNER = range(300), range(300, 500), range(500, 600)
AT_SILVER = "after-prepared@1=kill"  # bronze has come to batches 3 and 4 by then


def send(broker: KafkaBroker, numbers: range) -> None:
    """What shops would do: one record an order, and one in fifty is no order at all."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in numbers:
        order = json.dumps({"order_id": number, "shop": f"shop-{number % 7}", "amount": f"{number % 200}.50"})
        value = "hello" if number % 50 == 49 else order
        producer.produce("orders", value.encode(), partition=number % PARTITIONS)
    producer.flush()


def driver(broker: KafkaBroker, failpoints: str = "") -> int:
    """All three streams, in a process of its own; its exit code."""
    environment = os.environ | {"LAKESINK_FAILPOINTS": failpoints}
    jars = ",".join(map(str, fetched(KAFKA_SPARK)))
    with Path("driver.log").open("a") as log:
        command = [sys.executable, str(HERE / "stream.py"), broker.bootstrap, jars]
        return subprocess.run(command, env=environment, stderr=log, check=False).returncode  # noqa: S603 - this Python


def show() -> None:
    """How many rows each table has, and how many batches."""
    for layer in ("bronze", "silver", "gold"):
        table = connect().load_table(f"{layer}.orders")
        print(f"   {layer}: {table.scan().to_arrow().num_rows} rows in {len(table.metadata.snapshots)} batches")


def is_whole() -> bool:
    """Each order once in silver, and each large one once in gold."""
    wanted = {number for number in (*BREAKFAST, *LUNCH, *DINNER) if number % 50 != 49}
    large = {number for number in wanted if number % 200 >= 100}
    silver, gold = (
        sorted(connect().load_table(f"{layer}.orders").scan(row_filter=which).to_arrow()["order_id"].to_pylist())
        for layer, which in (("silver", AlwaysTrue()), ("gold", GreaterThanOrEqual("amount", 100)))
    )
    print(f"   {len(wanted)} orders were sent, {len(silver)} are in silver.")
    print(f"   {len(large)} of them are large, {len(gold)} are in gold.")
    return silver == sorted(wanted) and gold == sorted(large)


def main() -> int:
    """The story."""
    Path("kafka").mkdir()
    with kafka_broker(Path("kafka").absolute()) as broker:
        broker.create_topic("orders", PARTITIONS)
        send(broker, BREAKFAST)
        print(f"1. 300 records are in Kafka. A driver reads them through all tables, and ends with {driver(broker)}.")
        show()
        send(broker, LUNCH)
        print("2. 200 more. The next driver is killed when silver's batch is prepared.")
        print(f"   It ended with {driver(broker, AT_SILVER)}.")
        show()
        print(f"3. The next driver finishes that batch, and ends with {driver(broker)}.")
        show()
        send(broker, DINNER)
        print(f"4. 100 more. The next driver ends with {driver(broker)}.")
        show()
    whole = is_whole()
    print("5. What batch 1 of gold was made of, whose driver was killed:")
    lineage = [str(Path(sys.executable).with_name("lakesink")), "lineage", "gold.orders", "--batch", "1"]
    return subprocess.run(lineage, check=False).returncode or int(not whole)  # noqa: S603 - of this very Python


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # beside the lines of other processes
    sys.exit(main())
