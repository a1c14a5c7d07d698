"""Repaired dead letters land in the table that they came from, each once, whatever fails on the way."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from threading import Barrier, Thread, get_ident
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import lakesink
from lakesink.cli.main import main
from lakesink.sinks.iceberg.pending import first_letters
from lakesink.sinks.iceberg.replays import assign
from lakesink.spark.repair import repaired
from lakesink_catalog.commit.fence import FencedCommit
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.errors import LakesinkError, SettingsError

pytestmark = pytest.mark.usefixtures("home")
TABLE, LETTERS, REPLAYS = "demo.people", "demo.people__dead_letters", "demo.people__dead_letters__replays"
COLUMNS = "id LONG, age INT"
VALID_AGE = {"valid_age": ("age BETWEEN 0 AND 120", "quarantine")}
FIX = "SELECT letter_id, row.id, 120 AS age FROM letters"

ANY: dict[str, Any] = {"create_table": True, "verbose": False, "max_dead_letter_ratio": 1}


class Died(BaseException):
    """The driver dies."""


def load(spark: Any, version: int, *rows: tuple[int, int], table: str = TABLE, **options: Any) -> None:
    found = spark.createDataFrame(list(rows), COLUMNS)
    lakesink.append(found, table, txn=("load", version), expect=VALID_AGE, **ANY, **options)


def fix(spark: Any, repair: Any = FIX, **options: Any) -> tuple[int, int, int]:
    done = lakesink.replay_dead_letters(spark, TABLE, repair, **{"verbose": False, **options})
    return done.replays, done.letters, done.pending


def rows(table: str = TABLE) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = load_table(connect(create=False), table).scan().to_arrow().to_pylist()
    return found


def ids(table: str = TABLE) -> list[int]:
    return sorted(row["id"] for row in rows(table))


def assigned() -> Counter[int]:
    found = rows(REPLAYS)
    assert len({row["letter_id"] for row in found}) == len(found)
    return Counter(row["replay"] for row in found)


def roll_back(name: str, snapshots: int = 1) -> None:
    table = load_table(connect(create=False), name)
    kept = table.history()[-1 - snapshots].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(kept).commit()


def dies(monkeypatch: pytest.MonkeyPatch, repair: Callable[[], Any], *, assigned_first: bool) -> None:
    """Run a replay whose driver dies before the replay commits, with its letters assigned or not."""
    commit = FencedCommit.commit

    def to_replays_only(fence: Any, *batch: Any) -> Any:
        name = ".".join(fence.load().name())
        if name == (TABLE if assigned_first else REPLAYS):
            raise Died
        return commit(fence, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(FencedCommit, "commit", to_replays_only)
        with pytest.raises(Died):
            repair()


@pytest.mark.parametrize(
    "repair", [FIX, lambda letters: letters.selectExpr("letter_id", "row.id", "120 AS age")], ids=["sql", "function"]
)
def test_each_letter_lands_once_also_if_the_replay_is_called_again(spark: Any, repair: Any) -> None:
    load(spark, 1, (1, 30), (2, 150), (3, -1))
    assert fix(spark, repair) == (1, 2, 0)
    assert fix(spark, repair) == (0, 0, 0)
    load(spark, 2, (4, 200), (5, 5))
    assert fix(spark, repair) == (1, 1, 0)
    assert sorted((row["id"], row["age"]) for row in rows()) == [(1, 30), (2, 120), (3, 120), (4, 120), (5, 5)]
    assert assigned() == {1: 2, 2: 1}
    assert not lakesink.audit_table(TABLE).findings


def test_a_letter_that_the_repair_leaves_out_stays_pending(spark: Any) -> None:
    load(spark, 1, (1, 30), (2, 150), (3, -1))
    assert fix(spark, f"{FIX} WHERE row.age > 0") == (1, 1, 1)
    assert fix(spark, f"{FIX} WHERE false") == (0, 0, 1)
    assert ids() == [1, 2]
    assert fix(spark) == (1, 1, 0)
    assert ids() == [1, 2, 3]


def test_many_letters_are_replayed_in_parts(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakesink.spark.replay.first_letters", lambda of, wanted: first_letters(of, wanted, 2))
    load(spark, 1, *((at, 150) for at in range(5)))
    assert fix(spark, f"{FIX} WHERE row.id <> 1") == (3, 4, 1)
    assert ids() == [0, 2, 3, 4]
    assert sum(assigned().values()) == 4


def test_a_part_has_a_limit_of_bytes_too(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakesink.spark.replay.first_letters", lambda of, wanted: first_letters(of, wanted, 100, 1))
    for version in range(3):
        load(spark, version, (version, 150))
    assert fix(spark) == (3, 3, 0)
    assert ids() == [0, 1, 2]


@pytest.mark.parametrize("assigned_first", [False, True], ids=["nothing-assigned", "assigned"])
def test_a_replay_that_died_is_completed_by_the_next_call(
    spark: Any, monkeypatch: pytest.MonkeyPatch, *, assigned_first: bool
) -> None:
    load(spark, 1, (1, 30), (2, 150), (3, -1))
    dies(monkeypatch, lambda: fix(spark, f"{FIX} WHERE row.id = 2"), assigned_first=assigned_first)
    assert ids() == [1]
    load(spark, 2, (4, 200))
    assert fix(spark) == ((2, 3, 0) if assigned_first else (1, 3, 0))
    assert ids() == [1, 2, 3, 4]
    assert assigned() == ({1: 1, 2: 2} if assigned_first else {1: 3})


def test_a_replay_that_was_begun_needs_all_of_its_letters(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    load(spark, 1, (1, 30), (2, 150), (3, -1))
    dies(monkeypatch, lambda: fix(spark), assigned_first=True)
    with pytest.raises(LakesinkError, match="Replay 1 was begun with 2 letters, the repair returns 1 of them"):
        fix(spark, f"{FIX} WHERE row.id = 2")
    assert ids() == [1]
    assert fix(spark) == (1, 2, 0)
    assert ids() == [1, 2, 3]


def test_two_replays_at_once_land_each_letter_once(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both look before one of them assigns letters: the other one continues with these letters, or finds them done."""
    load(spark, 1, (1, 30), (2, 150), (3, -1))
    both, waited = Barrier(2), set()

    def together(*arguments: Any) -> Any:
        if get_ident() not in waited:
            waited.add(get_ident())
            both.wait(120)
        return repaired(*arguments)

    monkeypatch.setattr("lakesink.spark.replay.repaired", together)
    done: list[tuple[int, int, int]] = []
    threads = [Thread(target=lambda: done.append(fix(spark))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids() == [1, 2, 3]
    assert assigned() == {1: 2}
    assert (len(done), sum(one[1] for one in done), {one[2] for one in done}) == (2, 2, {0})


def test_the_loser_of_a_race_continues_with_the_letters_of_the_winner(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The winner assigns one letter and dies, between the look of the loser and its assignment."""
    load(spark, 1, (1, 30), (2, 150), (3, -1))

    def beaten(*arguments: Any) -> bool:
        monkeypatch.setattr("lakesink.spark.replay.assign", assign)
        dies(monkeypatch, lambda: fix(spark, f"{FIX} WHERE row.id = 2"), assigned_first=True)
        return assign(*arguments)

    monkeypatch.setattr("lakesink.spark.replay.assign", beaten)
    assert fix(spark) == (2, 2, 0)
    assert ids() == [1, 2, 3]
    assert assigned() == {1: 1, 2: 1}


@pytest.mark.parametrize(
    ("repair", "said"),
    [
        (f"{FIX} UNION ALL {FIX}", "a letter_id comes twice"),
        (f"{FIX} UNION ALL SELECT 'x', 1L, 1", "1 row with a letter_id that it was not given"),
        (f"{FIX} UNION ALL SELECT NULL, 1L, 1", "1 row with a letter_id that it was not given"),
        ("SELECT row.* FROM letters", "returns 0 columns letter_id"),
        ("SELECT nothing FROM letters", "Spark cannot run the repair"),
        (lambda _: None, "returned a NoneType"),
        ("SELECT letter_id, row.id, 'x' AS age FROM letters", "SCHEMA_MISMATCH"),
        ("SELECT letter_id, row.id, 1 AS age, 2 AS other FROM letters", "other"),
        ("SELECT letter_id, row.id, 1 AS age, INTERVAL 1 DAY AS span FROM letters", "TYPE_UNSUPPORTED"),
    ],
)
def test_a_repair_that_is_wrong_commits_nothing(spark: Any, repair: Any, said: str) -> None:
    load(spark, 1, (1, 30), (2, 150), (3, -1))
    with pytest.raises(LakesinkError, match=said):
        fix(spark, repair)
    assert ids() == [1]
    assert fix(spark) == (1, 2, 0)
    assert ids() == [1, 2, 3]


def test_a_row_that_cannot_be_written_commits_nothing_and_assigns_nothing(spark: Any) -> None:
    load(spark, 1, (1, 30), (2, 150), (3, -1))
    with pytest.raises(LakesinkError, match="EXPECTATION_UNMET"):
        fix(spark, "SELECT letter_id, row.* FROM letters", expect={"valid_age": "age BETWEEN 0 AND 120"})
    assert ids() == [1]
    assert fix(spark, f"{FIX} WHERE row.id = 3", expect={"valid_age": "age BETWEEN 0 AND 120"}) == (1, 1, 1)
    assert ids() == [1, 3]


def test_the_rows_that_were_checked_are_those_that_land(spark: Any) -> None:
    """A repair that returns other rows each time it is evaluated is evaluated once."""
    load(spark, 1, (1, 30), *((at, 150) for at in range(2, 40)))

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
    load(spark, 1, (1, 30), (2, 150))
    with pytest.raises(SettingsError, match="cannot put rows aside"):
        fix(spark, **option)


def test_a_view_of_the_user_with_the_name_of_the_letters_is_there_afterwards(spark: Any) -> None:
    load(spark, 1, (1, 30), (2, 150))
    spark.range(3).createOrReplaceTempView("letters")
    fix(spark)
    assert spark.table("letters").count() == 3
    spark.catalog.dropTempView("letters")
    fix(spark)
    assert not spark.catalog.tableExists("letters")


def test_a_replay_that_was_rolled_back_is_pending_again(spark: Any) -> None:
    load(spark, 1, (1, 30), (2, 150), (3, -1))
    assert fix(spark, f"{FIX} WHERE row.id = 2") == (1, 1, 1)
    assert fix(spark) == (1, 1, 0)
    roll_back(TABLE, 2)
    assert ids() == [1]
    assert fix(spark) == (2, 2, 0)
    assert ids() == [1, 2, 3]
    assert assigned() == {1: 1, 2: 1}
    assert fix(spark) == (0, 0, 0)


def test_letters_that_were_rolled_back_with_their_table_need_their_replays_rolled_back_too(spark: Any) -> None:
    load(spark, 1, (1, 30), (2, 150))
    load(spark, 2, (3, 150))
    assert fix(spark) == (1, 2, 0)
    roll_back(TABLE, 2)
    roll_back(LETTERS)
    with pytest.raises(LakesinkError, match="lacks 1 letter of replay 1"):
        fix(spark)
    connect(create=False).drop_table(REPLAYS)  # the first replay has no snapshot before it
    assert fix(spark) == (1, 1, 0)
    load(spark, 2, (3, 150))
    assert fix(spark) == (1, 1, 0)
    assert ids() == [1, 2, 3]


@pytest.mark.parametrize("lost", ["dropped", "renamed", "rolled back"])
def test_a_table_of_replays_that_is_lost_is_noticed(spark: Any, lost: str) -> None:
    load(spark, 1, (1, 30), (2, 150))
    fix(spark)
    load(spark, 2, (3, 150))
    fix(spark)
    catalog = connect(create=False)
    if lost == "dropped":
        catalog.drop_table(REPLAYS)
    elif lost == "renamed":
        catalog.rename_table(LETTERS, "demo.other__dead_letters")
    else:
        roll_back(REPLAYS)
    option = {"dead_letter_table": "demo.other__dead_letters"} if lost == "renamed" else {}
    with pytest.raises(LakesinkError, match="LAKESINK_REPLAYS_DIFFER"):
        fix(spark, **option)
    assert ids() == [1, 2, 3]
    if lost == "renamed":
        catalog.rename_table(REPLAYS, "demo.other__dead_letters__replays")
        assert fix(spark, **option) == (0, 0, 0)
    [found] = lakesink.audit_table(TABLE).findings if lost == "rolled back" else [None]
    assert found is None or found.code.name == "REPLAYS_DIFFER"


def test_a_renamed_table_keeps_its_replays(spark: Any) -> None:
    load(spark, 1, (1, 30), (2, 150))
    fix(spark)
    connect(create=False).rename_table(TABLE, "demo.persons")
    done = lakesink.replay_dead_letters(spark, "demo.persons", FIX, dead_letter_table=LETTERS, verbose=False)
    assert (done.replays, done.pending) == (0, 0)
    assert ids("demo.persons") == [1, 2]


def test_dead_letters_that_are_made_again_are_replayed_with_their_own_numbers(spark: Any) -> None:
    load(spark, 1, (1, 30), (2, 150))
    fix(spark)
    connect(create=False).drop_table(LETTERS)
    load(spark, 2, (3, 150))
    assert fix(spark) == (1, 1, 0)
    assert fix(spark) == (0, 0, 0)
    assert ids() == [1, 2, 3]


def test_tables_that_share_dead_letters_get_their_own_back(spark: Any) -> None:
    """Also if both have an application of one name, with the same versions and the same bad rows."""
    for table in (TABLE, "demo.others"):
        load(spark, 1, (1, 30), (2, 150), table=table, dead_letter_table="demo.bad")
        load(spark, 2, (3, 150), table=table, dead_letter_table="demo.bad")
    assert len(rows("demo.bad")) == 4
    assert fix(spark, dead_letter_table="demo.bad") == (1, 2, 0)
    assert (ids(), ids("demo.others")) == ([1, 2, 3], [1])
    done = lakesink.replay_dead_letters(spark, "demo.others", FIX, dead_letter_table="demo.bad", verbose=False)
    assert (done.letters, done.pending) == (2, 0)
    assert (ids(), ids("demo.others")) == ([1, 2, 3], [1, 2, 3])
    assert fix(spark, dead_letter_table="demo.bad") == (0, 0, 0)


def test_letters_of_a_branch_go_to_that_branch(spark: Any) -> None:
    load(spark, 1, (1, 30), (2, 150))
    table = load_table(connect(create=False), TABLE)
    table.manage_snapshots().create_branch(table.snapshots()[-1].snapshot_id, "audit").commit()
    load(spark, 2, (3, 150), branch="audit")
    assert fix(spark, branch="audit") == (1, 1, 0)
    assert ids() == [1]
    assert fix(spark) == (1, 1, 0)
    assert ids() == [1, 2]
    in_branch = load_table(connect(create=False), TABLE).scan().use_ref("audit").to_arrow()["id"].to_pylist()
    assert sorted(in_branch) == [1, 3]


@pytest.mark.parametrize("lost", ["dropped", "rolled back"])
@pytest.mark.parametrize("behind", [(1,), (3,), (1, 3)])
def test_letters_are_not_replayed_from_an_older_state_of_their_table(
    spark: Any, monkeypatch: pytest.MonkeyPatch, lost: str, behind: tuple[int, ...]
) -> None:
    load(spark, 1, (1, 150))
    load(spark, 2, (2, 150))
    older = load_table(connect(create=False), LETTERS)
    if lost == "dropped":
        connect(create=False).drop_table(LETTERS)
        load(spark, 3, (3, 150))
    else:
        roll_back(LETTERS)
    count = 0

    def load_older(catalog: Any, name: str) -> Any:
        nonlocal count
        count += 1
        return older if count in behind else load_table(catalog, name)

    monkeypatch.setattr("lakesink.spark.replay.load_table", load_older)
    assert fix(spark) == (1, 1, 0)
    assert ids() == [3 if lost == "dropped" else 1]
    assert count > len(behind)


def test_letters_do_not_go_to_another_table_of_the_name(spark: Any) -> None:
    load(spark, 1, (1, 150))

    def replaced(letters: Any) -> Any:
        connect(create=False).drop_table(TABLE)
        load(spark, 1, (5, 5))
        return letters.selectExpr("letter_id", "row.id", "120 AS age")

    with pytest.raises(LakesinkError, match="replaced by another table") as refused:
        fix(spark, replaced)
    assert refused.value.code == "LAKESINK_REPLAYS_DIFFER"
    assert ids() == [5]


def test_letters_of_a_batch_that_the_table_lacks_are_not_replayed_before_it(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch could be written again with other rows aside, after its letters were rolled back."""
    load(spark, 1, (1, 30), (2, 150))
    commit = FencedCommit.commit

    def only_letters(fence: Any, *batch: Any) -> Any:
        if ".".join(fence.load().name()) == TABLE:
            raise Died
        return commit(fence, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(FencedCommit, "commit", only_letters)
        with pytest.raises(Died):
            load(spark, 2, (3, 150), (4, 4))
    assert len(rows(LETTERS)) == 2
    assert fix(spark) == (1, 1, 1)
    load(spark, 2, (3, 150), (4, 4))
    assert fix(spark) == (1, 1, 0)
    assert ids() == [1, 2, 3, 4]


def test_a_table_of_replays_with_rows_of_others_is_refused(spark: Any) -> None:
    load(spark, 1, (1, 30), (2, 150), (3, 150))
    fix(spark, f"{FIX} WHERE row.id = 2")
    own = load_table(connect(create=False), REPLAYS)
    own.append(own.scan().to_arrow())
    with pytest.raises(LakesinkError, match="a row that no replay has written"):
        fix(spark)
    connect(create=False).drop_table(REPLAYS)
    lakesink.append(spark.range(1), REPLAYS, txn=("x", 1), create_table=True, verbose=False)
    with pytest.raises(LakesinkError, match="no table of replays"):
        fix(spark)


def test_a_replayed_table_shows_what_it_was_replayed_from(spark: Any) -> None:
    load(spark, 1, (1, 30), (2, 150))
    fix(spark)
    newest = load_table(connect(create=False), TABLE).snapshots()[-1]
    assert newest.summary is not None
    assert newest.summary["lakesink.replays-table"] == REPLAYS
    found = lakesink.history(TABLE)[-1]
    assert (found.kind, found.batch_id, found.rows) == ("txn", 1, 1)
    assert found.sink.startswith("dead-letters.replay.")


def command(*arguments: str) -> tuple[int, dict[str, Any]]:
    """As a user runs it: a replay starts Spark in its own process."""
    done = subprocess.run(
        [sys.executable, "-c", "from lakesink.cli.main import main; main()", "dead-letters", TABLE, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr[-3000:]
    return done.returncode, json.loads(done.stdout)


def test_the_command_replays_with_a_query_and_counts_what_is_pending(spark: Any, tmp_path: Path) -> None:
    load(spark, 1, (1, 30), (2, 150), (3, -1))
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


def test_the_command_shows_the_letters_of_one_of_the_tables_that_share_them(spark: Any) -> None:
    for table, bad in ((TABLE, 1), ("demo.others", 2)):
        load(spark, 1, (1, 30), *[(2, 150)] * bad, table=table, dead_letter_table="demo.bad")
    shown = CliRunner().invoke(main, ["dead-letters", TABLE, "--letters", "demo.bad"])
    assert "demo.bad in lakehouse: 1 dead letter\n" in shown.output
    assert "Not counted: 2 letters of other tables or branches." in shown.output
    connect(create=False).drop_table(TABLE)
    shown = CliRunner().invoke(main, ["dead-letters", TABLE, "--letters", "demo.bad"])
    assert "demo.bad in lakehouse: 3 dead letters\n" in shown.output


def test_the_command_names_a_replay_that_was_begun(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    load(spark, 1, (1, 30), (2, 150))
    dies(monkeypatch, lambda: fix(spark), assigned_first=True)
    shown = CliRunner().invoke(main, ["dead-letters", TABLE])
    assert "Replay 1 was begun and is not in the table" in shown.output
    assert shown.exit_code == 1


def test_the_command_refuses_filters_and_files_that_are_no_text(tmp_path: Path) -> None:
    query = tmp_path / "fix.sql"
    query.write_bytes(b"\xff")
    for options, said in ((["--sink", "x"], "do not limit a replay"), ([], "cannot be read")):
        told = CliRunner().invoke(main, ["dead-letters", TABLE, "--replay", str(query), *options])
        assert (told.exit_code, said in told.output) == (2, True), told.output


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


@pytest.mark.parametrize("kind", VALUES)
def test_row_has_the_exact_value_of_a_row_that_was_put_aside(spark: Any, kind: str) -> None:
    """The rows land as they would have landed, so the columns of both tables are compared as they are stored."""
    form, values = VALUES[kind]
    texts = [form.format(value) for value in values] + [f"CAST(NULL AS {kind})"]
    found = spark.sql(" UNION ALL ".join(f"SELECT {at} AS id, {text} AS v" for at, text in enumerate(texts)))
    lakesink.append(found, TABLE, txn=("load", 1), expect={"never": ("id < 0", "quarantine")}, **ANY)
    lakesink.append(found, "demo.exact", txn=("load", 1), **ANY)
    assert fix(spark, "SELECT letter_id, row.* FROM letters") == (1, len(texts), 0)
    both = [load_table(connect(create=False), name).scan().to_arrow().sort_by("id") for name in (TABLE, "demo.exact")]
    assert both[0].schema.field("v").type == both[1].schema.field("v").type
    assert [str(row) for row in both[0]["v"].to_pylist()] == [str(row) for row in both[1]["v"].to_pylist()]
    assert both[0]["v"].null_count == 1


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
