"""Streams orders into a Kafka topic, kills the driver in the middle of a transaction, and counts the records.

``python examples/transactional_sinks/run.py [FOLDER]``; the broker is a real one that this starts and stops.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, TopicPartition

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from servers.kafka import KafkaBroker, kafka_broker  # noqa: E402 - of this repository, which is not installed

BATCHES, ROWS, PARTITIONS, PATIENCE_SECONDS = 4, 100, 2, 60
IN_A_TRANSACTION = "before-call@1=kill"


def main(folder: Path) -> int:
    """Exit code 0: each order is in the topic once."""
    (folder / "kafka").mkdir(parents=True)
    arrive(folder / "inbox")
    with kafka_broker(folder / "kafka") as broker:
        broker.create_topic("orders", PARTITIONS)
        print(f"killed in the transaction of batch 1: exit code {stream(broker, folder, IN_A_TRANSACTION)}")
        print(f"readers of committed records see {len(list(orders(broker)))} orders")
        print(f"started again: exit code {stream(broker, folder)}")
        found = Counter(orders(broker))
    missing, doubled = BATCHES * ROWS - len(found), found.total() - len(found)
    print(f"orders in the topic: {found.total()}, lost {missing}, doubled {doubled}")
    return 0 if not missing and not doubled else 1


def arrive(inbox: Path) -> None:
    """Complete files with ascending times, so that Spark reads them in this order."""
    inbox.mkdir()
    for number in range(BATCHES):
        rows = ({"id": number * ROWS + row, "amount": f"{row}.50"} for row in range(ROWS))
        file = inbox / f"{number}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def stream(broker: KafkaBroker, folder: Path, failpoints: str = "") -> int:
    """Run the stream in a process of its own; returns its exit code, -9 if it was killed."""
    environment = {**os.environ, "LAKESINK_FAILPOINTS": failpoints, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, str(HERE / "kafka_stream.py"), broker.bootstrap]
    return subprocess.run(  # noqa: S603 - this very Python, and the file beside this one
        command, cwd=folder, env=environment, check=False, stderr=subprocess.DEVNULL
    ).returncode


def orders(broker: KafkaBroker) -> Iterator[int]:
    """The ids of the orders that a reader of committed records sees now."""
    own = {"bootstrap.servers": broker.bootstrap, "group.id": "count", "isolation.level": "read_committed"}
    consumer = Consumer({**own, "enable.auto.commit": False, "enable.partition.eof": True})
    for partition in range(PARTITIONS):
        consumer.assign([TopicPartition("orders", partition, 0)])
        while (message := consumer.poll(PATIENCE_SECONDS)) is not None:
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - a public code
                break
            yield json.loads(message.value() or b"")["id"]
    consumer.close()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())))
