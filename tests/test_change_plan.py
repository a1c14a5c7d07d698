"""The key of a table and the columns that order changes: found, given to a created table, or refused with advice."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from lakesink.rows.changed_rows import DELETE_MARK
from lakesink.rows.plan import DELETED, ChangesPlan
from lakesink.settings.option_types import Deletes
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.batch_plan import stored_columns, task_plan
from lakesink.sinks.iceberg.change_plan import changes_plan, check_left_out, check_no_equality_deletes
from lakesink.sinks.iceberg.preflight import create_for_rows
from lakesink_protocol.errors import CatalogError, SettingsError
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.row_changes import Mode
from testkit.builders import Lake
from testkit.maintenance import change as update
from testkit.maintenance import roll_back

COLUMNS: Mapping[str, IcebergType] = {
    "order_id": LongType(),
    "Region": StringType(),
    "at": TimestamptzType(),
    "price": DoubleType(),
    "paid": BooleanType(),
    "raw": BinaryType(),
    "place": StructType(NestedField(20, "town", StringType(), required=True)),
}


def table(folder: Path, *keys: str, required: bool = True, deleted: IcebergType | None = None) -> Table:
    """A table with these identifier fields; with `required`, the first two columns are required."""
    folder.mkdir(exist_ok=True)
    soft = {} if deleted is None else {DELETED: deleted}
    fields = [
        NestedField(at, name, kind, required=required and at <= 2)
        for at, (name, kind) in enumerate(({**COLUMNS, **soft}).items(), start=1)
    ]
    ids = [field.field_id for field in fields if field.name in keys]
    return Lake.make(folder, schema=Schema(*fields, identifier_field_ids=ids)).table()


def upsert(**options: Any) -> Settings:
    return Settings.parse({"sink_id": "s", "checkpoint": "/ck", "mode": "upsert", **options})


def plan(found: Table, settings: Settings, *, case_sensitive: bool = False) -> ChangesPlan:
    return changes_plan(found.schema(), ".".join(found.name()), settings, case_sensitive=case_sensitive)


def test_rows_that_are_appended_have_no_plan_of_changes(tmp_path: Path) -> None:
    batch, key = Batch(0, "", "", None, ""), SinkKey("s")
    assert task_plan(table(tmp_path), batch, key, Settings()).changes is None


@pytest.mark.parametrize("keys", [None, ["order_id", "Region"], "region,ORDER_ID"])
def test_the_key_is_the_identifier_fields_in_any_order(tmp_path: Path, keys: Any) -> None:
    found = plan(table(tmp_path, "order_id", "Region"), upsert(keys=keys, sequence_by="at"))
    assert found == ChangesPlan(Mode.UPSERT, (1, 2), (3,))


def test_a_column_of_the_key_orders_no_changes(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"OPTION_INVALID.*'order_id', which is the same in all changes of a key"):
        plan(table(tmp_path, "order_id"), upsert(sequence_by=["at", "order_id"]))


def test_a_case_sensitive_session_distinguishes_the_columns_of_the_key(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"OPTION_INVALID.*keys names the column 'region'.*Did you mean 'Region'"):
        plan(table(tmp_path, "Region"), upsert(keys="region"), case_sensitive=True)


@pytest.mark.parametrize(
    ("required", "statement"),
    [
        (True, "ALTER TABLE demo.events SET IDENTIFIER FIELDS order_id, Region"),
        (False, "change.update_column('order_id', required=True); change.update_column('Region', required=True)"),
    ],
)
def test_a_table_without_identifier_fields_is_refused_with_the_statement_to_set_them(
    tmp_path: Path,
    *,
    required: bool,
    statement: str,
) -> None:
    found = table(tmp_path, required=required)
    with pytest.raises(SettingsError, match="LAKESINK_KEYS_UNKNOWN") as refused:
        plan(found, upsert(keys=["order_id", "Region"]))
    assert statement in refused.value.action
    with found.update_schema(allow_incompatible_changes=True) as change:
        for name in () if required else ("order_id", "Region"):
            change.update_column(name, required=True)
        change.set_identifier_fields("order_id", "Region")
    assert plan(found, upsert(keys=["order_id", "Region"])) == ChangesPlan(Mode.UPSERT, (1, 2))


def test_without_keys_and_identifier_fields_the_statement_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"KEYS_UNKNOWN") as refused:
        plan(table(tmp_path), upsert())
    assert "SET IDENTIFIER FIELDS <columns>" in refused.value.action


def test_other_keys_than_the_identifier_fields_are_refused_with_both(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"KEYS_DIFFER.*keys is order_id, and .* are order_id, Region") as refused:
        plan(table(tmp_path, "order_id", "Region"), upsert(keys="order_id"))
    assert "keys=['order_id', 'Region']" in refused.value.action


@pytest.mark.parametrize(
    ("column", "why"), [("price", "of type DOUBLE"), ("place", "of type STRUCT"), ("place.town", "names the column")]
)
def test_a_column_that_cannot_be_a_key_is_refused_by_name(tmp_path: Path, column: str, why: str) -> None:
    with pytest.raises(SettingsError, match=f"{column}.*{why}|{why}.*{column}"):
        plan(table(tmp_path), upsert(keys=column))


@pytest.mark.parametrize(
    ("column", "cast"),
    [
        ("price", "CAST(price AS DECIMAL(38, 9)) AS price_sequence"),
        ("paid", "CAST(paid AS INT) AS paid_sequence"),
        ("raw", "hex(raw) AS raw_sequence"),
        ("place", "DECIMAL, DATE"),
    ],
)
def test_a_column_without_exact_order_is_refused_with_the_cast_to_write(tmp_path: Path, column: str, cast: str) -> None:
    with pytest.raises(SettingsError, match=f"SEQUENCE_UNSUPPORTED.*{column}") as refused:
        plan(table(tmp_path, "order_id"), upsert(sequence_by=column))
    assert cast in refused.value.action


def test_soft_deletes_need_their_column(tmp_path: Path) -> None:
    soft = upsert(mode="changes", apply_as_deletes="paid", deletes="soft")
    with pytest.raises(SettingsError, match=f"ADD COLUMN {DELETED} BOOLEAN"):
        plan(table(tmp_path / "without", "order_id"), soft)
    with pytest.raises(SettingsError, match=f"BOOLEAN column {DELETED}"):
        plan(table(tmp_path / "text", "order_id", deleted=StringType()), soft)
    found = plan(table(tmp_path / "with", "order_id", deleted=BooleanType()), soft)
    assert found == ChangesPlan(Mode.CHANGES, (1,), soft_deletes=True)


ROWS = pa.schema([("order_id", pa.int64()), ("op", pa.string()), ("at", pa.timestamp("us", "UTC"))])


def test_marks_and_columns_that_are_left_out_are_not_stored() -> None:
    settings = upsert(mode="changes", keys="order_id", apply_as_deletes="op = 'd'", except_column_list="OP")
    rows = ROWS.append(pa.field(DELETE_MARK, pa.bool_()))
    assert stored_columns(rows, settings, case_sensitive=False).names == ["order_id", "at"]
    assert stored_columns(rows, settings, case_sensitive=True).names == ["order_id", "op", "at"]
    assert stored_columns(rows, Settings(), case_sensitive=False) is rows


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"keys": "order"}, "keys names the column 'order', which the rows lack. Did you mean 'order_id'?"),
        ({"sequence_by": "lsn"}, "sequence_by names the column 'lsn', which the rows lack"),
    ],
)
def test_an_option_that_names_no_column_of_the_rows_is_refused(options: dict[str, Any], said: str) -> None:
    settings = upsert(**options)
    with pytest.raises(SettingsError) as refused:
        stored_columns(ROWS, settings, case_sensitive=False)
    assert said in refused.value.what


def test_of_many_columns_those_that_are_named_are_named_whole() -> None:
    rows = pa.schema([(f"column_of_an_order_{number:02}", pa.int64()) for number in range(20)])
    with pytest.raises(SettingsError, match=r"Known: column_of_an_order_00, .*column_of_an_order_\d\d, \.\.\.\n"):
        stored_columns(rows, upsert(keys="zip"), case_sensitive=False)


def test_a_column_that_is_left_out_must_be_there() -> None:
    check_left_out(ROWS.names, upsert(except_column_list="OP"), case_sensitive=False)
    with pytest.raises(SettingsError, match="except_column_list names the column 'OP', which the rows lack"):
        check_left_out(ROWS.names, upsert(except_column_list="OP"), case_sensitive=True)


def test_rows_cannot_have_the_column_that_soft_deletes_fill() -> None:
    settings = upsert(mode="changes", apply_as_deletes="true", deletes="soft")
    with pytest.raises(SettingsError, match=f"{DELETED}, which deletes='soft' fills"):
        stored_columns(ROWS.append(pa.field(DELETED, pa.bool_())), settings, case_sensitive=False)


@pytest.mark.parametrize("deletes", Deletes)
def test_a_created_table_has_the_keys_as_required_identifier_fields(tmp_path: Path, deletes: Deletes) -> None:
    lake = Lake.make(tmp_path)
    options = {"mode": "changes", "keys": "AT, order_id", "apply_as_deletes": "op = 'd'", "create_table": True}
    settings = upsert(**options, deletes=str(deletes))
    made = create_for_rows(lake.catalog, "demo.made", SinkKey("s"), settings, ROWS)
    soft = [(DELETED, False)] if deletes is Deletes.SOFT else []
    assert [(field.name, field.required) for field in made.schema().fields] == [
        ("order_id", True),
        ("op", False),
        ("at", True),
        *soft,
    ]
    assert plan(made, settings) == ChangesPlan(Mode.CHANGES, (1, 3), soft_deletes=deletes is Deletes.SOFT)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "keys is needed to create demo.made"),
        ({"keys": "x"}, "names the column 'x', which demo.made lacks"),
        ({"keys": "price"}, "KEY_UNSUPPORTED"),
        ({"keys": "order_id", "sequence_by": "price"}, "SEQUENCE_UNSUPPORTED"),
        ({"keys": "order_id", "sequence_by": ["at", "Order_ID"]}, "'order_id', which is the same in all changes of a"),
    ],
)
def test_no_table_is_created_without_a_usable_key(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    lake = Lake.make(tmp_path)
    rows = ROWS.append(pa.field("price", pa.float64()))
    with pytest.raises(SettingsError, match=said):
        create_for_rows(lake.catalog, "demo.made", SinkKey("s"), upsert(**options, create_table=True), rows)
    assert not lake.catalog.table_exists("demo.made")


def test_a_table_that_is_created_for_appends_has_no_key(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    made = create_for_rows(lake.catalog, "demo.made", SinkKey("s"), Settings(create_table=True), ROWS)
    assert not made.schema().identifier_field_ids
    assert not any(field.required for field in made.schema().fields)


def test_a_branch_with_equality_deletes_is_refused(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    found = lake.table()
    check_no_equality_deletes(found, "main")
    found.append(pa.table({"batch": [1]}))
    head = lake.head()
    check_no_equality_deletes(lake.table(), "main")
    counted = Summary(Operation.OVERWRITE, **{"total-equality-deletes": "1"})
    more = {"snapshot_id": 7, "parent_snapshot_id": head.snapshot_id, "sequence_number": 2, "summary": counted}
    update(lake, AddSnapshotUpdate(snapshot=head.model_copy(update=more)))
    roll_back(lake, 7)  # forward: the head moves to it
    with pytest.raises(CatalogError, match="LAKESINK_EQUALITY_DELETES"):
        check_no_equality_deletes(lake.table(), "main")
