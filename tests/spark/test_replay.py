"""Replays of dead letters in Spark: repairs, rows, values. `tests/faults/test_letter_replays.py` has the loop."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import lakesink
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.errors import LakesinkError, SettingsError
from lakesink_tools.cli.main import main
from testkit.letters import ANY, LETTERS, REPLAYS, TABLE, assigned, ids, load, rows

pytestmark = pytest.mark.usefixtures("home")


COLUMNS = "id LONG, age INT"


VALID_AGE = {"valid_age": ("age BETWEEN 0 AND 120", "quarantine")}


FIX = "SELECT letter_id, row.id, 120 AS age FROM letters"


def fix(spark: Any, repair: Any = FIX, **options: Any) -> tuple[int, int, int]:
    done = lakesink.replay_dead_letters(spark, TABLE, repair, **{"verbose": False, **options})
    return done.replays, done.letters, done.pending


@pytest.mark.parametrize(
    "repair", [FIX, lambda letters: letters.selectExpr("letter_id", "row.id", "120 AS age")], ids=["sql", "function"]
)
def test_each_letter_lands_once_also_if_the_replay_is_called_again(spark: Any, repair: Any) -> None:
    load(1, (1, 30), (2, 150), (3, -1))
    assert fix(spark, repair) == (1, 2, 0)
    assert fix(spark, repair) == (0, 0, 0)
    load(2, (4, 200), (5, 5))
    assert fix(spark, repair) == (1, 1, 0)
    assert sorted((row["id"], row["age"]) for row in rows()) == [(1, 30), (2, 120), (3, 120), (4, 120), (5, 5)]
    assert assigned() == {1: 2, 2: 1}
    assert not lakesink.audit_table(TABLE).findings


WRONG: list[tuple[Any, str]] = [
    (f"{FIX} UNION ALL {FIX}", "a letter_id comes twice"),
    ("SELECT row.* FROM letters", "returns 0 columns letter_id"),
    ("SELECT nothing FROM letters", "Spark cannot run the repair"),
    (lambda _: None, "returned a NoneType"),
    ("SELECT letter_id, row.id, 'x' AS age FROM letters", "SCHEMA_MISMATCH"),
    ("SELECT letter_id, row.id, 1 AS age, 2 AS other FROM letters", "other"),
    ("SELECT letter_id, payload AS value FROM letters", "--decode json"),
    ("SELECT letter_id, row.id, 1 AS age, INTERVAL 1 DAY AS span FROM letters", "TYPE_UNSUPPORTED"),
]


def test_a_repair_that_is_wrong_commits_nothing(spark: Any) -> None:
    load(1, (1, 30), (2, 150), (3, -1))
    for repair, said in WRONG:
        with pytest.raises(LakesinkError, match=said):
            fix(spark, repair)
        assert ids() == [1], repair
    assert fix(spark) == (1, 2, 0)
    assert ids() == [1, 2, 3]


def test_a_row_that_cannot_be_written_commits_nothing_and_assigns_nothing(spark: Any) -> None:
    load(1, (1, 30), (2, 150), (3, -1))
    with pytest.raises(LakesinkError, match="EXPECTATION_UNMET"):
        fix(spark, "SELECT letter_id, row.* FROM letters", expect={"valid_age": "age BETWEEN 0 AND 120"})
    assert ids() == [1]
    assert fix(spark, f"{FIX} WHERE row.id = 3", expect={"valid_age": "age BETWEEN 0 AND 120"}) == (1, 1, 1)
    assert ids() == [1, 3]


def test_the_rows_that_were_checked_are_those_that_land(spark: Any) -> None:
    """A repair that returns other rows each time it is evaluated is evaluated once."""
    load(1, (1, 30), *((at, 150) for at in range(2, 40)))

    def unsteady(letters: Any) -> Any:
        def some(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield batch.filter(pa.array([chance < 128 for chance in os.urandom(batch.num_rows)]))

        found = letters.selectExpr("letter_id", "row.id", "120 AS age")
        return found.mapInArrow(some, found.schema)

    fix(spark, unsteady)
    id_of = {row["letter_id"]: json.loads(row["payload"])["id"] for row in rows(LETTERS)}
    assert sorted([1, *(id_of[row["letter_id"]] for row in rows(REPLAYS))]) == ids()
    fix(spark)
    assert ids() == list(range(1, 40))


@pytest.mark.parametrize("option", [{"on_malformed": "quarantine"}, {"expect": VALID_AGE}])
def test_a_replay_cannot_put_rows_aside(spark: Any, option: Any) -> None:
    load(1, (1, 30), (2, 150))
    with pytest.raises(SettingsError, match=r"replay_dead_letters has no (on_malformed|expect)='quarantine'"):
        fix(spark, **option)


def test_a_view_of_the_user_with_the_name_of_the_letters_is_there_afterwards(spark: Any) -> None:
    load(1, (1, 30), (2, 150))
    spark.range(3).createOrReplaceTempView("letters")
    fix(spark)
    assert spark.table("letters").count() == 3
    spark.catalog.dropTempView("letters")
    fix(spark)
    assert not spark.catalog.tableExists("letters")


def command(*arguments: str) -> tuple[int, dict[str, Any]]:
    """As a user runs it: a replay starts Spark in its own process."""
    done = subprocess.run(
        [sys.executable, "-c", "from lakesink_tools.cli.main import main; main()", "dead-letters", TABLE, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr[-3000:]
    return done.returncode, json.loads(done.stdout)


def test_the_command_replays_with_a_query_and_counts_what_is_pending(spark: Any, tmp_path: Path) -> None:
    load(1, (1, 30), (2, 150), (3, -1))
    query = tmp_path / "fix.sql"
    query.write_text(f"{FIX} WHERE row.id = 2")
    code, told = command("--output", "json", "--replay", str(query))
    assert (code, told) == (1, {"table": TABLE, "letters_table": LETTERS, "replays": 1, "letters": 1, "pending": 1})
    assert ids() == [1, 2]
    shown = CliRunner().invoke(main, ["dead-letters", TABLE])
    assert (shown.exit_code, "1 dead letter, 1 replayed" in shown.output) == (1, True), shown.output
    assert '{"id":3,"age":-1}' in shown.output
    assert '{"id":2,"age":150}' not in shown.output
    fix(spark)
    shown = CliRunner().invoke(main, ["dead-letters", LETTERS, "--output", "json"])
    assert shown.exit_code == 0
    assert (json.loads(shown.output)["letters"], json.loads(shown.output)["replayed"]) == (0, 2)


VALUES: dict[str, tuple[str, list[str]]] = {
    "BOOLEAN": ("{}", ["true", "false"]),
    "INT": ("CAST({} AS INT)", ["-2147483648", "2147483647"]),
    "BIGINT": ("CAST({} AS BIGINT)", ["-9223372036854775808BD", "9223372036854775807BD"]),
    "FLOAT": ("CAST('{}' AS FLOAT)", ["0.1", "1.1754944E-38", "3.4028235E38", "NaN", "Infinity", "-Infinity", "-0.0"]),
    "DOUBLE": ("CAST('{}' AS DOUBLE)", ["0.1", "4.9E-324", "1.7976931348623157E308", "NaN", "-Infinity", "-0.0"]),
    "DECIMAL(38,10)": ("CAST('{}' AS DECIMAL(38,10))", ["0.0000000001", "-9999999999999999999999999999.9999999999"]),
    "STRING": ("{}", ["'a\\nb'", "''", "'\u00e4\U0001f600'", "'\\\\\"'"]),
    "BINARY": ("X'{}'", ["", "00FF", "F09F9880"]),
    "DATE": ("DATE '{}'", ["0001-01-01", "1582-10-10", "9999-12-31"]),
    "TIMESTAMP": (
        "TIMESTAMP '{}'",
        ["0001-01-02T00:00:00.000001Z", "1969-12-31T23:59:59.999999Z", "9999-12-30T00:00:00Z"],
    ),
    "TIMESTAMP_NTZ": ("TIMESTAMP_NTZ '{}'", ["0001-01-01T00:00:00.000001", "9999-12-31T23:59:59.999999"]),
    "ARRAY<DECIMAL(5,2)>": ("CAST({} AS ARRAY<DECIMAL(5,2)>)", ["array(1.10, NULL)", "array()"]),
    "STRUCT<a: BINARY, b: STRUCT<c: DATE>>": (
        "CAST({} AS STRUCT<a: BINARY, b: STRUCT<c: DATE>>)",
        ["struct(X'01', struct(DATE '2024-02-29'))", "struct(NULL, NULL)"],
    ),
    "MAP<STRING, TIMESTAMP>": ("CAST({} AS MAP<STRING, TIMESTAMP>)", ["map('a', TIMESTAMP '2024-02-29T12:00:00Z')"]),
}


def test_row_has_the_exact_value_of_a_row_that_was_put_aside(spark: Any) -> None:
    """The rows land as they would have landed, so the columns of both tables are compared as they are stored."""
    count = 1 + max(len(values) for _, values in VALUES.values())
    texts = {
        kind: [form.format(value) for value in values] + [f"CAST(NULL AS {kind})"] * (count - len(values))
        for kind, (form, values) in VALUES.items()
    }
    selects = [
        ", ".join([f"{at} AS id", *(f"{row[at]} AS `{kind}`" for kind, row in texts.items())]) for at in range(count)
    ]
    found = spark.sql(" UNION ALL ".join(f"SELECT {one}" for one in selects))
    lakesink.append(found, TABLE, txn=("load", 1), expect={"never": ("id < 0", "quarantine")}, **ANY)
    lakesink.append(found, "demo.exact", txn=("load", 1), **ANY)
    assert fix(spark, "SELECT letter_id, row.* FROM letters") == (1, count, 0)
    both = [load_table(connect(create=False), name).scan().to_arrow().sort_by("id") for name in (TABLE, "demo.exact")]
    assert both[0].schema == both[1].schema
    for kind, (_, values) in VALUES.items():
        assert [str(row) for row in both[0][kind].to_pylist()] == [str(row) for row in both[1][kind].to_pylist()], kind
        assert both[0][kind].null_count == count - len(values), kind


def test_a_map_by_other_keys_than_text_is_a_list_of_its_entries_in_row(spark: Any) -> None:
    found = spark.sql("SELECT 1 AS id, map(DATE '2024-02-29', 1.5BD) AS v")
    lakesink.append(found, TABLE, txn=("load", 1), expect={"never": ("id < 0", "quarantine")}, **ANY)
    assert fix(spark, "SELECT letter_id, row.id, map_from_entries(row.v) AS v FROM letters") == (1, 1, 0)
    assert rows() == [{"id": 1, "v": [(date(2024, 2, 29), Decimal("1.5"))]}]


def test_row_has_dates_that_python_does_not_have(spark: Any) -> None:
    found = spark.sql(
        "SELECT 1 AS id, DATE '0001-01-01' - INTERVAL '400' DAY AS v"
        " UNION ALL SELECT 2, DATE '9999-12-31' + INTERVAL '1' DAY"
    )
    lakesink.append(found, TABLE, txn=("load", 1), expect={"never": ("id < 0", "quarantine")}, **ANY)
    assert fix(spark, "SELECT letter_id, row.* FROM letters") == (1, 2, 0)
    days = load_table(connect(create=False), TABLE).scan().to_arrow().sort_by("id")["v"].cast(pa.int32())
    assert days.to_pylist() == [date(1, 1, 1).toordinal() - date(1970, 1, 1).toordinal() - 400, 2932897]


def test_a_row_without_an_exact_json_form_is_repaired_from_its_bytes(spark: Any) -> None:
    found = spark.sql("SELECT 1 AS id, CAST(X'61FF' AS STRING) AS v")
    lakesink.append(found, TABLE, txn=("load", 1), on_malformed="quarantine", **ANY)

    def from_bytes(letters: Any) -> Any:
        def parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for letter, payload in zip(batch["letter_id"], batch["payload_bytes"], strict=True):
                    row = pa.ipc.open_stream(payload.as_py()).read_all().combine_chunks()
                    [text] = row["v"].cast(pa.binary()).to_pylist()
                    yield pa.RecordBatch.from_pydict(
                        {"letter_id": [str(letter)], "id": row["id"].to_pylist(), "v": [text.decode("latin-1")]},
                        pa.schema([("letter_id", pa.string()), ("id", pa.int32()), ("v", pa.string())]),
                    )

        return letters.mapInArrow(parse, "letter_id STRING, id INT, v STRING")

    assert fix(spark, "SELECT letter_id, row.* FROM letters WHERE row IS NOT NULL") == (0, 0, 1)
    assert fix(spark, from_bytes) == (1, 1, 0)
    assert rows() == [{"id": 1, "v": "a\u00ff"}]


def test_documents_are_repaired_as_text_and_decoded_as_those_of_a_stream(spark: Any, tmp_path: Path) -> None:
    lakesink.append(spark.createDataFrame([], COLUMNS), TABLE, txn=("make", 0), create_table=True, verbose=False)
    (tmp_path / "a.txt").write_text('{"id": 1, "age": 30}\n{"id": 2, "age": "old"}\nno json')
    documents = spark.read.text(str(tmp_path / "a.txt"))
    options: dict[str, Any] = {"decode": "json", "verbose": False}
    aside: dict[str, Any] = {"on_malformed": "quarantine", "max_dead_letter_ratio": 1}
    lakesink.append(documents, TABLE, txn=("load", 1), **options, **aside)
    query = "SELECT letter_id, replace(payload, '\"old\"', '90') AS value FROM letters WHERE row IS NOT NULL"
    assert fix(spark, query, **options) == (1, 1, 1)
    assert sorted((row["id"], row["age"]) for row in rows()) == [(1, 30), (2, 90)]
    with pytest.raises(LakesinkError, match="MALFORMED"):
        fix(spark, "SELECT letter_id, payload AS value FROM letters", **options)
    assert len(rows()) == 2
