"""What `lakesink engines` prints, in the form in which each engine takes it."""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from lakesink_tools.cli.main import main
from servers.jars import ICEBERG_AWS, ICEBERG_SPARK, fetched


@dataclass(frozen=True, slots=True)
class Printed:
    """One answer.

    Attributes:
        document: As JSON.
        text: As people see it.
    """

    document: Mapping[str, Any]
    text: str

    @property
    def file(self) -> tuple[str, str]:
        """Name and text of the file to write."""
        [file] = self.document["files"]
        return file["name"], file["text"]

    @property
    def statements(self) -> list[str]:
        """Of a file of SQL, with the keys in their places."""
        text = re.sub("<(AWS_[A-Z_]+)>", lambda found: os.environ[found[1]], self.file[1])
        return [part.strip() for part in text.split(";\n") if part.strip()]

    @property
    def settings(self) -> dict[str, str]:
        """Of a file of Spark's settings."""
        return dict(line.split(" ", 1) for line in self.file[1].splitlines())

    def query(self, what: str) -> str:
        """The text of a query, which people see too."""
        [text] = [query["text"] for query in self.document["queries"] if query["what"] == what]
        assert text in self.text
        return str(text)


def printed(home: Path, engine: str, catalog: str, table: str, *more: str) -> Printed:
    """Ask the command, once for programs and once for people."""
    arguments = ["engines", table, "--for", engine, "--catalog", catalog, *more]
    environment = {"LAKESINK_HOME": str(home)}
    told = CliRunner().invoke(main, [*arguments, "--output", "json"], env=environment, catch_exceptions=False)
    shown = CliRunner().invoke(main, arguments, env=environment, catch_exceptions=False)
    assert told.exit_code == shown.exit_code == 0, told.output
    found = Printed(json.loads(told.stdout), shown.stdout)
    assert all(line in shown.stdout for line in found.file[1].splitlines())
    return found


def spark_conf(several: Iterable[Printed]) -> dict[str, str]:
    """Settings of all of them, with the jars that are here in place of the packages that Spark would download."""
    conf: dict[str, str] = {}
    asked: set[str] = set()
    for one in several:
        asked |= set(one.settings["spark.jars.packages"].split(","))
        conf |= one.settings
    assert asked == {*ICEBERG_SPARK.artifacts, *ICEBERG_AWS.artifacts}
    del conf["spark.jars.packages"]
    return conf | {"spark.jars": ",".join(map(str, (*fetched(ICEBERG_SPARK), *fetched(ICEBERG_AWS))))}


def flink_jars(several: Sequence[Printed]) -> set[str]:
    """The jars that Flink is said to need."""
    needs = [need.partition("lib folder: ")[2] for one in several for need in one.document["needs"]]
    return {jar for need in needs for jar in need.split(", ") if jar}
