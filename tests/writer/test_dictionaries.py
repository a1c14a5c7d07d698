import math
import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from lakesink.parquet.files import dictionary_columns, expected_distinct
from lakesink.parquet.statistics import columns
from lakesink.rows.schema import leaves, parse_schema
from testkit.tasks import column, footer, plan_for, write

SCHEMA = Schema(
    NestedField(1, "unique", LongType()),
    NestedField(2, "few", StringType()),
    NestedField(3, "null", StringType()),
    NestedField(4, "inner", StructType(NestedField(5, "x", LongType()))),
    NestedField(6, "list", ListType(7, LongType())),
    NestedField(8, "map", MapType(9, StringType(), 10, StructType(NestedField(11, "y", LongType())))),
)
NESTED = ("inner.x", "list.list.element", "map.key_value.key", "map.key_value.value.y")
ROWS = 50_000


def rows() -> pa.Table:
    numbers = list(range(ROWS))
    return pa.table(
        {
            "unique": numbers,
            "few": [f"kind {number % 40}" for number in numbers],
            "null": pa.nulls(ROWS, pa.string()),
            "inner": [{"x": number % 3} for number in numbers],
            "list": [[number % 3] for number in numbers],
            "map": pa.array([[("k", {"y": 1})]] * ROWS, pa.map_(pa.string(), pa.struct([("y", pa.int64())]))),
        }
    )


def judged(limit_bytes: int) -> tuple[str, ...]:
    found = columns(leaves(parse_schema(SCHEMA.model_dump_json())), {})
    return dictionary_columns(rows(), found, limit_bytes)


def test_columns_of_few_values_get_a_dictionary_and_unique_ones_none() -> None:
    assert judged(1024 * 1024) == ("few", "null", *NESTED)


def test_a_dictionary_that_would_outgrow_its_page_is_not_begun() -> None:
    assert judged(100) == ("null", *NESTED)


@pytest.mark.parametrize(("distinct", "chosen"), [(40, ("c",)), (50, ())])
def test_a_column_whose_values_hardly_repeat_gets_no_dictionary(distinct: int, chosen: tuple[str, ...]) -> None:
    """A sample of 100 rows with 40 distinct values tells of 45, and one with 50 of 63."""
    found = columns(leaves(parse_schema(column(LongType()).model_dump_json())), {})
    assert dictionary_columns(pa.table({"c": [n % distinct for n in range(100)]}), found, 1024) == chosen


def test_files_have_the_dictionaries_that_were_judged_to_be_worth_it(tmp_path: Path) -> None:
    [file] = write(plan_for(SCHEMA, tmp_path), rows().to_batches()).files
    group = footer(file).row_group(0)
    chunks = [group.column(index) for index in range(group.num_columns)]
    assert [chunk.path_in_schema for chunk in chunks if not chunk.has_dictionary_page] == ["unique"]
    assert {chunk.path_in_schema for chunk in chunks} == {"unique", "few", "null", *NESTED}


@pytest.mark.parametrize("distinct", [10, 1_000, 20_000])
def test_the_number_of_distinct_values_is_told_from_a_sample(distinct: int) -> None:
    chance = random.Random(distinct)
    seen = len({chance.randrange(distinct) for _ in range(4_096)})
    assert expected_distinct(seen, 4_096) == pytest.approx(distinct, rel=0.15)


def test_a_sample_without_a_repetition_tells_of_no_bound() -> None:
    assert expected_distinct(100, 100) == math.inf
    assert expected_distinct(1, 1) == math.inf
