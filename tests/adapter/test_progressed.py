"""How far a running query has read, by the progress that Spark reports."""

from typing import Any

import pytest

from lakesink.read.position import Position
from lakesink.spark.report import progressed
from lakesink_protocol.events import BatchesRead, QueryProgressed

KAFKA = {"endOffset": {"orders": {"0": 5, "1": 7}}, "latestOffset": {"orders": {"0": 12, "1": 7}}}
FILES = {"endOffset": {"logOffset": 3}, "latestOffset": None}
BEGINNING = Position("shop.orders", "uuid", "main", "orders")
BEHIND = Position("shop.orders", "uuid", "main", "orders", "query", 7)


@pytest.mark.parametrize(
    ("sources", "count"),
    [((KAFKA,), 7), ((KAFKA, KAFKA), 14), ((FILES,), None), ((KAFKA, FILES), None), ((), None)],
)
def test_unread_offsets_are_known_if_every_source_tells_its_newest(
    sources: tuple[dict[str, Any], ...], count: int | None
) -> None:
    assert list(progressed(sources)) == ([] if count is None else [QueryProgressed(count)])


@pytest.mark.parametrize(
    ("position", "told"),
    [(BEHIND, [BatchesRead(7, "shop.orders", "orders", "main")]), (BEHIND.before(), []), (BEGINNING, [])],
)
def test_a_query_over_another_sink_tells_which_batch_it_is_behind(position: Position, told: list[BatchesRead]) -> None:
    assert list(progressed([{"endOffset": position.to_offset(), "latestOffset": None}])) == told
