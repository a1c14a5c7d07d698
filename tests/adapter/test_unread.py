"""How far a running query is behind its sources, by the progress that Spark reports."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from lakesink.spark.query import RunningQuery

KAFKA = {"endOffset": {"orders": {"0": 5, "1": 7}}, "latestOffset": {"orders": {"0": 12, "1": 7}}}
FILES = {"endOffset": {"logOffset": 3}, "latestOffset": None}


def unread(*sources: dict[str, Any]) -> int | None:
    progress = SimpleNamespace(json=lambda: json.dumps({"sources": sources})) if sources else None
    query = RunningQuery.__new__(RunningQuery)
    query._execution = SimpleNamespace(lastProgress=lambda: progress)  # noqa: SLF001 - what the JVM has
    return query.unread()


@pytest.mark.parametrize(
    ("sources", "count"),
    [((KAFKA,), 7), ((KAFKA, KAFKA), 14), ((FILES,), None), ((KAFKA, FILES), None), ((), None)],
)
def test_unread_offsets_are_known_if_every_source_tells_its_newest(
    sources: tuple[dict[str, Any], ...], count: int | None
) -> None:
    assert unread(*sources) == count
