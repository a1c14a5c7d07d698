"""A stream of documents creates its table, by each adapter; and the reader of schemas agrees with Spark's own."""

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

import lakesink
from lakesink.settings.ddl import columns_of
from lakesink.settings.option_types import Options
from lakesink.spark.rows.frame_schema import stored_schema
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.arrow_schema import iceberg_schema
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.errors import SettingsError
from tests.spark.adapters import Adapter, by_format
from tests.spark.streams import failure, run

TABLE = "demo.orders"
OPTIONS: dict[str, Any] = {"sink_id": "orders", "checkpoint": "ck", "decode": "json", "create_table": True}


@pytest.fixture
def inbox(home: Path, tmp_path: Path) -> Path:  # noqa: ARG001 - where the embedded catalog is
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def arrive(inbox: Path, *texts: str) -> None:
    (inbox / f"{len(list(inbox.iterdir()))}.txt").write_text("\n".join(texts) + "\n")


def documents(spark: Any, inbox: Path) -> Any:
    return spark.readStream.format("text").load(str(inbox))


def in_files(table: str = TABLE) -> list[dict[str, Any]]:
    """The rows as PyArrow reads them from the data files; values that are there."""
    files = (task.file.file_path for task in load_table(connect(create=False), table).scan().plan_files())
    rows = [row for path in files for row in pq.read_table(path.removeprefix("file://")).to_pylist()]
    found = ({name: value for name, value in row.items() if value is not None} for row in rows)
    return sorted(found, key=lambda row: row["id"])


def test_a_stream_creates_its_table_from_a_schema_and_from_its_documents(
    spark: Any, inbox: Path, either: Adapter
) -> None:
    options = OPTIONS | {"schema_evolution": "add", "partition_by": "month(day), bucket(2, id)"}
    schema = "id BIGINT NOT NULL, day DATE, price DECIMAL(9, 2), items ARRAY<STRUCT<sku: STRING>>"
    arrive(inbox, '{"id": 1, "day": "2024-02-29", "price": 1.5, "items": [{"sku": "a"}]}', '{"id": 2, "new": {"a": 1}}')
    run(either(documents(spark, inbox), TABLE, schema=schema, **options))
    arrive(inbox, '{"id": 3, "items": [{"sku": "b", "n": 2}]}')
    run(either(documents(spark, inbox), TABLE, schema=schema, **options))
    assert in_files() == [
        {"id": 1, "day": date(2024, 2, 29), "price": Decimal("1.50"), "items": [{"sku": "a"}]},
        {"id": 2, "new": {"a": 1}},
        {"id": 3, "items": [{"sku": "b", "n": 2}]},
    ]
    table = load_table(connect(create=False), TABLE)
    assert [(one.name, one.required) for one in table.schema().fields] == [
        ("id", True), ("day", False), ("price", False), ("items", False), ("new", False),
    ]  # fmt: skip
    assert [str(one.transform) for one in table.spec().fields] == ["month", "bucket[2]"]
    assert [record.schema_change for record in lakesink.history(TABLE)] == ["added new", "added items.element.n"]


def test_the_first_documents_are_enough(spark: Any, inbox: Path, either: Adapter) -> None:
    arrive(inbox, '{"id": 1, "at": {"city": "Bonn"}}', '{"id": 2, "ok": true}')
    run(either(documents(spark, inbox), TABLE, schema_evolution="add", **OPTIONS))
    assert in_files() == [{"id": 1, "at": {"city": "Bonn"}}, {"id": 2, "ok": True}]


def test_a_row_with_a_new_column_is_judged_too(spark: Any, inbox: Path) -> None:
    arrive(inbox, '{"id": 1, "good": 1}', '{"id": -2, "new": 1}')
    aside = {"positive": ("id > 0", "quarantine")}
    more: Any = {"schema": "id BIGINT", "schema_evolution": "add", "expect": aside}
    run(lakesink.stream(documents(spark, inbox), TABLE, **more, **OPTIONS))
    assert in_files() == [{"id": 1, "good": 1}]
    letters = load_table(connect(create=False), f"{TABLE}__dead_letters").scan().to_arrow().to_pylist()
    assert [one["payload"] for one in letters] == ['{"id": -2, "new": 1}']


def test_an_upsert_of_documents_creates_its_table_with_the_key(spark: Any, home: Path) -> None:  # noqa: ARG001
    for version, text in enumerate(['{"id": 1, "n": 1}', '{"id": 1, "n": 2}'], 1):
        rows = spark.createDataFrame([(text,)], "value string")
        options: Options = {"keys": ["id"], "decode": "json", "create_table": True, "schema": "id BIGINT, n INT"}
        lakesink.upsert(rows, TABLE, txn=("load", version), **options)
    table = load_table(connect(create=False), TABLE)
    assert [table.schema().find_column_name(one) for one in table.schema().identifier_field_ids] == ["id"]
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "n": 2}]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, "OPTION_MISSING"),
        ({"schema": "id BIGNIT"}, "OPTION_INVALID"),
        ({"schema": "id BINARY"}, "OPTION_MISSING"),
        ({"schema": "id BIGINT", "partition_by": "day"}, "PARTITION_BY_INVALID"),
        ({"schema": "id BIGINT, _kafka_offset BIGINT"}, "SCHEMA_MISMATCH"),
        ({"schema": "_kafka_offset BIGINT"}, "SCHEMA_MISMATCH"),
        ({"schema": "id BIGINT", "branch": "audit"}, "BRANCH_MISSING"),
        ({"schema": "s STRUCT<>", "schema_evolution": "add"}, "OPTION_INVALID"),
    ],
)
def test_a_table_that_cannot_be_created_or_written_is_refused_before_the_start(
    spark: Any, home: Path, inbox: Path, options: dict[str, Any], code: str
) -> None:
    with pytest.raises(lakesink.LakesinkError, match=f"LAKESINK_{code}"):
        lakesink.stream(documents(spark, inbox), TABLE, **(OPTIONS | options))
    assert not home.exists()


def test_the_format_names_its_options_as_it_spells_them(spark: Any, inbox: Path) -> None:
    arrive(inbox, '{"id": 1}')
    text = failure(by_format(documents(spark, inbox), TABLE, partition_by="day", **OPTIONS))
    assert "[LAKESINK_OPTION_MISSING] Nothing says which columns the new table demo.orders has" in text
    assert "schema-evolution='add' or 'widen', with those of partition-by in schema" in text


def test_a_start_checks_the_columns_of_a_table_that_exists(spark: Any, inbox: Path) -> None:
    arrive(inbox, '{"id": 1}')
    run(lakesink.stream(documents(spark, inbox), TABLE, schema="id BIGINT", **OPTIONS))
    with pytest.raises(lakesink.WriteError, match="lacks columns of the option schema: total"):
        lakesink.stream(documents(spark, inbox), TABLE, schema="id BIGINT, total DOUBLE", **OPTIONS)
    lakesink.stream(documents(spark, inbox), TABLE, schema="total DOUBLE", schema_evolution="add", **OPTIONS)


TYPES = (
    *("BOOLEAN", "TINYINT", "byte", "SMALLINT", "short", "INT", "integer", "BIGINT", "Long", "FLOAT", "real", "DOUBLE"),
    *("DECIMAL", "dec", "NUMERIC", "DECIMAL(7)", "decimal( 38 , 18 )", "STRING", "CHAR(3)", "CHARACTER(3)"),
    *("VARCHAR(3)", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"),
    *("ARRAY<INT>", "MAP<STRING,ARRAY<BIGINT>>", "STRUCT<a: INT NOT NULL, b DATE, `c d`: STRUCT<e:INT>>"),
)


def test_schemas_are_read_as_spark_reads_them(spark: Any) -> None:  # noqa: ARG001 - the parser is in its JVM
    columns = [f"c{number} {kind}" for number, kind in enumerate(TYPES)]
    texts = [
        *columns, ", ".join(columns), "a:INT", " `a.b` INT NOT NULL , not STRING COMMENT \"it's\"", "`a``b` INT",
        "a INT COMMENT 'it\\'s'", "date DATE, struct INT, comment STRING, null INT", "_a1 INT", "`größe` INT",
    ]  # fmt: skip
    for text in texts:
        found = StructType.fromDDL(text)
        assert isinstance(found, StructType)
        commented = [
            one.with_metadata({"doc": comment} if (comment := part.metadata.get("comment")) else None)
            for one, part in zip(stored_schema(found), found.fields, strict=True)
        ]
        expected = iceberg_schema(pa.schema(commented), keeps_required=True)
        assert str(iceberg_schema(columns_of(text), keeps_required=True)) == str(expected), text


def test_a_text_that_spark_cannot_read_is_not_read(spark: Any) -> None:  # noqa: ARG001 - as above
    for text in (
        "a", "a INT,", "a INT b", "a BIGNIT", "a ARRAY<INT", "a MAP<STRING>", "a DECIMAL(39)", "a-b INT", "größe INT",
        "a INT NOT", "a INT COMMENT b", "`a INT", "a VARCHAR", "a INT COMMENT 'x' NOT NULL", "a STRUCT<b>", "a ARRAY<>",
    ):  # fmt: skip
        with pytest.raises(PySparkException):
            StructType.fromDDL(text)
        with pytest.raises(ValueError, match=r"expected|not a type|cannot be read|back-quotes"):
            columns_of(text)


def test_a_type_that_a_table_cannot_have_is_refused_by_its_name(spark: Any, inbox: Path) -> None:
    for kind in ("VARIANT", "INTERVAL", "TIME(6)", "VOID"):
        with pytest.raises(SettingsError, match=f"{kind.partition('(')[0]} is not a type that a table can have"):
            lakesink.stream(documents(spark, inbox), TABLE, schema=f"v {kind}", **OPTIONS)
