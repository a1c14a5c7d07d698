"""Rows that cannot be written become rows of another table, under the same batch id."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField

import lakesink
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_protocol.errors import LakesinkError, SettingsError
from lakesink_protocol.identity import SinkKind
from lakesink_tools.cli.main import main
from tests.spark.adapters import ADAPTERS, Adapter
from tests.spark.streams import failure, run

pytestmark = pytest.mark.usefixtures("home")
TABLE, LETTERS = "demo.people", "demo.people__dead_letters"
OPTIONS: dict[str, Any] = {"sink_id": "people", "checkpoint": "ck"}
COLUMNS = "id LONG, age INT"
VALID_AGE = {"valid_age": ("age BETWEEN 0 AND 120", "quarantine")}


def make_table() -> None:
    create_table(connect(), TABLE, pa.schema([("id", pa.int64()), ("age", pa.int32())]))


def people(spark: Any, folder: Path, name: str, *ages: int | None) -> Any:
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"id": at, "age": age}) for at, age in enumerate(ages)]
    (folder / f"{name}.json").write_text("\n".join(lines))
    return spark.readStream.schema(COLUMNS).json(str(folder))


def stream(rows: Any, expect: Any = VALID_AGE, **options: Any) -> Any:
    given = {"expect": expect} if expect else {}
    return lakesink.stream(rows, TABLE, **OPTIONS, **given, **options)


def append(spark: Any, version: int, *ages: int | None, **options: Any) -> None:
    """A batch without a query: people numbered from 0."""
    found = spark.createDataFrame(list(enumerate(ages)), COLUMNS)
    lakesink.append(found, TABLE, txn=("people", version), expect=VALID_AGE, **options)


def rows(table: str = TABLE) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = load_table(connect(create=False), table).scan().to_arrow().to_pylist()
    return found


def letters() -> list[tuple[Any, ...]]:
    """Batch, reason, column and payload of each letter."""
    found = rows(LETTERS)
    assert len({one["letter_id"] for one in found}) == len(found)
    keys = ("batch_id", "reason", "column_name", "payload")
    return sorted((tuple(one[key] for key in keys) for one in found), key=str)


def dead(name: str = "lakesink.dead-letters") -> list[str | None]:
    snapshots = load_table(connect(create=False), TABLE).snapshots()
    return [one.summary[name] for one in snapshots if one.summary]


def test_rows_that_do_not_meet_an_expectation_are_letters_of_their_batch(
    spark: Any, tmp_path: Path, either: Adapter
) -> None:
    def into(rows: Any) -> Any:
        if either is ADAPTERS["stream"]:
            return stream(rows)
        return either(lakesink.with_expectations(rows, VALID_AGE), TABLE, **OPTIONS)

    make_table()
    run(into(people(spark, tmp_path / "in", "a", 30, 150, 7, 8)))
    run(into(people(spark, tmp_path / "in", "b", 1, 2)))
    run(into(people(spark, tmp_path / "in", "c", -1, None, 3, 4)))
    assert sorted(row["age"] for row in rows()) == [1, 2, 3, 4, 7, 8, 30]
    assert letters() == [
        (0, "EXPECTATION_UNMET", "valid_age", '{"id":1,"age":150}'),
        (2, "EXPECTATION_UNMET", "valid_age", '{"id":0,"age":-1}'),
        (2, "EXPECTATION_UNMET", "valid_age", '{"id":1,"age":null}'),
    ]
    assert dead() == ["1", None, "2"]
    assert dead("lakesink.unmet.valid_age") == ["1", "0", "2"]
    assert [one.batch_id for one in lakesink.history(LETTERS)] == [0, 2]


def test_documents_that_cannot_be_decoded_are_letters_with_their_place(spark: Any, tmp_path: Path) -> None:
    make_table()
    documents = ['{"id": 1, "age": 30}', '{"id": 2, "age": "old"}', "no json", '{"id": 3, "age": 4}', '{"id": 4}']
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("\n".join(documents))
    found = spark.read.text(str(tmp_path / "in"))
    lakesink.append(found, TABLE, txn=("people", 0), decode="json", on_malformed="quarantine")
    assert sorted(row["id"] for row in rows()) == [1, 3, 4]
    assert letters() == [
        (0, "VALUE_MALFORMED", "age", documents[1]),
        (0, "VALUE_MALFORMED", None, documents[2]),
    ]
    [first] = [one for one in rows(LETTERS) if one["column_name"]]
    assert first["detail"] == "INT expected, found text of 3 characters"
    assert first["source"].endswith("a.txt")


def test_rows_that_the_table_cannot_hold_are_letters_one_by_one(spark: Any) -> None:
    catalog = connect()
    catalog.create_namespace("demo")
    catalog.create_table(
        TABLE, Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "age", IntegerType()))
    )
    found = spark.createDataFrame([(at if at % 10 else None, at) for at in range(1, 100)], COLUMNS)
    lakesink.append(found, TABLE, txn=("people", 0), on_malformed="quarantine")
    assert sorted(row["age"] for row in rows()) == [at for at in range(1, 100) if at % 10]
    assert letters() == [(0, "NULL_IN_REQUIRED", "id", f'{{"id":null,"age":{at}}}') for at in range(10, 100, 10)]


def test_an_append_puts_rows_aside_once_for_a_version(spark: Any) -> None:
    make_table()
    found = spark.createDataFrame([(1, 30), (2, 200)], COLUMNS)
    for _ in range(2):
        lakesink.append(found, TABLE, txn=("load", 7), expect=VALID_AGE)
    assert [row["id"] for row in rows()] == [1]
    assert letters() == [(7, "EXPECTATION_UNMET", "valid_age", '{"id":2,"age":200}')]


WAITS = pytest.param("before-call", marks=pytest.mark.nightly)  # an error of a call is no answer: it is tried 20 times
POINTS = ("before-prepared", "after-prepared", WAITS, "after-commit")


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_any_step_leaves_each_row_once_in_one_of_the_tables(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    make_table()
    query = people(spark, tmp_path / "in", "a", 30, 150, 7)
    monkeypatch.setenv("LAKESINK_FAILPOINTS", f"{point}@0=raise")
    failure(stream(query))
    monkeypatch.delenv("LAKESINK_FAILPOINTS")
    run(stream(query))
    assert sorted(row["age"] for row in rows()) == [7, 30]
    assert letters() == [(0, "EXPECTATION_UNMET", "valid_age", '{"id":1,"age":150}')]


def crashed_between_the_commits(spark: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The query of a batch whose dead letters are committed, and whose other rows are not."""
    make_table()
    query = people(spark, folder / "in", "a", 30, 150, 7, -5, 8)
    commit = IcebergSink.commit

    def only_letters(sink: IcebergSink, *batch: Any) -> Any:
        assert sink.key.kind is SinkKind.TXN, "the driver dies"
        return commit(sink, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(IcebergSink, "commit", only_letters)
        failure(stream(query))
    assert (len(rows()), len(letters())) == (0, 2)
    return query


def lose_records() -> None:
    table = load_table(connect(create=False), TABLE)
    records = list(Path(table.location().removeprefix("file://")).glob("metadata/lakesink/**/*.json*"))
    assert records
    for record in records:
        record.unlink()


def test_the_next_start_completes_a_batch_as_it_was_also_if_the_query_changed(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = crashed_between_the_commits(spark, tmp_path, monkeypatch)
    run(stream(query, None))
    assert sorted(row["age"] for row in rows()) == [7, 8, 30]
    assert len(letters()) == 2
    assert [one.outcome for one in lakesink.history(TABLE, sink="people")] == ["recovered"]


def test_without_its_record_the_batch_is_written_again_with_the_same_rows_aside(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = crashed_between_the_commits(spark, tmp_path, monkeypatch)
    lose_records()
    run(stream(query))
    assert sorted(row["age"] for row in rows()) == [7, 8, 30]
    assert len(letters()) == 2


@pytest.mark.parametrize("condition", ["age BETWEEN 0 AND 200", "age BETWEEN -9 AND 200", "age BETWEEN -9 AND 120"])
def test_other_rows_aside_than_those_that_are_committed_are_refused(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    query = crashed_between_the_commits(spark, tmp_path, monkeypatch)
    lose_records()
    said = failure(stream(query, {"valid_age": (condition, "quarantine")}))
    assert "LAKESINK_DEAD_LETTERS_DIFFER" in said
    assert not rows()
    run(stream(query))
    assert (len(rows()), len(letters())) == (3, 2)


def test_a_table_that_was_rolled_back_alone_is_refused_until_its_letters_are(spark: Any, tmp_path: Path) -> None:
    lakesink.append(spark.createDataFrame([], COLUMNS), TABLE, txn=("make", 0), create_table=True)
    for name, age in (("a", 150), ("b", -5)):
        run(stream(people(spark, tmp_path / "in", name, 30, age)))
    table, dead_ones = (load_table(connect(create=False), name) for name in (TABLE, LETTERS))
    table.manage_snapshots().rollback_to_snapshot(lakesink.history(TABLE)[0].snapshot_id).commit()
    rewound = CliRunner().invoke(main, ["rewind", "ck", "--to-batch", "-1", "--yes"])
    assert rewound.exit_code == 0, rewound.output
    again = people(spark, tmp_path / "in", "c", 31)
    assert "LAKESINK_DEAD_LETTERS_DIFFER" in failure(stream(again))
    first = dead_ones.snapshots()[0].snapshot_id
    assert [one.batch_id for one in lakesink.history(LETTERS)] == [0, 1]
    dead_ones.manage_snapshots().rollback_to_snapshot(first).commit()
    assert "LAKESINK_DEAD_LETTERS_DIFFER" in failure(stream(again))  # batch 0 has more rows now
    run(stream(again, dead_letter_table="demo.other_letters"))
    assert sorted(row["age"] for row in rows()) == [30, 30, 31]
    assert len(rows("demo.other_letters")) == 2


def test_a_table_of_dead_letters_that_was_dropped_is_made_again(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table()
    query = people(spark, tmp_path / "in", "a", 30, 150, 7)
    monkeypatch.setenv("LAKESINK_FAILPOINTS", "after-prepared@0=raise")
    failure(stream(query))
    monkeypatch.delenv("LAKESINK_FAILPOINTS")
    connect(create=False).drop_table(LETTERS)
    run(stream(query))
    assert (len(rows()), len(letters())) == (2, 1)


def test_a_batch_that_is_mostly_bad_is_refused(spark: Any) -> None:
    make_table()
    with pytest.raises(LakesinkError, match="LAKESINK_DEAD_LETTERS_TOO_MANY"):
        append(spark, 0, 130, 150, 7)
    assert not rows()
    assert not rows(LETTERS)
    with pytest.raises(LakesinkError, match=r"max_dead_letters is 1(?s:.)*valid_age: 2 rows"):
        append(spark, 0, 130, 150, 7, max_dead_letters=1, max_dead_letter_ratio=1)
    append(spark, 0, 130, 150, 7, max_dead_letter_ratio=0.7)
    assert Counter(one[1] for one in letters()) == {"EXPECTATION_UNMET": 2}


def test_the_table_of_dead_letters_can_have_another_name(spark: Any, tmp_path: Path) -> None:
    make_table()
    query = people(spark, tmp_path / "in", "a", 150, 7)
    append(spark, 0, 150, 7, dead_letter_table="demo.bad")
    assert [row["payload"] for row in rows("demo.bad")] == ['{"id":0,"age":150}']
    with pytest.raises(SettingsError, match="the table itself"):
        stream(query, dead_letter_table=TABLE)


def test_another_table_is_never_taken_for_one_of_dead_letters(spark: Any, tmp_path: Path) -> None:
    make_table()
    query = people(spark, tmp_path / "in", "a", 150, 7)
    lakesink.append(spark.range(1), "demo.other", txn=("make", 0), create_table=True)
    with pytest.raises(LakesinkError, match="cannot keep dead letters"):
        stream(query, dead_letter_table="demo.other")


def test_the_command_shows_the_letters_and_counts_them_by_reason(spark: Any) -> None:
    make_table()
    append(spark, 0, 30, 150, 7, 8)
    append(spark, 1, 1, 2, -3)
    told = CliRunner().invoke(main, ["dead-letters", TABLE])
    assert told.exit_code == 1, told.output
    assert "2 dead letters" in told.output
    assert "people: 2 letters with EXPECTATION_UNMET (valid_age)." in told.output
    document = json.loads(CliRunner().invoke(main, ["dead-letters", TABLE, "--batch", "1", "--output", "json"]).output)
    assert [(one["batch_id"], one["payload"]) for one in document["newest"]] == [(1, '{"id":2,"age":-3}')]
    assert document["reasons"] == [
        {"sink": "people", "reason": "EXPECTATION_UNMET", "column": "valid_age", "letters": 1, "replayed": 0}
    ]
    status = CliRunner().invoke(main, ["status", TABLE]).output
    assert "2 of 7 rows became dead letters" in status
    quality = CliRunner().invoke(main, ["quality", TABLE]).output
    assert "dead letters" in quality
    assert [one.dead_letters for one in lakesink.history(TABLE, sink="people")] == [1, 1]


def test_the_command_says_that_nothing_was_put_aside(spark: Any) -> None:
    make_table()
    append(spark, 0, 30)
    told = CliRunner().invoke(main, ["dead-letters", TABLE])
    assert (told.exit_code, "Nothing was put aside." in told.output) == (0, True)


def test_the_share_of_dead_letters_is_that_of_all_batches(spark: Any) -> None:
    options: dict[str, Any] = {"create_table": True, "max_dead_letter_ratio": 1}
    for version, age in enumerate((30, 150, 7, 8), 1):
        found = spark.createDataFrame([(version, age)], COLUMNS)
        lakesink.append(found, TABLE, txn=("load", version), expect=VALID_AGE, **options)
    document = json.loads(CliRunner().invoke(main, ["quality", TABLE, "--output", "json"]).output)
    shares = {one["name"]: (one["rows"], one["found"], one["share"], one["last_batch"]) for one in document["checks"]}
    assert shares == {"dead letters": (4, 1, 0.25, 2), "valid_age": (4, 1, 0.25, 2)}


def test_the_audit_proves_that_every_row_is_in_one_of_the_tables(spark: Any) -> None:
    make_table()
    append(spark, 0, 30, 150, 7, 8)
    append(spark, 1, 1, 2, -3)
    proof = lakesink.audit_table(TABLE)
    assert not proof.findings
    assert [(one.sink, one.rows, one.dead_letters) for one in proof.sinks if one.sink == "people"] == [("people", 5, 2)]
    dead_ones = load_table(connect(create=False), LETTERS)
    dead_ones.manage_snapshots().rollback_to_snapshot(dead_ones.snapshots()[0].snapshot_id).commit()
    [found] = lakesink.audit_table(TABLE).findings
    assert (found.code.name, found.items) == ("DEAD_LETTERS_DIFFER", ("1",))
    connect(create=False).drop_table(LETTERS)
    [found] = lakesink.audit_table(TABLE).findings
    assert found.found == f"There is no table {LETTERS}, which had the dead letters of 2 batches."
