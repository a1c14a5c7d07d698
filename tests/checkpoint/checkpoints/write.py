"""Writes the checkpoints beside this file: ``<python with PySpark 4.2 or later> write.py <folder>``.

Small and real: nothing in them is changed but the place of the input files, and what is large and not read is left out.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import DataFrame, SparkSession

STREAMING = "spark.sql.streaming."
NAMES = {f"{STREAMING}queryEvolution.enableSourceEvolution": "true"}
BY_KEY = {f"{STREAMING}offsetLog.formatVersion": "2"}
STATE_IDS = {
    f"{STREAMING}stateStore.checkpointFormatVersion": "2",
    f"{STREAMING}stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
SINKS = {f"{STREAMING}queryEvolution.enableSinkEvolution": "true"}
KEPT = ("metadata", "offsets", "commits", "sources")


class Writer:
    """Runs queries over folders of files with one row each.

    Args:
        spark: The session.
        place: Where files and checkpoints are written first.
    """

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self._spark, self._place = spark, place

    def add(self, folder: str, *numbers: int) -> None:
        """Files of a source."""
        (self._place / folder).mkdir(exist_ok=True)
        for number in numbers:
            path = self._place / folder / f"{number}.json"
            path.write_text(json.dumps({"id": number}) + "\n")
            os.utime(path, (1_700_000_000 + number,) * 2)

    def rows(self, folder: str, name: str = "") -> DataFrame:
        """One source; one file a batch."""
        reader: Any = self._spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
        rows: DataFrame = (reader.name(name) if name else reader).json(str(self._place / folder))
        return rows

    def run(
        self, checkpoint: str, query: Callable[[], DataFrame], conf: Mapping[str, str] | None = None, sink: str = ""
    ) -> None:
        """All there is, on a checkpoint."""
        for name, value in (conf or {}).items():
            self._spark.conf.set(name, value)
        stream = query().writeStream.option("checkpointLocation", str(self._place / checkpoint))
        started = stream.foreachBatch(_read).trigger(availableNow=True)
        if sink:
            started._jwrite.name(sink)  # noqa: SLF001 - PySpark does not have it yet
        started.start().awaitTermination()
        for name in conf or {}:
            self._spark.conf.unset(name)

    def keep(self, checkpoint: str, folder: Path) -> None:
        """Copy what is read of a checkpoint."""
        shutil.rmtree(folder / checkpoint, ignore_errors=True)
        for path in sorted((self._place / checkpoint).rglob("*")):
            name = path.relative_to(self._place / checkpoint)
            if path.is_file() and name.parts[0] in KEPT and not path.name.endswith(".crc"):
                (folder / checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / checkpoint / name).write_text(path.read_text().replace(f"file://{self._place}", "file:///in"))


def _read(rows: DataFrame, _: int) -> None:
    rows.count()


def _write(writer: Writer) -> list[str]:
    def alpha() -> DataFrame:
        return writer.rows("a", "alpha")

    def beta() -> DataFrame:
        return writer.rows("b", "beta")

    writer.add("a", 0, 1)
    writer.add("b", 0)
    writer.run("one-name", alpha, NAMES)
    writer.run("names", lambda: alpha().union(beta()), NAMES)
    writer.run("names-by-key", lambda: alpha().union(beta()), NAMES | BY_KEY)
    writer.run("version-1", lambda: writer.rows("a").union(writer.rows("b")))
    writer.run("version-2", lambda: writer.rows("a").union(writer.rows("b")), BY_KEY)
    writer.run("state-ids", lambda: writer.rows("a").dropDuplicates(["id"]), STATE_IDS)
    writer.run("sinks", alpha, NAMES | BY_KEY | SINKS, sink="mine")
    (writer._place / "empty").mkdir()  # noqa: SLF001 - our own

    def twice() -> DataFrame:
        rows = writer.rows("a")
        return rows.union(writer.rows("b")).union(rows).union(writer.rows("empty"))

    writer.run("read-twice", twice, BY_KEY)
    writer.add("a", 2)
    writer.run("names-by-key", lambda: beta().union(alpha()), NAMES | BY_KEY)
    writer.add("c", 0)
    writer.run("names-by-key", lambda: writer.rows("c", "gamma").union(alpha()), NAMES | BY_KEY)
    writer.add("a", 3)
    writer.run("names-by-key", lambda: writer.rows("c", "gamma").union(alpha()), NAMES | BY_KEY)
    writer.add("b", 1)
    writer.run("names-by-key", lambda: alpha().union(beta()).union(writer.rows("c", "gamma")), NAMES | BY_KEY)
    return ["one-name", "names", "names-by-key", "version-1", "version-2", "state-ids", "sinks", "read-twice"]


def main(folder: Path) -> None:
    """Write all of them for the version of PySpark that this is run with."""
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    with TemporaryDirectory() as place:
        writer = Writer(spark, Path(place))
        for checkpoint in _write(writer):
            writer.keep(checkpoint, folder / ".".join(spark.version.split(".")[:2]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
