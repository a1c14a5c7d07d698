"""All features of rows together, in every mode, form of the rows, and entry point: the table is what a dictionary says.

Which two features disturb each other is tested without Spark, by tests/upsert/test_row_features.py.
"""

import json
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame

import lakesink
from lakesink.rows.plan import DEBEZIUM_JSON
from lakesink.sinks.directory.directory_sink import FileSink
from lakesink.spark.source.data_source import LakesinkDataSource
from lakesink_catalog.connect.catalog import connect
from testkit.builders import TABLE, Lake
from tests.files.test_rows_in_front import LETTERS, batches, letters_in, read
from tests.files.test_rows_in_front import World as OtherWorld
from tests.spark.adapters import by_foreach_batch, by_format, embedded_catalog, spelled
from tests.spark.streams import FIRST_FILE_TIME, forget_commits, run
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


def into_files(rows: DataFrame, options: Options) -> None:
    run(lakesink.stream_files(rows, "out", sink_id="clicks", checkpoint="ck", **options))


def into_a_sink(rows: DataFrame, options: Options) -> None:
    run(lakesink.stream_to(rows, FileSink("out", "clicks"), checkpoint="ck", **options))


@pytest.mark.parametrize("decode", ["", "json"])
@pytest.mark.parametrize("into", [into_files, into_a_sink])
def test_rows_are_checked_in_front_of_sinks_that_write_to_no_table(
    spark: Any,
    tmp_path: Path,
    into: Callable[[DataFrame, Options], None],
    decode: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "lakesink")
    world = OtherWorld("quarantine", "quarantine" if decode else "")
    options: Options = {
        "expect": {"positive": ("amount >= 0", "quarantine"), "small": ("id < 7", "warn")},
        "dead_letter_table": LETTERS,
        "max_dead_letter_ratio": 1,
    }
    if decode:
        options |= {"decode": decode, "schema": "id BIGINT NOT NULL, amount INT", "on_malformed": "quarantine"}
    cast("Any", connect()).create_namespace_if_not_exists("demo")
    (tmp_path / "in").mkdir()
    for batch, events in enumerate(batches(world.malformed)):
        world.apply(batch, events)
        rows = [{"value": json.dumps(row)} if decode else row for row in events]
        file = tmp_path / "in" / f"{batch}.json"
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        os.utime(file, (FIRST_FILE_TIME + batch, FIRST_FILE_TIME + batch))
        for _ in range(2):  # the second time, there is nothing to do
            into(
                spark.readStream.schema("value STRING" if decode else "id LONG, amount INT").json(str(tmp_path / "in")),
                options,
            )
            forget_commits(tmp_path / "ck", batch - 1)
    assert read(tmp_path / "out") == world.rows
    assert letters_in(connect(create=False)) == world.letters
    ends = [one.getMessage() for one in caplog.records if one.getMessage().startswith("lakesink.batch.committed")]
    assert ["dead_letters=2" in line for line in ends] == [True, *([True] if decode else [False]), False]
    assert "unmet_rows=1" in ends[-1]


def test_what_a_sink_that_writes_to_no_table_cannot_have_is_refused_at_the_call(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows, unmet = (
        spark.readStream.schema("id LONG, value STRING").json(str(tmp_path / "in")),
        {"positive": ("id >= 0", "quarantine")},
    )
    cases: list[tuple[Options, str]] = [
        ({"mode": "upsert"}, "Only a table can have it"),
        ({"decode": "debezium-json"}, "decode=debezium-json.*Only a table can have it"),
        ({"decode": "json"}, "The option schema is required"),
        ({"schema": "id LONG"}, "needs decode"),
        ({"on_malformed": "quarantine"}, "The option dead_letter_table is required"),
        ({"expect": unmet}, "The option dead_letter_table is required"),
        ({"expect": unmet, "dead_letter_table": "letters"}, "needs a namespace"),
        ({"expect": {"small": "size < 1"}}, "there is no `size`"),
    ]
    for options, told in cases:
        for into in (into_files, into_a_sink):
            with pytest.raises(lakesink.SettingsError, match=told):
                into(rows, options)
    assert not Path("out").exists()
