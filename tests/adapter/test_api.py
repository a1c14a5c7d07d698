"""Calls of the API that are refused without a session."""

from typing import Any

import pytest

import lakesink


def stream(rows: Any) -> Any:
    return lakesink.stream(rows, "demo.events", sink_id="events", checkpoint="ck")


@pytest.mark.parametrize("call", [stream, lambda df: lakesink.append(df, "demo.t", txn=("a", 1))])
def test_a_spark_connect_dataframe_is_refused_by_name(call: Any) -> None:
    connect = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})
    with pytest.raises(lakesink.QueryError) as caught:
        call(connect())
    assert caught.value.code == "LAKESINK_SPARK_CONNECT"


def test_what_is_no_dataframe_at_all_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="list"):
        stream([1, 2])
