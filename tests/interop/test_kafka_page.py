"""The page on Kafka, executed as it is printed against a real broker."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from lakesink_catalog.connect.catalog import connect
from proof.oracle import rows_once
from servers.jars import KAFKA_SPARK, fetched
from servers.kafka import KafkaBroker
from testkit.harness import PATIENCE_SECONDS, live_files
from tests.interop.kafka_streams import Transactions
from tests.interop.pages import block

pytestmark = pytest.mark.interop


def test_the_recipe_runs_and_a_lost_checkpoint_is_made_good(broker: KafkaBroker, home: Path) -> None:
    broker.create_topic("orders", 2)
    sent = Transactions(broker.bootstrap, "orders")
    sent.write(range(40), 2)
    sent.take_back(range(40, 50), 2)
    recipe = block("use/kafka.md", "recipe").replace("localhost:9092", broker.bootstrap)
    assert run(recipe) == ""

    sent.write(range(50, 80), 2)
    shutil.rmtree("checkpoints")
    begun = recipe.replace("import lakesink\n", f"import lakesink\n\n{block('use/kafka.md', 'lost')}", 1)
    assert run(begun.replace('"startingOffsets", "earliest"', '"startingOffsets", starting')) == ""
    table = connect(properties={}).load_table("shop.orders")
    head = table.current_snapshot()
    assert head is not None
    assert home.exists()
    rows = duckdb.execute('select "partition", "offset" from read_parquet(?)', [live_files(table, head.snapshot_id)])
    assert rows_once(Counter(rows.fetchall()), Counter(sent.committed.keys())) == []


def run(code: str) -> str:
    """What a driver that failed said; empty if it ended well."""
    jars = ",".join(map(str, fetched(KAFKA_SPARK)))
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"--jars {jars} pyspark-shell"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return done.stderr if done.returncode else ""
