"""One stream through one of the sinks, in this process's Spark or in a driver of its own.

``python -m proof.contrast.driver ORDERS [JAR]...`` runs the JSON of `Orders` and prints, last, the error that stopped
the stream: a JSON text, empty if it ended well.
"""

import json
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from proof.contrast.sinks import SINKS, BranchBy, Target
from proof.drivers import end_with_the_parent, session

SPARK_SCHEMA = "partition long, offset long"
SECONDS_A_ROW = 0.02
_GENERIC = frozenset({"StreamingQueryException", "PythonException", "Py4JException", "SparkException", "STREAM_FAILED"})
"""Names that say only that something failed."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What one start of a stream is told.

    Attributes:
        sink: Name of the sink.
        target: Where the stream goes.
        source: Folder of JSON lines.
        files: Most files in a batch.
        wap_id: `spark.wap.id`; empty for none.
        master: Of a driver of its own.
        slowly: True to take some time for every row, on executors.
        conf: Of a driver of its own.
    """

    sink: str
    target: Target
    source: str
    files: int
    wap_id: str = ""
    master: str = "local[2]"
    slowly: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """For the command line."""
        told = asdict(self)
        told["target"]["branch_by"] = self.target.branch_by.name
        return json.dumps(told)

    @classmethod
    def from_json(cls, text: str) -> "Orders":
        """What `to_json` wrote."""
        told = json.loads(text)
        target = told.pop("target")
        branch_by = BranchBy[target.pop("branch_by")]
        return cls(target=Target(**target, branch_by=branch_by), **told)


def run_stream(spark: SparkSession, orders: Orders) -> str:
    """Run the stream until its source is used up.

    Returns:
        The error that stopped it, in a word; empty if it ended well.
    """
    sink = SINKS[orders.sink]
    settings = {**(catalog_conf(orders.target) if sink.in_jvm else {}), **staging_conf(orders)}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        writer = sink.writer(_rows(spark, orders), orders.target)
        writer.trigger(availableNow=True).start().awaitTermination()
    except Exception as error:  # noqa: BLE001 - whatever stops a stream is the answer
        return named(error)
    finally:
        for name in staging_conf(orders):
            spark.conf.unset(name)
    return ""


def catalog_conf(target: Target) -> dict[str, str]:
    """The catalog as Spark's session takes it, so that Iceberg's jar reaches the very one that PyIceberg does."""
    catalog = f"spark.sql.catalog.{target.catalog}"
    known = {catalog: "org.apache.iceberg.spark.SparkCatalog", f"{catalog}.cache-enabled": "false"}
    if target.properties["type"] == "rest":
        return known | {f"{catalog}.type": "rest", f"{catalog}.uri": target.properties["uri"]}
    return known | {
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": target.properties["uri"].replace("sqlite:///", "jdbc:sqlite:"),
        f"{catalog}.warehouse": target.properties["warehouse"],
        f"{catalog}.jdbc.schema-version": "V1",
    }


def staging_conf(orders: Orders) -> dict[str, str]:
    """What a session says of staging."""
    by_session = orders.target.branch != "main" and orders.target.branch_by is BranchBy.SESSION
    return {
        **({"spark.wap.branch": orders.target.branch} if by_session else {}),
        **({"spark.wap.id": orders.wap_id} if orders.wap_id else {}),
    }


def named(error: Exception) -> str:
    """The error in a word: lakesink's code, or the exception of Python or Java that began it, or Spark's condition."""
    own = re.findall(r"\[(LAKESINK_[A-Z_]+)\]", str(error))
    if own:
        return str(own[0])
    python = re.findall(r"^(?:\w+\.)+(\w+(?:Exception|Error))\b", str(error), re.MULTILINE)
    conditions = re.findall(r"\[([A-Z]+(?:_[A-Z]+)+)\]", str(error))
    telling = [name for name in (*python[-1:], *_java_names(error), *conditions) if name not in _GENERIC]
    return telling[0] if telling else type(error).__name__


def _java_names(error: Exception) -> Iterator[str]:
    """Classes of an exception of the JVM and of its causes."""
    thrown = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    while thrown is not None:
        yield str(thrown.getClass().getSimpleName())
        thrown = thrown.getCause()


def _rows(spark: SparkSession, orders: Orders) -> DataFrame:
    files = spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", orders.files).json(orders.source)
    if not orders.slowly:
        return files

    def pause(_: int) -> bool:
        time.sleep(SECONDS_A_ROW)
        return True

    return files.where(udf(pause, "boolean")("offset"))


def main(orders: Orders, jars: Iterable[str]) -> None:
    """The command line, see the module."""
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    spark = session(orders.master, map(Path, jars), orders.conf, Path(orders.target.checkpoint).parent)
    try:
        print(json.dumps(run_stream(spark, orders)), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(Orders.from_json(sys.argv[1]), sys.argv[2:])
