"""A cluster has executors of its own, and leaves no process behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from servers.spark_cluster import WORKERS, command_of, spark_cluster
from testkit.harness import CONF, descendants

pytestmark = pytest.mark.soak

JOB = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder
for setting in sys.argv[2:]:
    builder = builder.config(*setting.split("=", 1))
spark = builder.master(sys.argv[1]).getOrCreate()
print(spark.sparkContext.parallelize(range(10), 4).map(lambda number: number * number).sum(), flush=True)
sys.stdin.read()
"""


def test_jobs_run_in_executors_that_end_with_the_cluster(tmp_path: Path) -> None:
    with spark_cluster(tmp_path / "cluster") as cluster:
        settings = [f"{name}={value}" for name, value in {**CONF, **cluster.conf}.items()]
        command = [sys.executable, "-c", JOB, cluster.master, *settings]
        with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as driver:
            assert driver.stdout is not None
            assert driver.stdin is not None
            assert driver.stdout.readline() == "285\n"
            executors, workers = cluster.executors(), cluster.python_workers()
            assert len(executors) == WORKERS
            assert workers
            driver.stdin.close()
            driver.wait(60)
        started = [pid for process in cluster.processes for pid in (process.pid, *descendants(process.pid))]
    assert not [pid for pid in (*started, *executors, *workers) if command_of(pid)]
