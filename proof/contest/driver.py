"""Streams through the sinks, in this process's Spark or in a driver of their own.

``python -m proof.contest.driver ORDERS [JAR]...`` runs a JSON list of `Orders` side by side. It prints, last, the first
error that stopped one of them: a JSON text, empty if all ended well.
"""

import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from examples.guarantees.forgetful import ForgetfulSource
from proof import drivers
from proof.contest.sinks import SINKS
from proof.contest.target import Target

SPARK_SCHEMA = "device long, reading long"
SECONDS_A_ROW = 0.02
_GENERIC = frozenset({"StreamingQueryException", "PythonException", "Py4JException", "SparkException", "STREAM_FAILED"})
"""Names that say only that something failed."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What one start of a stream is told.

    Attributes:
        sink: Name of the sink.
        target: Where the stream goes.
        files: Most files in a batch.
        replays: Whether the source can give a batch again. One that cannot has one file in a batch.
        wap_id: `spark.wap.id`; empty for none.
        master: Of a driver of its own.
        slowly: True to take some time for every row, on executors.
        conf: Of a driver of its own.
    """

    sink: str
    target: Target
    files: int = 1
    replays: bool = True
    wap_id: str = ""
    master: str = "local[2]"
    slowly: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "Orders":
        """What `asdict` made of it."""
        return cls(**{**told, "target": Target(**told["target"])})


def driver(
    asked: Sequence[Orders], jars: Iterable[Path], log: Path, **variables: str
) -> AbstractContextManager[drivers.Driver]:
    """A driver of their own for streams; see `drivers.driver`."""
    arguments = [json.dumps([asdict(orders) for orders in asked]), *map(str, jars)]
    return drivers.driver(__name__, arguments, log, **variables)


def run_streams(spark: SparkSession, asked: Sequence[Orders]) -> list[str]:
    """Run streams side by side until their sources are used up.

    Returns:
        For each, the error that stopped it, in a word; empty if it ended well.
    """
    with ThreadPoolExecutor(len(asked)) as pool:
        return list(pool.map(partial(run_stream, spark), asked))


def run_stream(spark: SparkSession, orders: Orders) -> str:
    """Run one stream; see `run_streams`."""
    sink = SINKS[orders.sink]
    active_here(spark)
    settings = {**(catalog_conf(orders.target) if sink.in_jvm else {}), **staging_conf(orders)}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        writer = sink.writer(_rows(spark, orders), orders.target)
        if orders.replays:
            writer.trigger(availableNow=True).start().awaitTermination()
        else:  # this trigger would make one batch of all that a source has which is written in Python
            query = writer.start()
            query.processAllAvailable()
            query.stop()
    except Exception as error:  # noqa: BLE001 - whatever stops a stream is the answer
        return named(error)
    finally:
        for name in staging_conf(orders):
            spark.conf.unset(name)
    return ""


def active_here(spark: SparkSession) -> None:
    """Have this thread's SQL find the catalogs that the session knows: Spark looks for them by its thread."""
    spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)  # type: ignore[union-attr] # noqa: SLF001 - no public way


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
    by_session = orders.target.branch != "main" and orders.target.branch_by == "session"
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
    source = str(orders.target.folder / "source")
    if not orders.replays:
        spark.dataSource.register(ForgetfulSource)
        return spark.readStream.format(ForgetfulSource.name()).load(source)
    files = spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", orders.files).json(source)
    if not orders.slowly:
        return files

    def pause(_: int) -> bool:
        time.sleep(SECONDS_A_ROW)
        return True

    return files.where(udf(pause, "boolean")("reading"))


def main(asked: Sequence[Orders], jars: Iterable[str]) -> None:
    """The command line, see the module."""
    threading.Thread(target=drivers.end_with_the_parent, daemon=True).start()
    first = asked[0]
    spark = drivers.session(first.master, map(Path, jars), first.conf, first.target.folder)
    with ThreadPoolExecutor(len(asked)) as pool:
        running = as_completed([pool.submit(run_stream, spark, orders) for orders in asked])
        error = next((stopped for one in running if (stopped := one.result())), "")
        print(json.dumps(error), flush=True)
        if error:  # another stream may wait for ever for its death
            os._exit(1)
    spark.stop()


if __name__ == "__main__":
    main([Orders.from_json(told) for told in json.loads(sys.argv[1])], sys.argv[2:])
