"""What Iceberg's own Spark sink leaves in summaries: query and epoch, or nothing."""

from typing import Any

import pytest

from lakesink_protocol.iceberg_spark_sink import EPOCH_ID, QUERY_ID, epoch_of


@pytest.mark.parametrize(
    ("summary", "found"),
    [
        ({QUERY_ID: "q", EPOCH_ID: "0"}, ("q", 0)),
        ({QUERY_ID: "", EPOCH_ID: "3"}, None),
        ({QUERY_ID: 7, EPOCH_ID: "3"}, None),
        ({QUERY_ID: "q", EPOCH_ID: "-1"}, None),
        ({QUERY_ID: "q"}, None),
        ({EPOCH_ID: "3"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_snapshot_of_the_sink_names_a_query_and_an_epoch(
    summary: dict[str, Any] | None, found: tuple[str, int] | None
) -> None:
    assert epoch_of(summary) == found
