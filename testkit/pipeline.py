"""Runs real pipelines of Spark Declarative Pipelines: flows of numbered files into sinks of one table."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyiceberg.table import Table

from lakesink_catalog.failpoints import VARIABLE
from testkit.harness import PATIENCE_SECONDS, Stream, own_group, rows_of
from testkit.installed import OWN_PORT

COMMAND = Path(sys.executable).with_name("spark-pipelines")
CONF = {"spark.ui.enabled": "false", "spark.driver.memory": "1g", "spark.ui.showConsoleProgress": "false"}
TABLE = "demo.numbers"

_SINK = """
dp.create_sink({sink!r}, format="lakesink", options={options!r})
"""
_FLOW = """
@dp.append_flow(target={sink!r})
def {flow}():
    return spark.readStream.schema("file long, row long").option("maxFilesPerTrigger", 1).json({source!r})
"""


@dataclass(frozen=True)
class Pipeline:
    """One pipeline; every row is (file, row).

    Attributes:
        site: Where lakesink is installed, see `testkit.installed`.
        sinks: Sink ids by the name of the sink.
        flows: Names of sinks by the name of the flow.
        environment: Variables of the pipeline's process.
    """

    root: Path
    site: Path
    sinks: Mapping[str, str] = field(default_factory=lambda: {"numbers": "numbers"})
    flows: Mapping[str, str] = field(default_factory=lambda: {"all_numbers": "numbers"})
    environment: Mapping[str, str] = field(default_factory=dict)

    def checkpoint(self, flow: str, number: int = 0) -> Path:
        return self.root / "storage" / "_checkpoints" / self.flows[flow] / flow / str(number)

    def add_files(self, flow: str, first: int, last: int) -> None:
        """See `testkit.harness.Stream.add_files`."""
        self._files(flow).add_files(first, last)

    @contextmanager
    def process(self, *arguments: str, failpoints: str = "") -> Iterator["subprocess.Popen[str]"]:
        """Run the pipeline in its own process group; the end of the block kills all its processes."""
        self._write_project()
        command = [str(COMMAND), "run", *arguments]
        command += [word for name, value in CONF.items() for word in ("--conf", f"{name}={value}")]
        pythons = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        given = {"PYTHONPATH": str(self.site), "LAKESINK_HOME": str(self.root / "home"), VARIABLE: failpoints}
        environment = {**os.environ, **OWN_PORT, **pythons, **given, **self.environment}
        with own_group(command, self.root / "pipeline.log", environment, self.root / "project") as process:
            yield process

    def run(self, *arguments: str) -> int:
        """Run the pipeline until it ends; returns its exit code."""
        with self.process(*arguments) as process:
            return process.wait(PATIENCE_SECONDS)

    def log(self) -> str:
        return (self.root / "pipeline.log").read_text()

    def load(self) -> Table:
        return Stream(self.root, table=TABLE).load()

    def rows(self) -> Counter[tuple[int, int]]:
        """See `testkit.harness.rows_of`."""
        return rows_of(self.load())

    def _files(self, flow: str) -> Stream:
        return Stream(self.root / "sources" / flow)

    def _write_project(self) -> None:
        project = self.root / "project"
        (project / "transformations").mkdir(parents=True, exist_ok=True)
        libraries = [{"glob": {"include": "transformations/**"}}]
        spec = {"name": "numbers", "storage": f"file://{self.root}/storage", "libraries": libraries}
        (project / "spark-pipeline.yml").write_text(json.dumps(spec))  # JSON is YAML
        sinks = [
            _SINK.format(sink=name, options={"table": TABLE, "sink-id": sink_id, "create-table": "true"})
            for name, sink_id in self.sinks.items()
        ]
        flows = [
            _FLOW.format(flow=flow, sink=sink, source=str(self.root / "sources" / flow / "source"))
            for flow, sink in self.flows.items()
        ]
        head = "from pyspark import pipelines as dp\nfrom pyspark.sql import SparkSession\n\n"
        text = f"{head}spark = SparkSession.active()\n{''.join((*sinks, *flows))}"
        (project / "transformations" / "numbers.py").write_text(text)
