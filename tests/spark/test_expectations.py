"""Expectations of streams and appends: Spark evaluates them once, and the table keeps their counts."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import lakesink
from lakesink.spark.source.data_source import LakesinkDataSource
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.errors import LakesinkError, SettingsError, WriteError
from lakesink_protocol.measures import UNMET_ROWS, Tally
from lakesink_protocol.quality import Quality
from lakesink_tools.cli.main import main
from tests.spark.adapters import ADAPTERS, embedded_catalog
from tests.spark.streams import failure, run

pytestmark = pytest.mark.usefixtures("home")
TABLE = "demo.people"
OPTIONS: dict[str, Any] = {"sink_id": "people", "checkpoint": "ck", "create_table": True}
COLUMNS = "id LONG, age INT, price DECIMAL(9,2)"
VALID_AGE, POSITIVE = "age BETWEEN 0 AND 120", "price > 0"


def people(spark: Any, folder: Path, name: str, *rows: dict[str, Any]) -> Any:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text("\n".join(map(json.dumps, rows)))
    return spark.readStream.schema(COLUMNS).json(str(folder))


def stream(rows: Any, expect: Any) -> Any:
    return lakesink.stream(rows, TABLE, **OPTIONS, expect=expect)


def append(spark: Any, rows: list[tuple[int, int | None, int]], expect: Any) -> None:
    """Batch 0, without a query."""
    found = spark.createDataFrame(rows, "id LONG, age INT, price INT")
    lakesink.append(found, TABLE, txn=("people", 0), create_table=True, expect=expect)


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = load_table(connect(create=False), TABLE).scan().to_arrow().sort_by("id").to_pylist()
    return found


def summaries() -> list[dict[str, str]]:
    """What an engine reads of each snapshot about expectations."""
    table = load_table(connect(create=False), TABLE)
    found = [snapshot.summary.additional_properties for snapshot in table.snapshots() if snapshot.summary]
    return [{key: one[key] for key in one if key.startswith("lakesink.unmet")} for one in found]


def test_rows_that_only_warn_are_written_and_counted_by_rule(spark: Any, tmp_path: Path) -> None:
    expect = {"valid_age": (VALID_AGE, "warn"), "positive": (POSITIVE, "warn")}
    first: list[dict[str, Any]] = [
        {"id": 1, "age": 30, "price": 1.5},
        {"id": 2, "age": 130, "price": -1.5},
        {"id": 3, "age": None, "price": 2},
        {"id": 4, "age": 7, "price": 0},
    ]
    run(stream(people(spark, tmp_path / "in", "a", *first), expect))
    run(stream(people(spark, tmp_path / "in", "b", {"id": 5, "age": 5, "price": 5}), expect))
    assert [row["id"] for row in rows()] == [1, 2, 3, 4, 5]
    assert list(rows()[0]) == ["id", "age", "price"]
    assert summaries() == [
        {"lakesink.unmet-rows": "3", "lakesink.unmet.valid_age": "2", "lakesink.unmet.positive": "2"},
        {"lakesink.unmet.valid_age": "0", "lakesink.unmet.positive": "0"},
    ]
    one, other = lakesink.history(TABLE)
    assert (one.unmet_rows, dict(one.unmet)) == (3, {"valid_age": 2, "positive": 2})
    assert (other.unmet_rows, dict(other.unmet)) == (0, {"valid_age": 0, "positive": 0})


def test_a_row_that_fails_the_batch_keeps_all_of_it_out(spark: Any) -> None:
    expect = {"valid_age": VALID_AGE, "positive": (POSITIVE, "warn")}
    found = [(1, 30, 1), (2, None, 0)]
    with pytest.raises(
        LakesinkError, match=r"1 of 2 rows of batch 0 does not meet the expectation valid_age\."
    ) as unmet:
        append(spark, found, expect)
    assert unmet.value.code == "LAKESINK_EXPECTATION_UNMET"
    assert not rows()
    append(spark, found, {"valid_age": (VALID_AGE, "warn")})
    assert [row["id"] for row in rows()] == [1, 2]


def test_an_append_returns_the_counts_and_fails_as_a_stream_does(spark: Any) -> None:
    found = spark.createDataFrame([(1, 30), (2, -1)], "id LONG, age INT")
    expect = {"valid_age": (VALID_AGE, "warn"), "has_id": "id IS NOT NULL"}
    outcome = lakesink.append(found, TABLE, txn=("load", 1), create_table=True, expect=expect)
    assert isinstance(outcome, lakesink.Committed)
    assert outcome.quality == Quality(Tally({UNMET_ROWS: 1}), unmet={"valid_age": 1, "has_id": 0})
    with pytest.raises(LakesinkError, match="EXPECTATION_UNMET"):
        lakesink.append(found, TABLE, txn=("load", 2), expect={"valid_age": VALID_AGE})
    assert len(rows()) == 2


def test_a_batch_write_in_the_format_counts_too(spark: Any) -> None:
    spark.dataSource.register(LakesinkDataSource)
    found = lakesink.with_expectations(spark.range(10), {"even": ("id % 2 = 0", "warn")})
    options = embedded_catalog() | {"table": TABLE, "txn-app-id": "load", "txn-version": "1", "create-table": "true"}
    found.write.format("lakesink").mode("append").options(**options).save()
    assert summaries() == [{"lakesink.unmet-rows": "5", "lakesink.unmet.even": "5"}]
    assert [row["id"] for row in rows()] == list(range(10))


def test_a_prepared_batch_keeps_its_counts(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = people(spark, tmp_path / "in", "a", {"id": 1, "age": 130, "price": 1})
    monkeypatch.setenv("LAKESINK_FAILPOINTS", "after-prepared@0=raise")
    failure(stream(query, {"valid_age": (VALID_AGE, "warn")}))
    monkeypatch.delenv("LAKESINK_FAILPOINTS")
    run(stream(query, {"positive": (POSITIVE, "warn")}))
    [record] = lakesink.history(TABLE)
    assert (record.outcome, dict(record.unmet)) == ("recovered", {"valid_age": 1})


def test_documents_are_checked_by_their_columns_in_the_table(spark: Any) -> None:
    lakesink.append(spark.createDataFrame([(0, 0)], "id LONG, age INT"), TABLE, txn=("make", 1), create_table=True)
    documents = spark.createDataFrame([('{"id": 1, "age": 200}',), ('{"id": 2, "age": 20}',)], "value STRING")
    expect = {"valid_age": ("AGE <= 120", "warn")}
    lakesink.append(documents, TABLE, txn=("people", 0), decode="json", expect=expect)
    assert summaries()[-1] == {"lakesink.unmet-rows": "1", "lakesink.unmet.valid_age": "1"}
    assert [row["id"] for row in rows()] == [0, 1, 2]


def test_a_condition_on_documents_that_no_task_can_evaluate_is_refused_before_the_start(
    spark: Any, tmp_path: Path
) -> None:
    texts = spark.readStream.text(str(tmp_path))
    documents: dict[str, Any] = {**OPTIONS, "decode": "json", "schema": "id BIGINT, name STRING"}
    for condition, said in [
        ("upper(name) = 'A'", "there are the functions length, trim, coalesce alone"),
        ("name > 0", "it compares STRING with INT"),
        ("nme IS NOT NULL", "there is no column nme. Did you mean 'name'"),
        ("value IS NOT NULL", "there is no column value. Known: id, name"),
    ]:
        with pytest.raises(SettingsError, match=f"CONDITION_UNSUPPORTED.*{re.escape(said)}") as refused:
            lakesink.stream(texts, TABLE, **documents, expect={"rule": condition})
        assert len(str(refused.value).partition("\n")[0]) < 200
    marked = lakesink.with_expectations(texts, {"rule": "value IS NOT NULL"})
    with pytest.raises(WriteError, match="the expectation rule, which Spark evaluates before"):
        lakesink.stream(marked, TABLE, **documents)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("agee > 0", "cannot evaluate the expectation rule: there is no `agee`. Did you mean `age`"),
        ("age >", r"cannot evaluate the expectation rule: \[PARSE_SYNTAX_ERROR\] Syntax error at or near end of input"),
        ("age IN (", r"rule: \[PARSE_SYNTAX_ERROR\] Syntax error at or near '\('"),
        ("age = = 1", r"rule: \[PARSE_SYNTAX_ERROR\] Syntax error at or near '='"),
        ("age > 0;", r"rule: \[PARSE_SYNTAX_ERROR\] Syntax error at or near ';'"),
        ("sum(age) > 0", "cannot evaluate the expectation rule"),
        ("explode(array(true))", "cannot evaluate the expectation rule"),
        ("age + 1", "is INT, not a condition"),
    ],
)
def test_a_condition_that_spark_cannot_evaluate_is_refused_before_the_start(
    spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], condition: str, said: str
) -> None:
    query = people(spark, tmp_path / "in", "a", {"id": 1, "age": 30, "price": 1})
    with pytest.raises(SettingsError, match=said) as refused:
        lakesink.stream(query, TABLE, **OPTIONS, expect={"rule": condition})
    assert len(str(refused.value).partition("\n")[0]) < 200
    assert capfd.readouterr().err == ""
    with pytest.raises(SettingsError, match=said):
        lakesink.with_expectations(query, {"rule": condition})


@pytest.mark.parametrize(
    "expect",
    [{}, [], {"9a": "true"}, {"a b": "true"}, {"a": ""}, {"a": ("true", "drop")}, {"a": 7}, {"a": "true", "A": "true"}],
)
def test_malformed_expectations_are_refused(spark: Any, tmp_path: Path, expect: Any) -> None:
    query = people(spark, tmp_path / "in", "a", {"id": 1, "age": 30, "price": 1})
    with pytest.raises(SettingsError, match="The option expect"):
        lakesink.stream(query, TABLE, **OPTIONS, expect=expect)


def test_the_format_names_the_function_for_its_expectations(spark: Any, tmp_path: Path) -> None:
    query = people(spark, tmp_path / "in", "a", {"id": 1, "age": 30, "price": 1})
    said = failure(ADAPTERS["format"](query, TABLE, **OPTIONS, expect='{"grown": "age > 0"}'))
    assert "lakesink.with_expectations" in said


def test_the_command_draws_each_rule_over_time(spark: Any) -> None:
    for version in range(1, 6):
        found = spark.createDataFrame([(number, number) for number in range(version)], "id LONG, age INT")
        expect = {"small": ("age < 3", "warn"), "has_id": "id IS NOT NULL"}
        lakesink.append(found, TABLE, txn=("load", version), create_table=True, expect=expect)
    told = CliRunner().invoke(main, ["quality", TABLE])
    assert told.exit_code == 0, told.output
    [small] = [line.split() for line in told.output.splitlines() if " small " in line]
    assert small[-7:] == ["5", "15", "3", "20.00", "%", "5", "···▆█"]
    document = json.loads(CliRunner().invoke(main, ["quality", TABLE, "--output", "json"]).output)
    assert [(one["name"], one["rows"], one["found"]) for one in document["checks"]] == [
        ("has_id", 15, 0),
        ("small", 15, 3),
    ]
