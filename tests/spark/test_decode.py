"""Documents in a stream's column ``value`` become the table's rows; beside Spark's own `from_json`."""

import json
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.types import BinaryType, IntegerType, LongType, TimestamptzType
from pyspark.sql.functions import from_json

import lakesink
from lakesink.decode.json_values import JsonReader
from lakesink.rows.plan import BinaryEncoding
from lakesink.rows.schema import Field, ListOf, MapOf, Primitive, Struct, Type
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_protocol.catalogue import DataState
from lakesink_protocol.errors import LakesinkError
from lakesink_tools.cli.main import main

TABLE = "demo.events"
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))])


@pytest.fixture
def table(home: Path) -> None:  # noqa: ARG001 - where the embedded catalog is
    create_table(connect(), TABLE, COLUMNS)


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = load_table(connect(create=False), TABLE).scan().to_arrow().sort_by("id").to_pylist()
    return found


def lines(folder: Path, *texts: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / f"{len(list(folder.iterdir()))}.txt").write_text("\n".join(texts) + "\n")
    return folder


def append(spark: Any, folder: Path, version: int = 0, **options: Any) -> None:
    """One batch of all documents of a folder, without a query."""
    rows = spark.read.format("text").load(str(folder))
    lakesink.append(rows, TABLE, txn=("events", version), decode="json", **options)


def run(spark: Any, folder: Path, **options: Any) -> None:
    stream = spark.readStream.format("text").load(str(folder))
    checkpoint = folder.with_name("checkpoint")
    writer = lakesink.stream(stream, TABLE, sink_id="events", checkpoint=checkpoint, decode="json", **options)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()


@pytest.mark.usefixtures("table")
def test_documents_of_a_stream_become_rows_and_each_batch_once(spark: Any, tmp_path: Path) -> None:
    folder = lines(tmp_path / "in", '{"id": 1, "name": "a", "other": []}', '{"id": 2, "at": "2024-02-29T12:00:00Z"}')
    run(spark, folder)
    lines(folder, '{"id": 3}')
    run(spark, folder)
    run(spark, folder)
    assert [(row["id"], row["name"], row["at"] and row["at"].isoformat()) for row in rows()] == [
        (1, "a", None),
        (2, None, "2024-02-29T12:00:00+00:00"),
        (3, None, None),
    ]


@pytest.mark.usefixtures("table")
def test_a_malformed_document_ends_the_query_by_name_and_loses_nothing(spark: Any, tmp_path: Path) -> None:
    folder = lines(tmp_path / "in", '{"id": 1}', '{"id": "one"}')
    with pytest.raises(Exception, match=r"LAKESINK_VALUE_MALFORMED\] 1 malformed document in batch 0; the first: "):
        append(spark, folder)
    assert rows() == []
    append(spark, folder, on_malformed="quarantine")
    assert [row["id"] for row in rows()] == [1]


@pytest.mark.usefixtures("table")
def test_all_malformed_values_of_a_batch_are_told_of_once_by_file_row_column_and_kind(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = lines(tmp_path / "in", '{"id": 1}', '{"id": "private"}', '{"at": 7}')
    lines(folder, '{"id": 1.5}')
    with pytest.raises(Exception, match="3 malformed documents in batch 0") as failed:
        run(spark, folder)
    [record] = [record for record in caplog.records if "VALUE_MALFORMED" in record.getMessage()]
    first, *rest = record.getMessage().splitlines()
    told = [line for line in rest if line.startswith("  - ")]
    assert first.startswith("lakesink.batch.failed ")
    assert sorted(told) == [
        f"  - file:{folder}/0.txt, row 2: column id: BIGINT expected, found text of 7 characters",
        f"  - file:{folder}/0.txt, row 3: column at: TIMESTAMP expected, found a whole number of 1 digit",
        f"  - file:{folder}/1.txt, row 1: column id: BIGINT expected, found a fraction of 2 digits",
    ]
    assert "  - file:" not in str(failed.value)
    assert "private" not in caplog.text + str(failed.value)


@pytest.mark.usefixtures("table")
def test_malformed_values_fail_no_task_of_spark_s_and_are_shown_only_on_request(spark: Any, tmp_path: Path) -> None:
    folder = lines(tmp_path / "in", *(f'{{"id": "v{number}"}}' for number in range(30)))
    spark.sparkContext.setJobGroup("malformed", "")
    with pytest.raises(Exception, match="At least 30 malformed documents") as failed:
        append(spark, folder, show_values=True)
    told = [line for line in str(failed.value).splitlines() if line.startswith("  - ")]
    assert len(told) == 20
    assert told[19].endswith('row 20: column id: BIGINT expected, found text of 3 characters: "v19"')
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup("malformed")]
    stages = [tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds]
    assert [(stage.numCompletedTasks > 0, stage.numFailedTasks) for stage in stages] == [(True, 0)]


@pytest.mark.usefixtures("table")
def test_an_append_of_malformed_documents_raises_the_whole_list(spark: Any) -> None:
    records = spark.createDataFrame(
        [('{"id": "one"}', "t", 1, 7)], "value string, topic string, partition int, offset long"
    )
    with pytest.raises(lakesink.WriteError) as refused:
        lakesink.append(records, TABLE, txn=("load", 1), decode="json")
    first, second, *_ = str(refused.value).splitlines()
    assert first.startswith(
        "[LAKESINK_VALUE_MALFORMED] 1 malformed document in batch 1; the first: topic t, partition 1"
    )
    assert len(first) < 200
    told = "topic t, partition 1, offset 7: column id: BIGINT expected, found text of 3 characters"
    assert second == f"  - {told}"


@pytest.mark.usefixtures("table")
def test_a_duckdb_that_is_too_old_is_refused_before_the_start(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duckdb, "__version__", "1.5.6")
    stream = spark.readStream.format("text").load(str(lines(tmp_path / "in", "{}")))
    with pytest.raises(lakesink.WriteError, match=r"duckdb 1\.5\.6 is installed") as refused:
        lakesink.stream(stream, TABLE, sink_id="events", checkpoint=tmp_path / "checkpoint", decode="json")
    assert (refused.value.code, refused.value.data) == ("LAKESINK_LIBRARY_TOO_OLD", DataState.UNCHANGED.value)


@pytest.mark.usefixtures("table")
def test_rows_without_documents_are_refused_before_a_task_runs(spark: Any) -> None:
    with pytest.raises(lakesink.WriteError, match="Decoding needs a column 'value'") as refused:
        lakesink.append(spark.range(1), TABLE, txn=("load", 1), decode="json")
    assert refused.value.code == "LAKESINK_SCHEMA_MISMATCH"


@pytest.mark.usefixtures("table")
def test_kafka_s_own_columns_are_filled_where_the_table_has_them(spark: Any) -> None:
    kinds = {"partition": IntegerType(), "offset": LongType(), "timestamp": TimestamptzType(), "key": BinaryType()}
    with load_table(connect(), TABLE).update_schema() as update:
        for name, kind in kinds.items():
            update.add_column(f"_kafka_{name}", kind)
    records = spark.range(1).selectExpr(
        """binary('{"id": 5}') as value""",
        "'clicks' as topic",
        "1 as partition",
        "7L as offset",
        "timestamp'2024-02-29 12:00:00Z' as timestamp",
        "binary('k') as key",
    )
    lakesink.append(records, TABLE, txn=("load", 1), decode="json")
    [row] = rows()
    assert (row["id"], row["_kafka_partition"], row["_kafka_offset"], row["_kafka_key"]) == (5, 1, 7, b"k")
    assert row["_kafka_timestamp"].isoformat() == "2024-02-29T12:00:00+00:00"


@pytest.mark.usefixtures("table")
def test_keys_without_a_column_are_told_of_once_and_shown_with_their_batch(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "lakesink")
    folder = lines(tmp_path / "in", '{"id": 1, "new": 1, "more": {"x": 2}}', '{"id": 2, "new": null}')
    stream = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder))
    lines(folder, '{"id": 3, "new": 7}')
    writer = lakesink.stream(stream, TABLE, sink_id="events", checkpoint=tmp_path / "checkpoint", decode="json")
    writer.trigger(availableNow=True).start().awaitTermination()
    told = [text for text in caplog.messages if text.startswith("lakesink.decode.unknown-keys")]
    assert " ".join(told).count('"new"') == 1
    committed = [text for text in caplog.messages if text.startswith("lakesink.batch.committed")]
    assert sorted(text.partition("unknown_keys=")[2].partition(" seconds")[0] for text in committed) == [
        '1 unknown_names=["new"]',
        '2 unknown_names=["more","new"]',
    ]
    found = CliRunner().invoke(main, ["log", TABLE])
    assert "committed, 2 unknown keys" in found.output
    assert "3 values had no column" in CliRunner().invoke(main, ["audit", TABLE]).output


@pytest.mark.usefixtures("table")
def test_a_column_that_the_rows_lack_is_told_of_before_it_is_null(spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    lakesink.append(spark.range(1).selectExpr("id", "'x' AS name"), TABLE, txn=("load", 1))
    [told] = [text for text in caplog.messages if text.startswith("lakesink.columns.missing")]
    assert told.endswith("the rows lack these columns of the table, which become NULL: at")
    assert [row["at"] for row in rows()] == [None]


# Beside from_json


MALFORMED = "malformed"
SCALARS = {
    "int": "int", "long": "bigint", "float": "float", "double": "double", "boolean": "boolean", "string": "string",
    "date": "date", "timestamp": "timestamp_ntz", "timestamptz": "timestamp", "decimal(9, 2)": "decimal(9,2)",
    "binary": "binary",
}  # fmt: skip
"""Iceberg's types and Spark's."""
VALUES = (
    "null", "true", "false", "7", "-7", "0", "1.5", "1.0", "1e2", "2147483648", "9223372036854775808", "0.1", "1e400",
    "NaN", "Infinity", '"NaN"', '"Infinity"', '"7"', '"1.5"', '" 7"', '"0x7"', '"true"', '"yes"', '""', '"x"', '"AAE="',
    '"AAE"', '"2024-02-29"', '"2023-02-29"', '"2024-2-9"', '"2024-02-29T12:00:00"', '"2024-02-29 12:00:00.123"',
    '"2024-02-29T12:00:00Z"', '"2024-02-29T12:00:00.123456+01:00"', '"2024-02-29T12:00:00.123456789Z"', "1709208000",
    "12.34", "12.345", '"12.34"', '"12.345"', "12345678.9", "[]", "[7]", "{}", '{"x":7}',
)  # fmt: skip
LOSSY_IN_SPARK = {
    "float": {"1e400"},
    "double": {"1e400"},
    "decimal(9, 2)": {"12.345", '"12.345"'},
    "date": {'"7"', '"2024-2-9"', *(value for value in VALUES if value.startswith('"2024-02-29') and ":" in value)},
    "timestamp": {'"2024-2-9"'},
    "timestamptz": {
        "7", "-7", "0", "2147483648", "1709208000", '"2024-02-29"', '"2024-2-9"', '"2024-02-29T12:00:00"',
        '"2024-02-29 12:00:00.123"', '"2024-02-29T12:00:00.123456789Z"',
    },
}  # fmt: skip
"""What `from_json` takes and lakesink does not: infinity for a number, rounded, cut, of a zone that nobody named."""


def column(kind: Type) -> Struct:
    return Struct((Field(1, "c", required=False, type=kind),))


def ours(documents: list[str], kind: Type) -> list[Any]:
    parsed = JsonReader(encoding=BinaryEncoding.BASE64).read(pa.array(documents), column(kind))
    misfits = [False] * len(documents) if parsed.misfits is None else parsed.misfits.to_pylist()
    values = parsed.values.to_pylist()
    return [MALFORMED if wrong else value["c"] for wrong, value in zip(misfits, values, strict=True)]


def theirs(spark: Any, documents: list[str], *kinds: str) -> dict[str, list[Any]]:
    """What `from_json` makes of the documents, by kind."""
    frame = spark.createDataFrame([(document,) for document in documents], "document string")
    options = {"columnNameOfCorruptRecord": "corrupt"}
    parsed = [from_json("document", f"c {kind}, corrupt string", options).alias(kind) for kind in kinds]
    found = frame.select(*parsed).toArrow()
    return {
        kind: [MALFORMED if row["corrupt"] is not None else row["c"] for row in column.to_pylist()]
        for kind, column in zip(kinds, found.columns, strict=True)
    }


def test_a_scalar_is_read_as_from_json_reads_it_or_the_difference_is_documented(spark: Any) -> None:
    documents = [f'{{"c": {value}}}' for value in VALUES]
    of_spark = theirs(spark, documents, *SCALARS.values())
    for kind, spark_s_kind in SCALARS.items():
        pairs = zip(VALUES, ours(documents, Primitive(kind)), of_spark[spark_s_kind], strict=True)
        differing = {value: (mine, spark_s) for value, mine, spark_s in pairs if repr(mine) != repr(spark_s)}
        lossy = {value for value, (mine, _) in differing.items() if mine == MALFORMED}
        assert lossy == LOSSY_IN_SPARK.get(kind, set()), kind
        for value, (mine, spark_s) in differing.items():
            quoted = value.startswith('"') and kind not in ("date", "timestamp", "timestamptz", "string")
            assert value in lossy or (spark_s == MALFORMED and quoted) or kind == "string", (kind, value, mine, spark_s)


def optional(number: int, name: str, kind: Type) -> Field:
    return Field(number, name, required=False, type=kind)


TEXT = Field(12, "key", required=True, type=Primitive("string"))
WHOLE = Struct(
    (
        optional(2, "int", Primitive("int")),
        optional(3, "double", Primitive("double")),
        optional(4, "text", Primitive("string")),
        optional(5, "price", Primitive("decimal(9, 2)")),
        optional(6, "day", Primitive("date")),
        optional(7, "at", Primitive("timestamptz")),
        optional(8, "list", ListOf(optional(9, "element", Struct((optional(10, "flag", Primitive("boolean")),))))),
        optional(
            11,
            "map",
            MapOf(TEXT, optional(13, "value", Primitive("long"))),
        ),
    )
)
WHOLE_IN_SPARK = (
    "struct<int int, double double, text string, price decimal(9,2), day date, at timestamp,"
    " list array<struct<flag boolean>>, map map<string,bigint>>"
)


def fitting(chance: Random) -> dict[str, Any]:
    """A document whose values fit; keys may be missing, NULL, or unknown."""
    made = {
        "int": chance.randint(-(2**31), 2**31 - 1),
        "double": chance.choice([chance.random(), chance.uniform(-1e300, 1e300), 0.0, 1e-310]),
        "text": "".join(chance.choices('aé\U0001f600"\\/\n\t\0 x', k=chance.randint(0, 6))),
        "price": chance.choice([float(Decimal(chance.randint(-(10**9), 10**9)) / 100), chance.randint(-9, 9), "1.20"]),
        "day": f"{chance.randint(1, 9999):04}-02-28",
        "at": f"{chance.randint(1900, 2100)}-02-28T23:59:5{chance.choice(['9Z', '9.5Z', '9.123456+05:30'])}",
        "list": chance.choice([[], [None], [{"flag": True}, {}], [{"flag": None, "more": 1}]]),
        "map": {str(number): chance.choice([None, number]) for number in range(chance.randint(0, 3))},
        "unknown": [{"x": {}}],
    }
    return {key: None if chance.random() < 0.1 else value for key, value in made.items() if chance.random() < 0.9}


def test_random_documents_that_fit_are_read_as_from_json_reads_them(spark: Any) -> None:
    chance = Random(20)
    documents = [json.dumps({"c": fitting(chance)}, ensure_ascii=chance.random() < 0.5) for _ in range(2_000)]
    mine, spark_s = ours(documents, WHOLE), theirs(spark, documents, WHOLE_IN_SPARK)[WHOLE_IN_SPARK]
    assert MALFORMED not in mine
    assert [pair for pair in zip(documents, mine, spark_s, strict=True) if repr(pair[1]) != repr(pair[2])] == []


ODD_BYTES = [b'{"id": 1, "name": "\xff"}', b'{"id": 2, "name": "\xed\xa0\x80"}', b'{"id": 3, "name": "\xc3\xa4"}']


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("as_text", [False, True], ids=["bytes", "text"])
def test_bytes_that_are_no_text_are_malformed_whatever_spark_calls_them(spark: Any, as_text: bool) -> None:  # noqa: FBT001 - a case
    documents = spark.createDataFrame([(bytearray(value),) for value in ODD_BYTES], "value binary")
    if as_text:
        documents = documents.selectExpr("cast(value as string) as value")
    aside: dict[str, Any] = {"on_malformed": "quarantine", "max_dead_letter_ratio": 1.0}
    lakesink.append(documents.coalesce(1), TABLE, txn=("odd", 1), decode="json", **aside)
    assert [(row["id"], row["name"]) for row in rows()] == [(3, "ä")]


@pytest.mark.usefixtures("table")
def test_a_column_that_holds_no_documents_is_refused(spark: Any) -> None:
    with pytest.raises(LakesinkError, match="a column 'value' of BINARY or STRING; the query has BIGINT"):
        lakesink.append(spark.range(1).toDF("value"), TABLE, txn=("odd", 1), decode="json")
