"""Real queries with the canary in the catalog's configuration: plans, event log, progress, and Spark's own errors."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import lakesink
from proof.security.places import CATALOG, UNREACHABLE

WAITS_SECONDS = 120
STREAMED = "demo.streamed"


def stream_with_spark(seen: Path, folder: Path, given: Mapping[str, Any]) -> None:
    """Two queries that write, by both ways in, and two that fail; an append; what Spark keeps of them.

    Args:
        seen: Where to keep it.
        folder: Of inputs and checkpoints.
        given: Properties by keyword.
    """
    spark = _session(seen / "events", folder)
    try:
        rows = _rows(spark, folder)
        keyword = {"catalog_properties": given["properties"]}
        shown = [_finished(_by_call(rows, folder, CATALOG, "call", **keyword))]
        lakesink.register(spark)
        shown.append(_finished(_by_format(rows, folder, CATALOG, "format")))
        failed = [_failure(lambda: _by_call(rows, folder, UNREACHABLE, "no-call"))]
        failed.append(_failure(lambda: _by_format(rows, folder, UNREACHABLE, "no-format")))
        batch = spark.range(10).selectExpr("id", "'x' AS text")
        outcome = lakesink.append(batch, STREAMED, txn=("nightly", 1), catalog=CATALOG, **keyword)
        (seen / "plans").write_text("\n".join([*shown, repr(outcome), *_plans(rows, batch)]))
        (seen / "query errors").write_text("\n".join(failed))
    finally:
        spark.stop()


def _session(events: Path, folder: Path) -> SparkSession:
    events.mkdir()
    builder = SparkSession.builder.master("local[2]").appName("canary")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _rows(spark: SparkSession, folder: Path) -> DataFrame:
    inbox = folder / "inbox"
    inbox.mkdir()
    (inbox / "0.json").write_text("\n".join(json.dumps({"id": number, "text": "x"}) for number in range(10)))
    return spark.readStream.schema("id long, text string").json(str(inbox)).repartition(2)


def _by_call(rows: DataFrame, folder: Path, catalog: str, name: str, **options: Any) -> DataStreamWriter:
    checkpoint = str(folder / "checkpoints" / name)
    chosen = {"sink_id": name, "checkpoint": checkpoint, "catalog": catalog, "create_table": True, **options}
    return lakesink.stream(rows, STREAMED, **chosen).trigger(availableNow=True)


def _by_format(rows: DataFrame, folder: Path, catalog: str, name: str) -> DataStreamWriter:
    options = {
        "table": STREAMED,
        "sink-id": name,
        "checkpointLocation": str(folder / "checkpoints" / name),
        "catalog": catalog,
        "create-table": "true",
    }
    return rows.writeStream.format("lakesink").options(**options).trigger(availableNow=True)


def _finished(writer: DataStreamWriter) -> str:
    query = writer.start()
    assert query.awaitTermination(WAITS_SECONDS)
    plan = query._jsq.explainInternal(True)  # noqa: FBT003, SLF001 # what `explain` prints, as text
    return f"{plan}\n{query.recentProgress}\n{query.status}"


def _failure(writer: Callable[[], DataStreamWriter]) -> str:
    """What a user sees of a query that fails, at its start or later."""
    try:
        writer().start().awaitTermination(WAITS_SECONDS)
    except Exception as error:  # noqa: BLE001 - whatever Spark makes of it is looked at
        return f"{error!s}\n{error!r}\n{error.__cause__!r}\n{error.__context__!r}"
    raise AssertionError("a catalog that cannot be reached was reached")


def _plans(*frames: DataFrame) -> list[str]:
    return [frame._jdf.queryExecution().toString() for frame in frames]  # noqa: SLF001 # the whole plan as text
