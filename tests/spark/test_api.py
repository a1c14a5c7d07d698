from pathlib import Path
from typing import Any

import pytest
from pyiceberg.transforms import TruncateTransform

import lakesink
from lakesink.settings.option_types import Options
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from tests.spark.streams import file_stream, write_files

pytestmark = pytest.mark.usefixtures("home")
DEFAULTS: dict[str, Any] = {"sink_id": "events", "checkpoint": "ck", "create_table": True}


@pytest.fixture
def events(spark: Any, tmp_path: Path) -> Any:
    write_files(tmp_path / "in", 1)
    return file_stream(spark, tmp_path / "in")


def _stream(rows: Any, table: str = "demo.events", **options: Any) -> Any:
    return lakesink.stream(rows, table, **(DEFAULTS | options))


@pytest.mark.parametrize(
    ("table", "options", "code"),
    [
        ("demo.events", {"brunch": "main"}, "OPTION_UNKNOWN"),
        ("demo.events", {"sink_id": "a b"}, "OPTION_INVALID"),
        ("demo.events", {"compression_codec": "rar"}, "OPTION_INVALID"),
        ("demo.events", {"catalog": "no-such"}, "CATALOG_UNKNOWN"),
        ("events", {}, "TABLE_NAME_INVALID"),
        ("demo.events", {"create_table": False}, "CATALOG_MISSING"),
        ("demo.events", {"partition_by": "mont(id)"}, "PARTITION_BY_INVALID"),
        ("demo.events", {"partition_by": "nosuch"}, "PARTITION_BY_INVALID"),
        ("demo.events", {"compression_level": 99}, "OPTION_INVALID"),
        ("demo.events", {"branch": "audit"}, "BRANCH_MISSING"),
        ("demo.events", {"prepared_max_age": 20}, "OPTION_INVALID"),
        ("demo.events", {"checkpoint": "~/cp"}, "OPTION_INVALID"),
        ("demo.events", {"checkpoint": "nosuch://bucket/cp", "create_table": False}, "CHECKPOINT_INVALID"),
        (None, {}, "TABLE_NAME_INVALID"),
    ],
)
def test_a_mistake_is_told_at_the_call_before_anything_starts(
    events: Any, home: Path, tmp_path: Path, table: str, options: dict[str, Any], code: str
) -> None:
    with pytest.raises(lakesink.LakesinkError) as caught:
        _stream(events, table, **options)
    assert caught.value.code == f"LAKESINK_{code}"
    assert len(str(caught.value).splitlines()[0]) < 200
    assert not home.exists()
    assert not (tmp_path / "ck").exists()


@pytest.mark.parametrize(
    ("column", "code"),
    [
        ("parse_json('1') AS v", "TYPE_UNSUPPORTED"),
        ("named_struct('a', array(parse_json('1'))) AS v", "TYPE_UNSUPPORTED"),
        ("array() AS v", "TYPE_UNSUPPORTED"),
        ("struct() AS v", "TYPE_UNSUPPORTED"),
        ("null AS v", "TYPE_UNSUPPORTED"),
        ("interval 1 day AS v", "TYPE_UNSUPPORTED"),
        ("1 AS _file", "SCHEMA_UNSUPPORTED"),
        ("1 AS ID", "SCHEMA_UNSUPPORTED"),
    ],
)
def test_columns_that_no_table_holds_are_told_at_the_call_and_nothing_is_made(
    events: Any, home: Path, column: str, code: str
) -> None:
    rows = events.selectExpr("id", column)
    for call in (
        lambda: _stream(rows),
        lambda: lakesink.append(
            events.sparkSession.range(1).selectExpr("id", column), "demo.events", txn=("a", 1), create_table=True
        ),
    ):
        with pytest.raises(lakesink.LakesinkError) as caught:
            call()
        assert caught.value.code == f"LAKESINK_{code}"
    assert not (home / "warehouse" / "demo").exists()


@pytest.mark.parametrize(
    ("query", "options", "code", "told"),
    [
        ("CAST(id AS STRING) AS id", {}, "SCHEMA_MISMATCH", "'id' is STRING in the query and BIGINT in the table"),
        ("id AS other", {}, "SCHEMA_MISMATCH", "'other' (BIGINT) of the query is not in the table"),
        ("id", {"branch": "audit"}, "BRANCH_MISSING", "There is no branch 'audit'"),
        (
            "id",
            {"compression_level": 99},
            "OPTION_INVALID",
            "compression_level is 99: the codec zstd has levels 1 to 22",
        ),
        (
            "id",
            {"partition_by": "bucket(8, id)"},
            "PARTITION_BY_DIFFERS",
            "by bucket(4, id), but partition_by asks for bucket(8, id)",
        ),
        ("id", {"partition_by": "id"}, "PARTITION_BY_DIFFERS", "by bucket(4, id), but partition_by asks for id"),
    ],
)
def test_what_does_not_fit_a_table_that_is_there_is_told_at_the_call(
    events: Any, tmp_path: Path, query: str, options: dict[str, Any], code: str, told: str
) -> None:
    there: Options = {"create_table": True, "partition_by": "bucket(4, id)"}
    lakesink.append(events.sparkSession.range(1), "demo.events", txn=("a", 1), **there)
    with pytest.raises(lakesink.LakesinkError) as caught:
        _stream(events.selectExpr(query), **options)
    assert caught.value.code == f"LAKESINK_{code}"
    assert told in caught.value.what
    assert caught.value.data.startswith("Nothing was")
    assert "batch" not in caught.value.data
    assert not (tmp_path / "ck").exists()
    if code == "PARTITION_BY_DIFFERS":
        with pytest.raises(lakesink.SettingsError, match="PARTITION_BY_DIFFERS"):
            lakesink.append(events.sparkSession.range(1), "demo.events", txn=("a", 2), create_table=True, **options)


def test_a_table_that_was_divided_anew_may_still_be_asked_for_as_it_was_made(events: Any) -> None:
    there: Options = {"create_table": True, "partition_by": "bucket(4, id)"}
    lakesink.append(events.sparkSession.range(1), "demo.events", txn=("a", 1), **there)
    with load_table(connect(), "demo.events").update_spec() as change:
        change.add_field("id", TruncateTransform(10), "id_trunc")
    _stream(events.select("id"), partition_by="bucket(4, id)")
    _stream(events.select("id"), partition_by="truncate(10, id), bucket(4, id)")


def test_at_a_first_start_the_likely_cause_comes_first(events: Any, home: Path) -> None:
    for call in (
        lambda: _stream(events, create_table=False),
        lambda: lakesink.append(events.sparkSession.range(1), "demo.events", txn=("a", 1)),
    ):
        with pytest.raises(
            lakesink.CatalogError, match=r"LAKESINK_CATALOG_MISSING\] There is no table demo\.events yet\."
        ) as caught:
            call()
        assert caught.value.choices[0].startswith("At a first start, set create_table=True")
        assert not home.exists()


def test_a_missing_table_is_told_at_the_call(events: Any, home: Path) -> None:
    lakesink.append(events.sparkSession.range(1), "demo.other", txn=("a", 1), create_table=True)
    assert home.exists()
    with pytest.raises(lakesink.CatalogError, match=r"demo\.events") as caught:
        _stream(events, create_table=False)
    assert caught.value.code == "LAKESINK_TABLE_MISSING"


def test_a_batch_dataframe_is_refused_by_stream_and_a_streaming_one_by_append(spark: Any, events: Any) -> None:
    for call in (lambda: _stream(spark.range(1)), lambda: lakesink.append(events, "demo.t", txn=("a", 1))):
        with pytest.raises(lakesink.QueryError) as caught:
            call()
        assert caught.value.code == "LAKESINK_WRONG_DATAFRAME"


@pytest.mark.parametrize("txn", [None, "nightly", ("nightly",), ("nightly", -1), ("nightly", True), ("a b", 1), (1, 2)])
def test_a_malformed_transaction_is_told_by_name(spark: Any, txn: Any) -> None:
    with pytest.raises(lakesink.SettingsError) as caught:
        lakesink.append(spark.range(1), "demo.t", txn=txn)
    assert caught.value.code == "LAKESINK_OPTION_INVALID"
    assert "txn" in str(caught.value)


def test_a_writer_shows_no_secret(events: Any) -> None:
    properties = {"type": "in-memory", "s3.secret-access-key": "hunter22secret"}
    writer = _stream(events, catalog="mem", catalog_properties=properties)
    assert "hunter22secret" not in repr(writer) + repr(vars(writer))
