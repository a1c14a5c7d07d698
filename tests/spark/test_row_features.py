"""All features of rows together, in every mode, form of the rows, and entry point: the table is what a dictionary says.

Which two features disturb each other is tested without Spark, by tests/upsert/test_row_features.py.
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame

import lakesink
from lakesink.rows.plan import DEBEZIUM_JSON
from lakesink.spark.source.data_source import LakesinkDataSource
from lakesink_catalog.connect.catalog import connect
from testkit.builders import TABLE, Lake
from tests.spark.adapters import by_foreach_batch, by_format, embedded_catalog, spelled
from tests.spark.streams import FIRST_FILE_TIME, run
from tests.upsert.test_row_features import FEATURES, TABLE_SCHEMA, WIDE, World, cells, check, document_of

pytestmark = pytest.mark.usefixtures("home")
RECORD = "value STRING, topic STRING, partition INT, offset LONG"
Options = dict[str, Any]


def by_stream(rows: DataFrame, _: int, options: Options) -> None:
    run(by_foreach_batch(rows, TABLE, sink_id="s", checkpoint="ck", **options))


def by_stream_of_format(rows: DataFrame, _: int, options: Options) -> None:
    run(by_format(rows, TABLE, sink_id="s", checkpoint="ck", **options))


def by_batch(rows: DataFrame, batch: int, options: Options) -> None:
    function = lakesink.append if "mode" not in options else lakesink.upsert
    function(rows, TABLE, txn=("s", batch), **options)


def by_batch_of_format(rows: DataFrame, batch: int, options: Options) -> None:
    rows.sparkSession.dataSource.register(LakesinkDataSource)
    more = embedded_catalog() | {"table": TABLE, "txn-app-id": "s", "txn-version": str(batch)}
    rows.write.format("lakesink").mode("append").options(**more, **spelled(options)).save()


ENTRIES: dict[str, Callable[[DataFrame, int, Options], None]] = {
    "stream": by_stream,
    "batch": by_batch,
    "stream-of-format": by_stream_of_format,
    "batch-of-format": by_batch_of_format,
}


def lines_of(events: Sequence[Any], mode: str, decode: str) -> list[str]:
    """Rows as JSON, or documents in records of Kafka."""
    if not decode:
        return [json.dumps({"op": operation[0]} | row) for operation, row in events]
    documents = [json.dumps(document_of(operation, row, decode, mode)) for operation, row in events]
    return [json.dumps({"value": one, "topic": "t", "partition": 0, "offset": at}) for at, one in enumerate(documents)]


def columns_of(events: Sequence[Any], decode: str) -> str:
    """The columns of the rows of a batch: later ones may have others, or wider ones."""
    if decode:
        return RECORD
    wide = any(row["amount"] == WIDE for _, row in events)
    note = ", note STRING" if any("note" in row for _, row in events) else ""
    return f"op STRING, id LONG, version LONG, amount {'LONG' if wide else 'INT'}, name STRING{note}"


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(("mode", "decode", "chosen"), [one for one in cells(whole=True) if "avro" not in one.id])
def test_all_features_of_rows_together_by_each_entry_point(
    spark: Any, tmp_path: Path, entry: str, mode: str, decode: str, chosen: frozenset[str]
) -> None:
    lake = Lake(tmp_path, cast("Any", connect()), TABLE)
    lake.catalog.create_namespace_if_not_exists("demo")
    lake.catalog.create_table(TABLE, TABLE_SCHEMA, properties={"format-version": "2"})
    world = World(mode, chosen, typed=not decode)
    options: Options = {name: value for one in chosen for name, value in FEATURES[one].items()}
    if decode:
        options["decode"] = decode
    if mode != "append":
        options |= {"mode": mode, "keys": "id", "sequence_by": "version"}
    of_format, rule = "format" in entry, {"positive": ("amount >= 0", "quarantine")}
    if mode == "changes" and decode != DEBEZIUM_JSON:
        options |= {"apply_as_deletes": "op = 'd'", "except_column_list": "op"}
    (tmp_path / "in").mkdir()
    for batch, events in enumerate(world.batches()):
        world.apply(events)
        file = tmp_path / "in" / f"{batch}.json"
        file.write_text("\n".join(lines_of(events, mode, decode)) + "\n")
        os.utime(file, (FIRST_FILE_TIME + batch, FIRST_FILE_TIME + batch))
        reader = (spark.readStream if "stream" in entry else spark.read).schema(columns_of(events, decode))
        rows, given = reader.json(str(tmp_path / "in" if "stream" in entry else file)), dict(options)
        if of_format and not decode:
            rows = lakesink.with_expectations(rows, rule)
            if mode == "changes":
                rows = rows.withColumn("op", rows.op == "d")
                given["apply_as_deletes"] = "op"
                del given["except_column_list"]
        else:
            given["expect"] = rule
        if mode != "changes" and not decode:
            rows = rows.drop("op")
        for _ in range(2):  # the second time, there is nothing to do
            ENTRIES[entry](rows, batch, given)
            check(lake, world)
