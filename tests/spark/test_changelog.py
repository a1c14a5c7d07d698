"""Streams of changes with a changelog, as a user starts them: what is refused before the start, and the format."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakesink
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_protocol.errors import WriteError
from tests.spark.adapters import ADAPTERS
from tests.spark.streams import FIRST_FILE_TIME, failure, forget_commits, run

pytestmark = pytest.mark.usefixtures("home")
TABLE, LOG = "demo.orders", "demo.orders_log"
STREAM: dict[str, Any] = {
    "sink_id": "orders",
    "checkpoint": "ck",
    "mode": "changes",
    "keys": "id",
    "sequence_by": "version",
    "apply_as_deletes": "gone",
    "changelog_table": LOG,
    "create_table": True,
}


def change_files(folder: Path, count: int, *, first: int = 0) -> None:
    """Each file has a new state of every key, then deletes the key that is its number."""
    folder.mkdir(exist_ok=True)
    for number in range(first, first + count):
        states = [{"id": key, "version": number * 2, "text": f"{number}", "gone": False} for key in range(5)]
        gone = {"id": number % 5, "version": number * 2 + 1, "text": "last words", "gone": True}
        path = folder / f"{number:03}.json"
        path.write_text("".join(json.dumps(change) + "\n" for change in [*states, gone]))
        os.utime(path, (FIRST_FILE_TIME + number, FIRST_FILE_TIME + number))


def change_stream(spark: Any, folder: Path) -> Any:
    rows = spark.readStream.schema("id long, version long, text string, gone boolean")
    return rows.option("maxFilesPerTrigger", 1).json(str(folder))


def assert_both_have(files: int) -> None:
    """Compare table and changelog with the files that were read."""
    catalog = connect(create=False)
    log = load_table(catalog, LOG).scan().to_arrow().to_pylist()
    changes = ("_batch_id", "version", "id", "text", "_operation")
    assert sorted(tuple(row[name] for name in changes) for row in log) == sorted(
        change
        for number in range(files)
        for change in (
            *((number, number * 2, key, f"{number}", "upsert") for key in range(5)),
            (number, number * 2 + 1, number % 5, "last words", "delete"),
        )
    )
    rows = load_table(catalog, TABLE).scan().to_arrow().sort_by("id").to_pylist()
    newest, gone = files - 1, (files - 1) % 5
    assert [(row["id"], row["version"], row["text"]) for row in rows] == [
        (key, newest * 2, f"{newest}") for key in range(5) if key != gone
    ]


@pytest.mark.dear
@pytest.mark.parametrize("exists", [False, True], ids=["a-new-table", "a-table"])
@pytest.mark.parametrize("column", ["text", "_source_offset"])
def test_a_changelog_with_a_column_that_changes_may_lack_is_refused_before_the_start(
    spark: Any, tmp_path: Path, column: str, *, exists: bool
) -> None:
    change_files(tmp_path / "in", 1)
    if exists:
        rows = pa.schema([("id", pa.int64()), ("version", pa.int64()), ("text", pa.string())])
        create_table(connect(), TABLE, rows, keys=["id"])
    create_table(connect(), LOG, pa.schema([(column, pa.string() if column == "text" else pa.int64())]), keys=[column])
    log = load_table(connect(create=False), LOG)
    with log.update_schema() as change:
        change.set_identifier_fields()  # required remains
    said = rf"demo\.orders_log cannot keep the changelog: column '{column}' is NOT NULL there"
    with pytest.raises(WriteError, match=said):
        lakesink.stream(change_stream(spark, tmp_path / "in"), TABLE, **STREAM, except_column_list="gone")
    assert load_table(connect(create=False), LOG).current_snapshot() is None
    by_format = ADAPTERS["format"](change_stream(spark, tmp_path / "in"), TABLE, **STREAM)
    assert "[LAKESINK_SCHEMA_MISMATCH]" in failure(by_format)
    assert load_table(connect(create=False), LOG).current_snapshot() is None
    with log.update_schema() as change:
        change.make_column_optional(column)
    run(ADAPTERS["format"](change_stream(spark, tmp_path / "in"), TABLE, **STREAM))
    assert_both_have(1)


@pytest.mark.dear
@pytest.mark.parametrize("point", ["after-prepared", "after-commit"])
def test_a_changelog_of_the_format_has_each_change_once_over_restarts_and_replays(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    def stream() -> Any:
        return ADAPTERS["format"](change_stream(spark, tmp_path / "in"), TABLE, **STREAM)

    change_files(tmp_path / "in", 3)
    monkeypatch.setenv("LAKESINK_FAILPOINTS", f"{point}@1=raise")
    assert "FailpointReached" in failure(stream())
    monkeypatch.delenv("LAKESINK_FAILPOINTS")
    run(stream())
    assert_both_have(3)
    forget_commits(Path("ck"), 1)
    run(stream())
    assert_both_have(3)
    change_files(tmp_path / "in", 1, first=3)
    run(ADAPTERS["stream"](change_stream(spark, tmp_path / "in"), TABLE, **STREAM, except_column_list="gone"))
    assert_both_have(4)
    assert not lakesink.audit_table(TABLE).findings
