"""`partition_by` beside a table that is there: what contradicts it stops a stream, what others changed does not."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import RemovePartitionSpecsUpdate
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType, TimestamptzType

from lakesink.sinks.iceberg.table_layout import check_partitions
from lakesink_protocol.errors import SettingsError
from testkit.builders import Lake

FIELDS = (
    NestedField(1, "id", LongType()),
    NestedField(2, "region", StringType()),
    NestedField(3, "ts", TimestamptzType()),
    NestedField(4, "ts_day", IntegerType()),
    NestedField(5, "place", StructType(NestedField(6, "Town", StringType()))),
)
USUAL: tuple[tuple[int, Transform[Any, Any]], ...] = ((2, IdentityTransform()), (3, DayTransform()))
ASKED = "region, day(ts)"


def _made(folder: Path, *parts: tuple[int, Transform[Any, Any]]) -> Table:
    fields = [PartitionField(source, 1000 + at, transform, f"p{at}") for at, (source, transform) in enumerate(parts)]
    return Lake.make(folder, schema=Schema(*FIELDS), spec=PartitionSpec(*fields)).table()


def _is_divided_anew(table: Table) -> None:
    with table.update_spec() as change:
        change.add_field("id", BucketTransform(4), "added")


def _loses_its_column(table: Table) -> None:
    with table.update_spec() as change:
        change.remove_field("p0")
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("region")


def _has_its_column_renamed(table: Table) -> None:
    with table.update_schema() as change:
        change.rename_column("region", "area")


def _is_divided_anew_and_cleaned(table: Table) -> None:
    _is_divided_anew(table)
    table.catalog.commit_table(table, (), (RemovePartitionSpecsUpdate(spec_ids=[0]),))


@pytest.mark.parametrize("change", [_is_divided_anew, _loses_its_column, _has_its_column_renamed])
def test_the_option_that_made_a_table_stays_right_whatever_others_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: Callable[[Table], None]
) -> None:
    table = _made(tmp_path, *USUAL)
    change(table)
    check_partitions(table.refresh(), ASKED)
    assert not caplog.records


@pytest.mark.parametrize(
    ("parts", "asked"),
    [
        (((3, YearTransform()), (3, DayTransform())), "year(ts), day(ts)"),
        (((1, BucketTransform(4)), (1, BucketTransform(8))), "bucket(4,id), bucket(8,id)"),
        (((3, DayTransform()),), "day(ts)"),
        (((6, IdentityTransform()),), "place.town"),
        (((2, VoidTransform()), (3, DayTransform())), "day(ts)"),
        ((), "void(id)"),
    ],
)
def test_rules_for_making_partitions_do_not_hold_for_those_that_are_there(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    parts: tuple[tuple[int, Transform[Any, Any]], ...],
    asked: str,
) -> None:
    check_partitions(_made(tmp_path, *parts), asked)
    assert not caplog.records


@pytest.mark.parametrize(
    ("change", "asked"),
    [
        (_is_divided_anew_and_cleaned, ASKED),
        (_is_divided_anew, "month(ts)"),
        (lambda _table: None, "gone"),
        (lambda _table: None, "place.gone, day(ts)"),
    ],
)
def test_what_the_table_may_have_forgotten_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: Callable[[Table], None], asked: str
) -> None:
    table = _made(tmp_path, *USUAL)
    change(table)
    with caplog.at_level(logging.WARNING, "lakesink"):
        check_partitions(table.refresh(), asked)
    (told,) = caplog.messages
    assert told.startswith("lakesink.partition_by.unused table=demo.events: its partitions are region, day(ts)")
    assert f"partition_by is {asked}. The table's own partitions are used; leave partition_by out" in told


@pytest.mark.parametrize("asked", ["month(ts)", "region", "region, day(ts), bucket(4, id)", "day(ts), id", "void(id)"])
def test_other_partitions_than_a_table_has_had_since_it_was_made_are_refused(tmp_path: Path, asked: str) -> None:
    with pytest.raises(SettingsError, match="PARTITION_BY_DIFFERS") as caught:
        check_partitions(_made(tmp_path, *USUAL), asked)
    assert "is partitioned by region, day(ts), but partition_by asks for" in caught.value.what
    assert caught.value.choices[0] == "Leave out partition_by: the table's own partitioning is used."


def test_a_removed_spec_that_only_the_field_ids_remember_is_a_warning(tmp_path: Path) -> None:
    table = _made(tmp_path, *USUAL)
    with table.update_spec() as change:
        change.add_field("ts", MonthTransform(), "added")
    with table.update_spec() as change:
        change.remove_field("added")
    table = table.refresh()
    assert table.spec().spec_id == 0
    table.catalog.commit_table(table, (), (RemovePartitionSpecsUpdate(spec_ids=[1]),))
    check_partitions(table.refresh(), f"{ASKED}, month(ts)")


def test_text_that_cannot_be_read_is_refused_beside_a_table_too(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="PARTITION_BY_INVALID"):
        check_partitions(_made(tmp_path, *USUAL), "day(ts")
