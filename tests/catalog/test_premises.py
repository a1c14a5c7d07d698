"""Whether files of one schema show the same values under another one."""

from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from lakesink_catalog.commit.premises import is_compatible, is_promotion


def leaf(field_id: int, kind: IcebergType, name: str = "x", *, required: bool = False) -> NestedField:
    return NestedField(field_id, name, kind, required=required)


def alone(field: NestedField) -> Schema:
    return Schema(NestedField(1, "id", LongType()), field)


def in_struct(field: NestedField) -> Schema:
    return Schema(NestedField(1, "id", LongType()), NestedField(2, "s", StructType(field)))


def in_list(field: NestedField) -> Schema:
    return Schema(NestedField(1, "id", LongType()), NestedField(2, "l", ListType(3, StructType(field))))


def in_map(field: NestedField) -> Schema:
    return Schema(NestedField(1, "m", MapType(2, StringType(), 3, StructType(field))))


PLACES = [alone, in_struct, in_list, in_map]
at_any_depth = pytest.mark.parametrize("place", PLACES)


@at_any_depth
def test_a_field_that_is_added_again_under_its_name_does_not_fit(place: Any) -> None:
    written = place(leaf(10, LongType()))
    assert is_compatible(written, written)
    assert not is_compatible(written, place(leaf(11, LongType())))
    assert not is_compatible(written, place(leaf(11, LongType(), "X")))
    assert is_compatible(written, place(leaf(11, LongType(), "y")))
    assert is_compatible(written, place(leaf(10, LongType(), "y")))


@at_any_depth
def test_a_field_that_must_be_there_now_must_have_been_so(place: Any) -> None:
    optional, required = (place(leaf(10, LongType(), required=required)) for required in (False, True))
    assert is_compatible(required, optional)
    assert not is_compatible(optional, required)
    assert not is_compatible(place(leaf(9, LongType(), "y")), required)


TYPES = [
    IntegerType(), LongType(), FloatType(), DoubleType(), DateType(), TimestampType(), StringType(), BinaryType(),
    DecimalType(9, 2), DecimalType(18, 2), DecimalType(18, 4), StructType(leaf(20, LongType())),
    ListType(21, LongType()), MapType(22, StringType(), 23, LongType()),
]  # fmt: skip
WIDENED = {("int", "long"), ("float", "double"), ("decimal(9, 2)", "decimal(18, 2)")}


@at_any_depth
@pytest.mark.parametrize("before", TYPES, ids=str)
@pytest.mark.parametrize("now", TYPES, ids=str)
def test_a_written_type_fits_the_same_or_a_wider_one_and_no_other(
    place: Any, before: IcebergType, now: IcebergType
) -> None:
    fits = before == now or (str(before), str(now)) in WIDENED
    assert is_compatible(place(leaf(10, before)), place(leaf(10, now))) == fits


def test_a_name_with_a_dot_is_not_a_path() -> None:
    before = in_struct(leaf(10, LongType()))
    after = Schema(*in_struct(leaf(10, LongType(), "y")).fields, NestedField(11, "s.x", LongType()))
    assert is_compatible(before, after)


def test_columns_that_differ_in_their_case_alone_are_no_reason_to_write_for_ever() -> None:
    both = Schema(NestedField(1, "name", LongType()), NestedField(2, "NAME", LongType()))
    assert is_compatible(both, both)


def test_names_that_were_swapped_do_not_fit() -> None:
    before = Schema(NestedField(1, "a", LongType()), NestedField(2, "b", LongType()))
    assert not is_compatible(before, Schema(NestedField(1, "b", LongType()), NestedField(2, "a", LongType())))


@pytest.mark.parametrize(
    ("narrow", "wide", "can"),
    [
        (IntegerType(), LongType(), True),
        (FloatType(), DoubleType(), True),
        (DecimalType(9, 2), DecimalType(10, 2), True),
        (IntegerType(), IntegerType(), False),
        (LongType(), IntegerType(), False),
        (IntegerType(), DoubleType(), False),
        (FloatType(), LongType(), False),
        (DecimalType(9, 2), DecimalType(9, 2), False),
        (DecimalType(10, 2), DecimalType(9, 2), False),
        (DecimalType(9, 2), DecimalType(10, 3), False),
        (IntegerType(), DecimalType(9, 0), False),
    ],
)
def test_iceberg_promotes_whole_numbers_floats_and_decimals_of_one_scale(
    narrow: IcebergType, wide: IcebergType, *, can: bool
) -> None:
    assert is_promotion(narrow, wide) is can
