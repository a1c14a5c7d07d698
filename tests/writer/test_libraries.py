"""A PyArrow or DuckDB that is too old is refused before the start, and in each task."""

import re
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakesink import __version__
from lakesink.rows.libraries import OLDEST, check_library, is_too_old
from lakesink.sinks.staged.parts import check_part_schema
from lakesink.spark.rows.task import check_versions
from lakesink.task.task import check_columns
from lakesink_protocol.errors import WriteError
from release.tree import project
from testkit.tasks import plan_for, write

SCHEMA = Schema(NestedField(1, "id", LongType()))
DOCUMENTS = pa.RecordBatch.from_pydict({"value": pa.array([b'{"id": 1}'], pa.binary())})


def refusal_of(error: pytest.ExceptionInfo[WriteError]) -> tuple[str, str]:
    return error.value.code, error.value.what.partition(";")[0]


def test_the_oldest_versions_are_those_that_pip_is_given() -> None:
    extras = project()["optional-dependencies"]
    declared = [*project()["dependencies"], *extras["json"], *extras["demo"]]
    for library, oldest in OLDEST.items():
        found = [re.match(r"[^,]+", text) for text in declared if text.startswith(library)]
        assert {match[0] for match in found if match} == {f"{library}>={oldest}"}


@pytest.mark.parametrize(
    ("version", "too_old"),
    [
        *[("1.5.6", True), ("1.10", True), ("0.10.3", True), ("unknown", True), ("", True)],
        *[("2.0.0", False), ("2", False), ("2.0.1.dev3", False), ("2.1.0", False), ("10.0", False)],
    ],
)
def test_versions_are_compared_by_numbers(version: str, too_old: bool) -> None:  # noqa: FBT001 - a table of cases
    assert is_too_old("duckdb", version) is too_old


def test_the_error_says_what_to_install() -> None:
    with pytest.raises(WriteError) as refused:
        check_library("pyarrow", "24.0.0")
    assert refusal_of(refused) == ("LAKESINK_LIBRARY_TOO_OLD", "pyarrow 24.0.0 is installed")
    assert "pip install 'pyarrow>=25.0'" in refused.value.action


def test_an_old_duckdb_is_refused_before_a_job_and_in_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_for(SCHEMA, tmp_path, decode="json")
    check_columns(DOCUMENTS.schema, plan)
    monkeypatch.setattr(duckdb, "__version__", "1.5.6")
    with pytest.raises(WriteError) as refused:
        check_columns(DOCUMENTS.schema, plan)
    assert refusal_of(refused) == ("LAKESINK_LIBRARY_TOO_OLD", "duckdb 1.5.6 is installed")
    with pytest.raises(WriteError) as refused:
        write(plan, [DOCUMENTS])
    assert refusal_of(refused) == ("LAKESINK_LIBRARY_TOO_OLD", "duckdb 1.5.6 is installed")
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_missing_duckdb_is_reported_before_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(WriteError, match="Decoding needs duckdb") as refused:
        check_columns(DOCUMENTS.schema, plan_for(SCHEMA, tmp_path, decode="json"))
    assert refused.value.code == "LAKESINK_DECODER_MISSING"


def test_without_documents_no_duckdb_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duckdb, "__version__", "1.5.6")
    check_columns(pa.schema([("id", pa.int64())]), plan_for(SCHEMA, tmp_path))


def test_an_old_pyarrow_is_refused_before_a_job_and_in_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pa, "__version__", "24.0.0")
    columns = pa.schema([("id", pa.int64())])
    plan = plan_for(SCHEMA, tmp_path)
    told = ("LAKESINK_LIBRARY_TOO_OLD", "pyarrow 24.0.0 is installed")
    with pytest.raises(WriteError) as refused:
        check_columns(columns, plan)
    assert refusal_of(refused) == told
    with pytest.raises(WriteError) as refused:
        check_part_schema(columns)
    assert refusal_of(refused) == told
    with pytest.raises(WriteError) as refused:
        check_versions(__version__)
    assert refusal_of(refused) == told
