"""What is refused before a stream starts, by the names of its tables and by their columns."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.preflight import check_start
from lakesink_catalog.connect.catalog import FoundCatalog
from lakesink_catalog.tables.tables import create_table
from lakesink_protocol.catalogue import DataState
from lakesink_protocol.errors import LakesinkError, SettingsError, WriteError
from lakesink_protocol.identity import SinkKey
from testkit.builders import TABLE, Lake


def start(folder: Path, table: str, names: str, branch: str = "main", **options: Any) -> None:
    """Check a stream of rows with these columns, in a session that distinguishes them by case."""
    settings = Settings.parse({"sink_id": "s", "checkpoint": "/ck", **options})
    found = FoundCatalog("test", {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"})
    rows = pa.schema([(name, pa.int64()) for name in names])
    check_start(found, table, SinkKey("s", branch), settings, rows, case_sensitive=True)


def test_a_malformed_name_is_told_before_a_missing_catalog(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="it needs a namespace"):
        start(tmp_path, "events", "k")


def test_a_changelog_that_no_table_can_be_is_refused_before_the_start(tmp_path: Path) -> None:
    """Iceberg lets columns differ only in case, and a table that lakesink creates has none."""
    fields = [NestedField(at, name, LongType(), required=name == "k") for at, name in enumerate("kaA", 1)]
    Lake.make(tmp_path, schema=Schema(*fields, identifier_field_ids=[1]))
    start(tmp_path, TABLE, "kaA", mode="upsert")
    with pytest.raises(WriteError, match=r"SCHEMA_UNSUPPORTED.*'a' and 'A' differ at most in case"):
        start(tmp_path, TABLE, "kaA", mode="upsert", changelog_table="demo.changes")


def refused(folder: Path, table: str, names: str, **options: Any) -> LakesinkError:
    with pytest.raises(LakesinkError) as error:
        start(folder, table, names, **options)
    return error.value


def test_a_branch_that_the_table_lacks_is_refused_with_the_name_that_is_near(tmp_path: Path) -> None:
    Lake.make(tmp_path, schema=Schema(NestedField(1, "k", LongType())))
    start(tmp_path, TABLE, "k")
    assert refused(tmp_path, TABLE, "k", branch="audit").code == "LAKESINK_BRANCH_MISSING"
    assert refused(tmp_path, "demo.new", "k", branch="audit", create_table=True).code == "LAKESINK_BRANCH_MISSING"
    start(tmp_path, "demo.new", "k", create_table=True)


def test_a_table_of_version_1_is_refused_before_the_start(tmp_path: Path) -> None:
    Lake.make(tmp_path, schema=Schema(NestedField(1, "k", LongType())), properties={"format-version": "1"})
    assert refused(tmp_path, TABLE, "k").code == "LAKESINK_UNSUPPORTED"


def test_columns_that_the_table_lacks_are_refused_and_the_table_is_unchanged(tmp_path: Path) -> None:
    Lake.make(tmp_path, schema=Schema(NestedField(1, "k", LongType(), required=True)))
    error = refused(tmp_path, TABLE, "a")
    assert (error.code, error.data) == ("LAKESINK_SCHEMA_MISMATCH", DataState.UNCHANGED.value)


@pytest.mark.parametrize("is_there", [False, True])
def test_maintenance_of_partitions_that_the_table_lacks_is_refused_before_the_start(
    tmp_path: Path, *, is_there: bool
) -> None:
    given: dict[str, Any] = {"partition_by": "k", "create_table": True}
    if is_there:
        create_table(Lake.make(tmp_path).catalog, "demo.parts", pa.schema([("k", pa.int64()), ("a", pa.int64())]), "k")
    start(tmp_path, "demo.parts", "ka", maintenance={"where": "k = 1"}, **given)
    for wrong in ("a = 1", "K = 1", "nosuch = 1"):
        error = refused(tmp_path, "demo.parts", "ka", maintenance={"where": wrong}, **given)
        assert (error.code, error.data) == ("LAKESINK_OPTION_INVALID", DataState.UNCHANGED.value)
        assert "It has: k" in str(error)


def test_a_changelog_with_a_column_that_a_change_may_not_fill_is_refused(tmp_path: Path) -> None:
    fields = [NestedField(1, "k", LongType(), required=True), NestedField(2, "a", LongType())]
    lake = Lake.make(tmp_path, schema=Schema(*fields, identifier_field_ids=[1]))
    options = {"mode": "upsert", "changelog_table": "demo.changes"}
    start(tmp_path, TABLE, "ka", **options)
    lake.catalog.create_table("demo.changes", Schema(NestedField(1, "a", LongType(), required=True)))
    assert refused(tmp_path, TABLE, "ka", **options).code == "LAKESINK_SCHEMA_MISMATCH"
