"""Which batches the driver writes itself."""

from typing import Any

import pytest

from lakesink.spark.rows.on_driver import HEADROOM, MOST_BYTES, MOST_ROWS, driver_may_write, most_rows

KAFKA = ("kafka",)


@pytest.mark.parametrize(
    ("sources", "start", "end", "expected"),
    [
        (KAFKA, ({"t": {"0": 5, "1": 7}},), ({"t": {"0": 6, "1": 17}},), 11),
        (KAFKA, ({"t": {"0": 5}},), ({"t": {"0": 5}},), 0),
        (KAFKA, ({"t": {"0": 5}},), ({"t": {"0": 6, "1": 4}, "u": {"0": 3}},), 8),
        (KAFKA, ({"t": {"0": 500}},), ({"t": {"0": 20}},), 20),
        (("rate-micro-batch",), ({"offset": 10, "timestamp": 1},), ({"offset": 30, "timestamp": 2},), 20),
        (("kafka", "kafka"), ({"t": {"0": 1}}, {"u": {"0": 1}}), ({"t": {"0": 2}}, {"u": {"0": 4}}), 4),
        (KAFKA, None, ({"t": {"0": 5}},), None),
        (KAFKA, (None,), ({"t": {"0": 5}},), None),
        (KAFKA, ({"t": {"0": 5}},), (None,), None),
        (KAFKA, ({"t": 5},), ({"t": 6},), None),
        (KAFKA, ({"t": {"0": "5"}},), ({"t": {"0": "6"}},), None),
        (("FileSource",), ({"logOffset": 1},), ({"logOffset": 2},), None),
        (("kafka", "socket"), ({"t": {"0": 1}}, 1), ({"t": {"0": 2}}, 2), None),
        (KAFKA, ({"t": {"0": 1}}, {"t": {"0": 1}}), ({"t": {"0": 2}}, {"t": {"0": 2}}), None),
    ],
)
def test_rows_are_known_only_from_offsets_that_count_them(
    sources: tuple[str, ...], start: Any, end: Any, expected: int | None
) -> None:
    before = None if start is None else _by_source(start)
    assert most_rows(sources, before, _by_source(end)) == expected


def _by_source(offsets: tuple[Any, ...]) -> dict[str, Any]:
    return {str(position): offset for position, offset in enumerate(offsets)}


@pytest.mark.parametrize(
    ("rows", "widest", "expected"),
    [
        (100, 300, True),
        (0, 300, True),
        (None, 300, False),
        (100, 0, False),
        (MOST_ROWS + 1, 1, False),
        (1000, MOST_BYTES // 1000 // HEADROOM + 1, False),
    ],
)
def test_the_driver_writes_only_what_is_known_to_be_small(rows: int | None, widest: int, expected: bool) -> None:  # noqa: FBT001
    assert driver_may_write(rows, widest) is expected
