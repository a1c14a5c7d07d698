"""Spark Connect: a driver without a JVM of its own, and a server that has lakesink installed."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.harness import Stream, expected, own_snapshots
from testkit.installed import OWN_PORT
from tests.spark.streams import forget_commits

CALLS = """
import logging, lakesink
from pyspark.sql import SparkSession

logging.basicConfig(format="%(message)s")
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.readStream.format("rate").load()
for call in (
    lambda: lakesink.stream(rows, "demo.t", sink_id="a", checkpoint="ck"),
    lambda: lakesink.append(spark.range(1), "demo.t", txn=("a", 1)),
    lambda: lakesink.stream_files(rows, "folder", sink_id="a", checkpoint="ck"),
):
    try:
        call()
    except lakesink.QueryError as error:
        print(error)
lakesink.register(spark)
options = {"table": "demo.t", "txn-app-id": "load", "create-table": "true"}
for version in ("1", "1", "2"):
    spark.range(5).write.format("lakesink").mode("append").options(**options).option("txn-version", version).save()
print(sorted((record.batch_id, record.rows) for record in lakesink.history("demo.t")))
documents = spark.createDataFrame([('{"id": 1, "new": "a"}',)], "value string")
named = {"decode": "json", "schema": "id BIGINT NOT NULL", "schema-evolution": "add"}
options |= {"table": "demo.d", "txn-version": "1"}
documents.write.format("lakesink").mode("append").options(**options, **named).save()
from lakesink_catalog.connect import connect
print(connect().load_table("demo.d").scan().to_arrow().to_pylist())
"""


@pytest.fixture
def stream(tmp_path: Path, site: Path) -> Stream:
    return Stream(tmp_path, adapter="connect", environment=OWN_PORT | {"PYTHONPATH": python_path(site)})


def python_path(site: Path) -> str:
    return os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))


@pytest.mark.driver
@pytest.mark.parametrize("adapter", ["connect", "installed"])
def test_a_stream_by_the_name_of_the_format_starts_again_and_recognises_a_replay(stream: Stream, adapter: str) -> None:
    stream = replace(stream, adapter=adapter)
    stream.add_files(0, 2)
    assert stream.run() == 0, stream.log()
    assert stream.rows() == expected(range(2))

    forget_commits(stream.checkpoint, 0)
    stream.add_files(2, 3)
    assert stream.run() == 0, stream.log()
    assert stream.rows() == expected(range(3))
    assert [(batch, outcome) for batch, outcome, _ in own_snapshots(stream.load())] == [
        (batch, "committed") for batch in range(3)
    ]
    assert "lakesink.batch.already-committed" in stream.log()


@pytest.mark.driver
def test_what_needs_the_jvm_names_the_way_and_a_batch_write_is_done_once(tmp_path: Path, site: Path) -> None:
    pythons = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    environment = {
        **os.environ,
        **OWN_PORT,
        **pythons,
        "PYTHONPATH": python_path(site),
        "LAKESINK_HOME": str(tmp_path / "home"),
    }
    done = subprocess.run(
        [sys.executable, "-c", CALLS], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = done.stdout
    for function in ("stream", "append", "stream_files"):
        assert (
            f"[LAKESINK_SPARK_CONNECT] lakesink.{function} cannot write a DataFrame of a Spark Connect session" in told
        )
    assert '- Use df.writeStream.format("lakesink"), which takes the same options with dashes.\n    - Use a' in told
    assert '- Use df.write.format("lakesink") with the options txn-app-id and txn-version.\n    - Use a classic' in told
    assert "lakesink.server.unchecked spark=" in done.stderr
    assert told.splitlines()[-2:] == ["[(1, 5), (2, 5)]", "[{'id': 1, 'new': 'a'}]"]
