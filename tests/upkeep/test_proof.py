"""The digest of rows sees each change of them, and does not depend on how they are cut into pieces."""

import math
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesink.rows.schema import arrow_schema, parse_schema
from lakesink.sinks.iceberg.upkeep.policy import Verify
from lakesink.sinks.iceberg.upkeep.proof import Figures
from testkit.examples import examples
from tests.writer.random_tables import Case, cases

KIND = pa.struct([("x", pa.int32()), ("y", pa.string())])
COLUMNS = pa.schema(
    [
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("t", pa.string()),
        ("s", KIND),
        ("l", pa.list_(KIND)),
        ("m", pa.map_(pa.string(), pa.int32())),
    ]
)
ROWS: list[dict[str, Any]] = [
    {"i": 1, "f": 0.0, "t": "ab", "s": {"x": 1, "y": "c"}, "l": [{"x": 1, "y": ""}, None], "m": [("k", 1)]},
    {"i": 2, "f": math.nan, "t": "", "s": {"x": None, "y": ""}, "l": [], "m": []},
    {"i": None, "f": None, "t": None, "s": None, "l": None, "m": None},
]


def figures(table: pa.Table, pieces: int, verify: Verify) -> Figures:
    found = Figures(verify)
    step = max(1, table.num_rows // pieces)
    for start in range(0, table.num_rows, step):
        found.add(table.slice(start, step))
    return found


def difference(one: pa.Table, other: pa.Table, pieces: int = 1) -> str:
    """What both ways say differs; they agree on whether anything does."""
    digest, exact = (figures(one, 1, verify).difference(figures(other, pieces, verify)) for verify in Verify)
    assert bool(digest) == bool(exact)
    return digest


def of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=COLUMNS)


@pytest.mark.parametrize(
    ("row", "column", "value"),
    [
        (0, "i", 3),
        (0, "i", None),
        (2, "i", 0),
        (0, "f", -0.0),
        (1, "f", 0.0),
        (2, "f", math.nan),
        (0, "t", "ba"),
        (1, "t", None),
        (2, "t", ""),
        (0, "s", {"x": 1, "y": None}),
        (2, "s", {"x": None, "y": None}),
        (1, "l", None),
        (2, "l", []),
        (0, "l", [None, {"x": 1, "y": ""}]),
        (0, "l", [{"x": 1, "y": None}, None]),
        (0, "m", [("k", None)]),
        (0, "m", [("l", 1)]),
        (1, "m", None),
    ],
)
def test_each_change_of_a_value_is_seen(row: int, column: str, value: Any) -> None:
    changed = [{**one, column: value} if number == row else one for number, one in enumerate(ROWS)]
    assert difference(of(ROWS), of(changed))


def test_rows_in_another_order_lost_or_doubled_are_seen_and_so_are_values_that_change_places() -> None:
    others = [ROWS[::-1], ROWS[:2], [*ROWS, ROWS[0]], [ROWS[0], ROWS[0], ROWS[2]]]
    moved = [{**ROWS[0], "t": ROWS[1]["t"]}, {**ROWS[1], "t": ROWS[0]["t"]}, ROWS[2]]
    for other in (*others, moved):
        assert difference(of(ROWS), of(other))


def test_texts_that_are_cut_elsewhere_are_seen() -> None:
    one, other = ({"t": part, "i": None, "f": None, "s": None, "l": None, "m": None} for part in ("ab", "c"))
    cut = [{**one, "t": "a"}, {**other, "t": "bc"}]
    assert difference(of([one, other]), of(cut))


@examples(20)
@given(case=cases(partitioned=False), pieces=st.integers(1, 5))
def test_the_figures_of_rows_of_all_types_do_not_depend_on_pieces(case: Case, pieces: int) -> None:
    schema = arrow_schema(parse_schema(case.schema.model_dump_json()))
    try:
        table = case.arrow.cast(pa.schema([field.remove_metadata().with_nullable(nullable=True) for field in schema]))
    except pa.ArrowException:
        table = case.arrow
    parts = pa.concat_tables([table.slice(0, 3), table.slice(3)])
    assert difference(table, parts, pieces) == ""
    chance = random.Random(pieces)
    order = chance.sample(range(table.num_rows), table.num_rows)
    assert bool(difference(table, table.take(order))) == (order != sorted(order))
