from pathlib import Path
from typing import Any

import pytest

import lakesink
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
    ],
)
def test_a_mistake_is_told_at_the_call_before_anything_starts(
    events: Any, home: Path, tmp_path: Path, table: str, options: dict[str, Any], code: str
) -> None:
    with pytest.raises(lakesink.LakesinkError) as caught:
        _stream(events, table, **options)
    assert caught.value.code == f"LAKESINK_{code}"
    assert not home.exists()
    assert not (tmp_path / "ck").exists()


def test_a_missing_table_is_told_at_the_call(events: Any, home: Path) -> None:
    lakesink.append(events.sparkSession.range(1), "demo.other", txn=("a", 1), create_table=True)
    assert home.exists()
    with pytest.raises(lakesink.CatalogError, match=r"demo\.events") as caught:
        _stream(events, create_table=False)
    assert caught.value.code == "LAKESINK_TABLE_MISSING"


@pytest.mark.parametrize("call", [_stream, lambda df: lakesink.append(df, "demo.t", txn=("a", 1))])
def test_a_spark_connect_dataframe_is_refused_by_name(call: Any) -> None:
    connect = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})
    with pytest.raises(lakesink.QueryError) as caught:
        call(connect())
    assert caught.value.code == "LAKESINK_SPARK_CONNECT"


def test_a_batch_dataframe_is_refused_by_stream_and_a_streaming_one_by_append(spark: Any, events: Any) -> None:
    for call in (lambda: _stream(spark.range(1)), lambda: lakesink.append(events, "demo.t", txn=("a", 1))):
        with pytest.raises(lakesink.QueryError) as caught:
            call()
        assert caught.value.code == "LAKESINK_WRONG_DATAFRAME"


def test_what_is_no_dataframe_at_all_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="list"):
        _stream([1, 2])


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
