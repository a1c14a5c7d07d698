"""A real stream into a real server: its driver is killed between prepare and commit, and the next one commits by id.

Run it in any folder: `python -m servers.fetch pravega pravega-client` brings the server and its client beforehand. The
server keeps everything in memory, so each run begins anew.
"""

import asyncio
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[3]
sys.path.append(str(REPOSITORY))

from servers.pravega import client_folder, pravega  # noqa: E402 - found in the repository

sys.path.append(str(client_folder()))

import pravega_client  # noqa: E402 - found beside the environment
import pravega_staging  # noqa: E402
from pravega_controller import Controller  # noqa: E402
from pravega_sink import PravegaSink  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

import lakesink  # noqa: E402

SCOPE, STREAM = "shop", "orders"
FILES, ORDERS = 3, 100
SILENCE_SECONDS = 3


def stream(controller: str) -> None:
    """A driver: every file that has arrived is a batch."""
    logging.basicConfig(format="   %(message)s", stream=sys.stdout)
    logging.getLogger("lakesink").setLevel(logging.INFO)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors need a Python that has lakesink
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.addPyFile(pravega_staging.__file__)  # and the module of the writer that they run

    arrived = spark.readStream.schema("id LONG, amount DOUBLE").option("maxFilesPerTrigger", 1).json("inbox")
    events = arrived.selectExpr("CAST(id AS STRING) AS key", "to_json(struct(*)) AS value")
    sink = PravegaSink(Controller(controller, SCOPE, STREAM), sink_id="orders", staging=Path.cwd() / "staging")
    writer = lakesink.stream_to(events, sink, checkpoint=Path.cwd() / "checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()


def read(controller: str) -> None:
    """Pravega's own reader prints the order of every event, until it finds no more for some time."""
    manager = pravega_client.StreamManager(f"tcp://{controller}")
    reader = manager.create_reader_group(f"readers-{os.getpid()}", SCOPE, STREAM).create_reader("reader")
    asyncio.run(_print_orders(reader))
    sys.stdout.flush()
    os._exit(0)  # the client hangs when it is closed


async def _print_orders(reader: Any) -> None:
    newest = time.monotonic()
    while time.monotonic() - newest < SILENCE_SECONDS:
        events = await reader.get_segment_slice_async()  # after a while without events: an empty slice
        for event in events:
            print(json.loads(bytes(event.data()))["id"])
            newest = time.monotonic()
        reader.release_segment(events)


def process(what: str, controller: str, failpoints: str = "") -> "subprocess.CompletedProcess[str]":
    """A process of its own. What Spark has to say goes into a file."""
    environment = os.environ | {"LAKESINK_FAILPOINTS": failpoints}
    command = [sys.executable, __file__, what, controller]
    output = subprocess.PIPE if what == "read" else None
    with Path("driver.log").open("a") as log:
        return subprocess.run(command, env=environment, stdout=output, stderr=log, text=True, check=False)  # noqa: S603 - this file


def counted(controller: str) -> tuple[int, int]:
    """Events and distinct orders that a reader sees."""
    orders = process("read", controller).stdout.split()
    return len(orders), len(set(orders))


def main() -> None:
    """The story."""
    for left in ("inbox", "staging", "checkpoint"):  # of a server that is no more
        with suppress(FileNotFoundError):
            shutil.rmtree(left)
    Path("inbox").mkdir()
    for file in range(FILES):
        orders = [{"id": file * ORDERS + row, "amount": row * 0.5} for row in range(ORDERS)]
        Path("inbox", f"{file}.json").write_text("\n".join(map(json.dumps, orders)))
    with tempfile.TemporaryDirectory() as folder, pravega(Path(folder)) as server:
        manager = pravega_client.StreamManager(f"tcp://{server.controller}")
        manager.create_scope(SCOPE)
        manager.create_stream(SCOPE, STREAM, 1)
        print(f"1. {FILES} files have arrived. A driver starts; it is killed when batch 1 is prepared.", flush=True)
        killed = process("stream", server.controller, "after-prepared@1=kill").returncode
        print(f"   It ended with {killed}.")
        print("   In the stream: {} events, {} orders.".format(*counted(server.controller)))
        print("2. Another process commits the transaction of batch 1 by its id, and goes on.", flush=True)
        assert process("stream", server.controller).returncode == 0, "the second driver failed; see driver.log"
        events, orders = counted(server.controller)
        print(f"   In the stream: {events} events, {orders} orders.")
        print(f"3. Every order once: {events == orders == FILES * ORDERS}.")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["stream", at]:
            stream(at)
        case ["read", at]:
            read(at)
        case _:
            main()
