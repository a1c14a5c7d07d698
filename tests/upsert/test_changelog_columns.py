"""Which columns a changelog that was not made by lakesink may have, and what the log says of a changelog."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from lakesink.rows.plan import ChangesPlan
from lakesink.sinks.iceberg.side.changelog_table import changelog_columns, check_filled
from lakesink_protocol.errors import WriteError
from lakesink_protocol.row_changes import ChangeCounts, Mode
from testkit.builders import Lake
from testkit.change_table import Change, rows_of, upsert_lake
from tests.audit.terminal import found, terminal
from tests.upsert.test_changelog import LOG, log_of, logging


def user_made(lake: Lake, *columns: NestedField) -> None:
    lake.catalog.create_table(LOG, Schema(*columns))


@pytest.mark.parametrize(
    ("column", "options", "refused"),
    [
        (NestedField(1, "value", StringType(), required=True), {}, "value"),
        (NestedField(1, "VALUE", StringType(), required=True), {}, "VALUE"),
        (NestedField(1, "_source_offset", LongType(), required=True), {}, "_source_offset"),
        (NestedField(1, "_operation", StringType(), required=True), {}, None),
        (NestedField(1, "id", LongType(), required=True), {}, None),
        (NestedField(1, "version", LongType(), required=True), {}, None),
        (NestedField(1, "version", LongType(), required=True), {"sequence_by": None}, "version"),
        (NestedField(1, "another", LongType(), required=True), {}, None),  # the evolution makes it optional
    ],
)
def test_a_column_of_a_changelog_is_not_null_only_if_every_change_has_a_value(
    tmp_path: Path, column: NestedField, options: dict[str, Any], refused: str | None
) -> None:
    lake = upsert_lake(tmp_path)
    user_made(lake, column)
    stream = logging(lake, 4, **options)
    changes = [one for one in {change.key: change for change in stream.changes(0)}.values() if not one.deletes]
    if refused is None:
        stream.run_changes(0, [changes])
        assert len(log_of(lake)) == len(changes) > 0
        return
    with pytest.raises(WriteError, match=f"'{refused}' is NOT NULL there") as error:
        stream.run_changes(0, [changes])
    assert f"ALTER TABLE {LOG} ALTER COLUMN {refused} DROP NOT NULL" in error.value.action
    assert rows_of(lake) == log_of(lake) == []


@pytest.mark.parametrize("mode", ["upsert", "changes"])
def test_a_column_that_deletes_may_lack_is_optional_in_a_changelog(tmp_path: Path, mode: str) -> None:
    lake = upsert_lake(tmp_path)
    with lake.table().update_schema(allow_incompatible_changes=True) as change:
        change.update_column("value", required=True)
    user_made(lake, NestedField(1, "value", StringType(), required=True))
    given = {"mode": "upsert", "apply_as_deletes": None} if mode == "upsert" else {}
    stream = logging(lake, 4, **given)
    if mode == "upsert":
        stream.run_changes(0, [[Change(1, 1, "a", "v", Decimal("1.00"))]])
        assert [row["value"] for row in log_of(lake)] == ["v"]
        return
    with pytest.raises(WriteError, match="'value' is NOT NULL there"):
        stream.run_changes(0, [[Change(1, 1, "a", "v", Decimal("1.00"))]])


def test_fields_within_columns_of_a_changelog_are_not_null_only_if_those_of_the_table_are() -> None:
    def schema(*, required: bool) -> Schema:
        place = StructType(NestedField(10, "town", StringType(), required=required))
        return Schema(
            NestedField(1, "id", LongType(), required=True),
            NestedField(2, "places", ListType(11, place, element_required=required)),
            NestedField(3, "by_name", MapType(12, StringType(), 13, place.model_copy(), value_required=required)),
        )

    changes = ChangesPlan(Mode.CHANGES, (1,), has_changelog=True)
    loose, strict = (schema(required=required).model_dump_json() for required in (False, True))
    check_filled(LOG, strict, changelog_columns(strict, changes, "demo.events"))
    check_filled(LOG, loose, changelog_columns(strict, changes, "demo.events"))
    with pytest.raises(WriteError, match=r"'places\.element' is NOT NULL"):
        check_filled(LOG, strict, changelog_columns(loose, changes, "demo.events"))


def test_the_log_of_the_table_says_how_many_changes_are_in_the_changelog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = upsert_lake(tmp_path)
    stream = logging(lake)
    stream.run(0)
    stream.run(1, changelog_table=None)
    stream.run_changes(2, [])
    run, changes = terminal(lake, monkeypatch), len(stream.changes(0))
    logged, plain, empty = [line for line in run("log").stdout.splitlines() if line.startswith("events")]
    assert f", {changes} logged " in logged
    assert "logged" not in plain + empty
    batches = found(run("log", "--output", "json"))["batches"]
    assert [batch["changelog"] for batch in batches[:2]] == [LOG, ""]
    assert ChangeCounts(**batches[0]["changes"]).changes == changes
